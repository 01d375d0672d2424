"""Adds to a folder of reference values what transformers computes in bfloat16 and greedily.

    python make_extra.py FOLDER...

FOLDER/extra.json:
  bfloat16  the weights rounded to bfloat16, all arithmetic in it (attention "sdpa", as transformers
            chooses by itself): logits of the first sample at the reference's positions, loss and
            gradient norm of every tensor for the first batch
  greedy    in float32: prompt, and the tokens that generate() makes of it without sampling, with a
            cache of keys and values; margin is the smallest gap between the two highest logits
"""
import json
import os
import re
import sys

import numpy as np
import torch
from transformers import GPTNeoXForCausalLM

PROMPT, NEW = 5, 24


def published(name):
    return re.sub(r"^lm_head\.", "embed_out.", name)


def first_batch(folder, reference):
    tokens = np.fromfile(os.path.join(folder, "tokens.bin"), "<u2")
    seq, batch = reference["seq"], reference["batch"]
    at = (np.arange(batch)[:, None] * seq + np.arange(seq + 1)[None, :]) % len(tokens)
    ids = torch.from_numpy(tokens[at].astype(np.int64))
    return ids[:, :-1], ids[:, 1:]


def half(folder, reference):
    model = GPTNeoXForCausalLM.from_pretrained(
        os.path.join(folder, "model"), dtype=torch.bfloat16, attn_implementation="sdpa")
    x, y = first_batch(folder, reference)
    logits = model.train()(input_ids=x).logits
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
    loss.backward()
    return {
        "logits": {p: logits[0, int(p)].tolist() for p in reference["logits"]},
        "loss": loss.item(),
        "grad_norms": {published(n): w.grad.double().norm().item()
                       for n, w in model.named_parameters()},
    }


def greedy(folder, reference):
    model = GPTNeoXForCausalLM.from_pretrained(os.path.join(folder, "model"), dtype=torch.float32)
    prompt = first_batch(folder, reference)[0][:1, :PROMPT]
    out = model.generate(prompt, max_new_tokens=NEW, do_sample=False, eos_token_id=None,
                         pad_token_id=0, output_scores=True, return_dict_in_generate=True)
    top = torch.stack([score[0].topk(2).values for score in out.scores])
    return {"prompt": prompt[0].tolist(), "tokens": out.sequences[0, PROMPT:].tolist(),
            "margin": (top[:, 0] - top[:, 1]).min().item()}


torch.set_num_threads(1)
for folder in sys.argv[1:]:
    with open(os.path.join(folder, "reference.json")) as f:
        reference = json.load(f)
    extra = {"bfloat16": half(folder, reference), "greedy": greedy(folder, reference)}
    with open(os.path.join(folder, "extra.json"), "w") as f:
        json.dump(extra, f, indent=1)
    print(folder, "loss", extra["bfloat16"]["loss"], "margin", extra["greedy"]["margin"])
