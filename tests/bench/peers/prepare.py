"""Writes what a comparison starts from: config.json, model.safetensors and tokens.bin.

The weights are drawn from a seeded generator in the order of their names: normal with standard
deviation 0.02, norms 1, biases 0. The tokens are the bytes of a made-up text, so that a model has
something to learn; all are below any preset's vocabulary.
Running it again does nothing when the folder is complete.
"""
import argparse
import json
import os

import workload


def write_tokens(path, count, seed):
    """Bytes of a text made of 64 invented words in random order, a space after each."""
    import numpy
    rng = numpy.random.default_rng(seed)
    letters = list("etaoinshrdlucmfwypvbgkqjxz")
    likelihood = 1 / numpy.arange(3, 3 + len(letters))
    likelihood /= likelihood.sum()
    words = ["".join(rng.choice(letters, size=length, p=likelihood)) + " "
             for length in rng.integers(1, 6, size=64)]
    text = "".join(words[word] for word in rng.integers(0, len(words), size=count))
    numpy.frombuffer(text[:count].encode(), numpy.uint8).astype("<u2").tofile(path)


def write_checkpoint(folder, preset, seed):
    """config.json and model.safetensors with Hugging Face names; returns how many parameters."""
    import torch
    from safetensors.torch import save_file
    config = workload.make_config(preset)
    with torch.device("meta"):
        shapes = {workload.name_in_file(name): parameter.shape
                  for name, parameter in workload.make_model(config).named_parameters()}
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in sorted(shapes.items()):
        if name.endswith("bias"):
            tensors[name] = torch.zeros(shape)
        elif "norm" in name:
            tensors[name] = torch.ones(shape)
        else:
            tensors[name] = torch.randn(shape, generator=generator) * config.initializer_range
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    fields = config.to_dict()
    # The last two are how releases before 5 spell the rotary parameters.
    fields |= {"architectures": ["GPTNeoXForCausalLM"], "torch_dtype": "float32",
               "dtype": "float32", "rotary_pct": 0.25, "rotary_emb_base": 10000}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(fields, file, indent=2, sort_keys=True)
    return sum(tensor.numel() for tensor in tensors.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--preset", default="bench33m", choices=workload.PRESETS)
    parser.add_argument("--tokens", type=int, default=1 << 18, help="tokens to write (262144)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    what = f"{options.preset}-{options.tokens}-{options.seed}"
    done = os.path.join(options.folder, f"complete-{what}")
    if os.path.exists(done):
        return
    os.makedirs(options.folder, exist_ok=True)
    numel = write_checkpoint(options.folder, options.preset, options.seed)
    write_tokens(os.path.join(options.folder, "tokens.bin"), options.tokens, options.seed)
    open(done, "w").close()
    print(f"{options.folder}: {numel} parameters, {options.tokens} tokens")


if __name__ == "__main__":
    main()
