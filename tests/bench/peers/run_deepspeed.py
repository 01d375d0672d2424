"""DeepSpeed ZeRO stage 3 in float32 on its CPU accelerator, over Gloo, with DeepSpeedCPUAdam.

--sizes default keeps DeepSpeed's own stage-3 sizes. They exceed these models, so what the forward
pass gathers stays whole until the backward pass has used it. --sizes layer allows about one layer
at a time, which makes it release parameters after use as FSDP2 does, at a higher cost.
"""
import ranks
import run
import workload


def imports():
    import deepspeed  # noqa: F401


def configuration(options):
    zero = {"stage": 3}
    if options.sizes == "layer":
        layer_numel = 12 * workload.PRESETS[options.preset]["hidden_size"] ** 2
        zero |= {"stage3_max_live_parameters": layer_numel,
                 "stage3_prefetch_bucket_size": layer_numel,
                 "stage3_max_reuse_distance": 0,
                 "stage3_param_persistence_threshold": 0,
                 "reduce_bucket_size": 2 * layer_numel}
    return {"zero_optimization": zero,
            "train_micro_batch_size_per_gpu": options.micro_batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": workload.CLIP,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False}


def load(model, options):
    """Rank 0 writes each gathered parameter; DeepSpeed sends the shards when it lets go of it."""
    import deepspeed
    with workload.open_weights(options.checkpoint) as weights:
        for name, parameter in model.named_parameters():
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                if options.rank == 0:
                    parameter.data.copy_(weights.get_tensor(workload.name_in_file(name)))


def build(options):
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    deepspeed.init_distributed("gloo")
    settings = configuration(options)
    with deepspeed.zero.Init(config_dict_or_path=settings):
        model = workload.make_model(workload.make_config(options.preset))
    load(model, options)
    optimizer = DeepSpeedCPUAdam(model.parameters(), adamw_mode=True, **workload.ADAM)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)[0]

    def step(inputs, targets):
        loss = workload.loss_of(engine, inputs, targets)
        engine.backward(loss)
        engine.step()
        return loss.item()

    return step


def main():
    parser = run.parser(__doc__)
    parser.add_argument("--sizes", default="default", choices=["default", "layer"])
    options = parser.parse_args()
    ranks.main(ranks.System("deepspeed", build, imports, package="deepspeed"), options)


if __name__ == "__main__":
    main()
