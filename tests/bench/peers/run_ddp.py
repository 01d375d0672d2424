"""torch DistributedDataParallel over Gloo: default bucket sizes, gradients as views of them."""
import ranks
import run
import workload


def build(options):
    import torch
    torch.distributed.init_process_group("gloo")
    whole = workload.make_model(workload.make_config(options.preset))
    workload.load_weights(whole, options.checkpoint)
    model = torch.nn.parallel.DistributedDataParallel(whole, gradient_as_bucket_view=True)
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
    ranks.main(ranks.System("ddp", build), run.parser(__doc__).parse_args())
