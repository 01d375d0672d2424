"""torch FSDP2 (fully_shard) over Gloo.

One group per transformer layer, one for the embedding, one for the final norm with the head; when
to reshard is left at torch's default. No rank ever holds the whole model: parameters are born on
the meta device and each rank reads its own rows from the checkpoint.
"""
import ranks
import run
import workload


def imports():
    import torch.distributed.fsdp  # noqa: F401
    import torch.distributed.tensor  # noqa: F401


def shard(model, mesh):
    from torch.distributed.fsdp import fully_shard
    body = model.gpt_neox
    tail = [body.final_layer_norm, model.get_output_embeddings()]
    for group in (*body.layers, body.embed_in, tail, model):
        fully_shard(group, mesh=mesh)


def fill(model, options):
    """Gives a sharded meta model its memory, buffers and this rank's rows of every parameter."""
    import torch
    model.to_empty(device="cpu")
    rotary = model.gpt_neox.rotary_emb
    model.gpt_neox.rotary_emb = type(rotary)(model.config)  # holds the only buffers
    if any(not name.startswith("gpt_neox.rotary_emb") for name, _ in model.named_buffers()):
        raise RuntimeError("the model has buffers that would be left without values")
    with torch.no_grad(), workload.open_weights(options.checkpoint) as weights:
        for name, parameter in model.named_parameters():
            local = parameter.to_local()
            rows_per_rank = -(-parameter.shape[0] // options.world)
            first = min(options.rank * rows_per_rank, parameter.shape[0])
            rows = weights.get_slice(workload.name_in_file(name))[first:first + local.shape[0]]
            local.copy_(rows)


def build(options):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    torch.distributed.init_process_group("gloo")
    with torch.device("meta"):
        model = workload.make_model(workload.make_config(options.preset))
    shard(model, init_device_mesh("cpu", (options.world,)))
    fill(model, options)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **workload.ADAM)

    def step(inputs, targets):
        loss = workload.loss_of(model, inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.CLIP)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


if __name__ == "__main__":
    ranks.main(ranks.System("fsdp2", build, imports), run.parser(__doc__).parse_args())
