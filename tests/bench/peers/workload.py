"""The training job that every system of the comparison runs: model, data and hyper-parameters.

Model   GPT-NeoX in float32: erf GELU, parallel residual, rotary embedding on a quarter of each
        head, biases in attention and MLP, a separate head without bias, no dropout.
Data    A flat file of L little-endian uint16 tokens. Sample i starts at token i*T and is T+1
        long, wrapping at the end of the file: T inputs and, one further on, T targets. At step s
        rank r of N takes the B samples that begin at (s*N + r)*B.
Step    Mean cross-entropy per micro-batch, gradients averaged over the ranks, clipped to a global
        norm of CLIP, AdamW with decoupled weight decay on every parameter.

Heavy imports are made inside the functions: the launcher needs only the constants.
"""
import os

PRESETS = {
    "bench33m": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
                 "intermediate_size": 2048, "vocab_size": 8192, "max_position_embeddings": 256},
    "tiny1m": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
               "intermediate_size": 512, "vocab_size": 512, "max_position_embeddings": 128},
}
CLIP = 1.0
CLIP_EPS = 1e-6  # scale = min(1, CLIP / (norm + CLIP_EPS)), as torch computes it
LR = 1e-3
WEIGHT_DECAY = 0.1
ADAM = {"lr": LR, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": WEIGHT_DECAY}


def make_config(preset):
    """Transformers configuration of a preset, with the attention kernel that zerod uses too."""
    from transformers import GPTNeoXConfig
    config = GPTNeoXConfig(
        hidden_act="gelu", use_parallel_residual=True, attention_bias=True,
        tie_word_embeddings=False, attention_dropout=0.0, hidden_dropout=0.0, layer_norm_eps=1e-5,
        initializer_range=0.02, use_cache=False, bos_token_id=0, eos_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "partial_rotary_factor": 0.25},
        **PRESETS[preset])
    config._attn_implementation = "sdpa"
    return config


def make_model(config):
    """A model in training mode with random weights, or none where the meta device is current."""
    from transformers import GPTNeoXForCausalLM
    return GPTNeoXForCausalLM(config).train()


def name_in_file(name):
    """Checkpoint name of a parameter: files say embed_out where recent releases say lm_head."""
    return "embed_out." + name[len("lm_head."):] if name.startswith("lm_head.") else name


def open_weights(checkpoint):
    """Opens the checkpoint's tensors; a context manager with get_tensor and get_slice."""
    from safetensors import safe_open
    return safe_open(os.path.join(checkpoint, "model.safetensors"), framework="pt")


def load_weights(model, checkpoint):
    """Fills a whole, unsharded model from the checkpoint."""
    import torch
    with torch.no_grad(), open_weights(checkpoint) as weights:
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.get_tensor(name_in_file(name)))


def loss_of(model, inputs, targets):
    """Mean cross-entropy of a [B, T] batch."""
    from torch.nn.functional import cross_entropy
    logits = model(input_ids=inputs, use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


class TokenFile:
    """Read-only view of the token file that hands out batches."""

    def __init__(self, path):
        import numpy
        self._tokens = numpy.memmap(path, dtype="<u2", mode="r")

    def batch(self, step, rank, options):
        """Inputs and targets, int64 of shape [B, T] each, of one rank at one step."""
        import numpy
        import torch
        first = (step * options.world + rank) * options.micro_batch
        starts = (first + numpy.arange(options.micro_batch)) * options.seq
        places = (starts[:, None] + numpy.arange(options.seq + 1)) % self._tokens.size
        samples = torch.from_numpy(self._tokens[places].astype(numpy.int64))
        return samples[:, :-1].contiguous(), samples[:, 1:].contiguous()
