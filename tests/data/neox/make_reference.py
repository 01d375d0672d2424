"""Writes a tiny GPT-NeoX checkpoint and what transformers computes with it.

    python make_reference.py FOLDER [--hidden 32 --act gelu --tied ...]

FOLDER/model/          config.json and model.safetensors, names as in published checkpoints
FOLDER/tokens.bin      little-endian uint16 tokens
FOLDER/reference.json  logits, loss and gradient norms of a batch, then 8 steps of training (README)
"""
import argparse
import json
import os
import re

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

SEQ, BATCH, STEPS, TOKENS = 16, 4, 8, 1021


def published(name):
    return re.sub(r"^lm_head\.", "embed_out.", name)


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    for name, value in (("hidden", 32), ("layers", 3), ("heads", 4), ("intermediate", 128),
                        ("vocab", 96), ("seed", 0)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--rotary-pct", type=float, default=0.25)
    p.add_argument("--rotary-base", type=float, default=10000.0)
    p.add_argument("--act", default="gelu")
    p.add_argument("--dtype", default="float32", help="type of the stored weights")
    p.add_argument("--sequential", action="store_true")
    p.add_argument("--tied", action="store_true")
    p.add_argument("--no-attention-bias", action="store_true")
    p.add_argument("--old-style", action="store_true", help="add buffers of older checkpoints")
    p.add_argument("--new-config", action="store_true", help="write rope_parameters and dtype")
    return p.parse_args()


def make_model(a, shape, rope):
    config = GPTNeoXConfig(**shape, rope_parameters=rope)
    config._attn_implementation = "eager"
    model = GPTNeoXForCausalLM(config).float()
    dtype = getattr(torch, a.dtype)
    with torch.no_grad():  # larger and uneven weights: differences must show
        for i, (name, w) in enumerate(model.named_parameters()):
            w.copy_(torch.randn(w.shape) * (0.08 + 0.01 * (i % 5)) + ("norm.weight" in name))
            w.copy_(w.to(dtype).float())
    return model


def write_model(a, shape, rope, model):
    folder = os.path.join(a.out, "model")
    os.makedirs(folder, exist_ok=True)
    dtype = getattr(torch, a.dtype)
    weights = {published(n): w.detach().to(dtype).contiguous()
               for n, w in model.named_parameters()}
    for i in range(a.layers if a.old_style else 0):
        prefix = f"gpt_neox.layers.{i}.attention."
        n = int(a.hidden // a.heads * a.rotary_pct)
        weights[prefix + "bias"] = torch.ones(1, 1, 2 * SEQ, 2 * SEQ).tril().bool()
        weights[prefix + "masked_bias"] = torch.tensor(-1e9)
        weights[prefix + "rotary_emb.inv_freq"] = (
            1.0 / a.rotary_base ** (torch.arange(0, n, 2).float() / n))
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    config = dict(shape, architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox",
                  initializer_range=0.02)
    if a.new_config:
        config.update(dtype=a.dtype, rope_parameters=rope)
    else:
        config.update(rotary_pct=a.rotary_pct, rotary_emb_base=a.rotary_base, torch_dtype=a.dtype)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1, sort_keys=True)


def main():
    a = arguments()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    shape = dict(hidden_size=a.hidden, num_hidden_layers=a.layers, num_attention_heads=a.heads,
                 intermediate_size=a.intermediate, vocab_size=a.vocab,
                 max_position_embeddings=2 * SEQ, hidden_act=a.act,
                 use_parallel_residual=not a.sequential, tie_word_embeddings=a.tied,
                 attention_bias=not a.no_attention_bias, layer_norm_eps=1e-5,
                 attention_dropout=0.0, hidden_dropout=0.0, bos_token_id=0, eos_token_id=0,
                 use_cache=False)
    rope = {"rope_type": "default", "rope_theta": a.rotary_base,
            "partial_rotary_factor": a.rotary_pct}
    model = make_model(a, shape, rope)
    write_model(a, shape, rope, model)
    tokens = np.random.default_rng(a.seed).integers(0, a.vocab, TOKENS).astype("<u2")
    tokens.tofile(os.path.join(a.out, "tokens.bin"))

    def loss_of(step):
        first = (step * BATCH + np.arange(BATCH)) * SEQ
        ids = tokens[(first[:, None] + np.arange(SEQ + 1)[None, :]) % TOKENS]
        ids = torch.from_numpy(ids.astype(np.int64))
        logits = model(input_ids=ids[:, :-1]).logits
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                                         ids[:, 1:].flatten())

    named = [(published(n), w) for n, w in model.named_parameters()]
    logits, loss = loss_of(0)
    loss.backward()
    reference = {"arguments": {k: v for k, v in vars(a).items() if k != "out"},
                 "seq": SEQ, "batch": BATCH, "steps": STEPS, "loss": loss.item(),
                 "logits": {str(p): logits[0, p].tolist() for p in (0, 1, SEQ - 1)},
                 "grad_norms": {n: w.grad.norm().item() for n, w in named}, "train": []}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)[1]
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        reference["train"].append({"loss": loss.item(), "grad_norm": norm.item()})
    reference["final"] = {n: {"sum": w.double().sum().item(),
                              "sum_squares": w.double().square().sum().item(),
                              "first": w.flatten()[:4].tolist()} for n, w in named}
    with open(os.path.join(a.out, "reference.json"), "w") as f:
        json.dump(reference, f, indent=1)


main()
