"""The compute limit: every rank trains its own copy alone, with no communication in the steps.

--ranks N runs N independent processes side by side, each on its own rank's data. --emulate N is
instead one process that computes what N ranks compute together, as the mean of their gradients;
its losses are the reference for all systems. --norm float64 sums the gradient norm in double
precision. Torch's own clipping sums in float32, which moves the losses by about 1e-4 in few steps.
"""
import ranks
import run
import workload


def clip_in_float64(parameters):
    norm = sum(p.grad.double().pow(2).sum().item() for p in parameters) ** 0.5
    factor = min(1.0, workload.CLIP / (norm + workload.CLIP_EPS))
    for parameter in parameters:
        parameter.grad.mul_(factor)


def build(options):
    import torch
    model = workload.make_model(workload.make_config(options.preset))
    workload.load_weights(model, options.checkpoint)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, fused=True, **workload.ADAM)

    def update():
        if options.norm == "float64":
            clip_in_float64(parameters)
        else:
            torch.nn.utils.clip_grad_norm_(parameters, workload.CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def step_alone(inputs, targets):
        loss = workload.loss_of(model, inputs, targets)
        loss.backward()
        update()
        return loss.item()

    return emulation(model, update, options) if options.emulate else step_alone


def emulation(model, update, options):
    """A step that takes the micro-batches of all ranks in turn, ignoring what it is given."""
    world = options.emulate
    everyone = type(options)(**{**vars(options), "world": world})
    tokens = workload.TokenFile(options.tokens)
    steps_done = 0

    def step(*_):
        nonlocal steps_done
        total = 0.0
        for rank in range(world):
            inputs, targets = tokens.batch(steps_done, rank, everyone)
            part = workload.loss_of(model, inputs, targets) / world
            part.backward()
            total += part.item()
        update()
        steps_done += 1
        return total

    return step


def main():
    parser = run.parser(__doc__)
    parser.add_argument("--emulate", type=int, default=0, metavar="N")
    parser.add_argument("--norm", default="float32", choices=["float32", "float64"])
    options = parser.parse_args()
    if options.emulate and options.world != 1:
        parser.error("--emulate is one process: give --ranks 1")
    name = "emulation" if options.emulate else "limit"
    ranks.main(ranks.System(name, build, batches=options.emulate or 1), options)


if __name__ == "__main__":
    main()
