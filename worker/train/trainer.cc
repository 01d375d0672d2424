#include "worker/train/trainer.h"

#include <chrono>
#include <vector>

#include <c10/core/GradMode.h>

#include "proto/contract/error.h"
#include "worker/neox/loss.h"
#include "worker/train/schedule.h"

namespace zerod::train {

Trainer::Trainer(const TrainOptions& options, const neox::BatchShape& shape,
                 const neox::TokenSource& source, ShardedSequential& model)
    : options_(options), shape_(shape), source_(source), model_(model) {}

double Trainer::Accumulate(int64_t step, int64_t micro_batch) {
  const neox::TokenBatch tokens =
      source_.Train(neox::FirstSample(shape_, step, micro_batch), shape_.micro_batch_size());
  const at::Tensor loss = neox::CrossEntropy(model_.Forward(tokens.input), tokens.target);
  loss.backward();
  return loss.item<double>();
}

StepOptions Trainer::MakeStepOptions(int64_t step) const {
  StepOptions options;
  options.optimizer = options_.optimizer;
  options.learning_rate = Schedule{options_.lr, options_.warmup_steps}.RateAt(step);
  options.beta1 = options_.beta1;
  options.beta2 = options_.beta2;
  options.eps = options_.eps;
  options.weight_decay = options_.weight_decay;
  options.max_grad_norm = options_.clip;
  options.gradient_divisor = static_cast<double>(shape_.dp_size * shape_.micro_batches);
  return options;
}

Trainer::Outcome Trainer::Step(int64_t step, const StopSignals& signals) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  StepOptions options = MakeStepOptions(step);
  double loss = 0;
  for (int64_t micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
    loss += Accumulate(step, micro_batch) / options.gradient_divisor;
  }
  options.values = {loss};
  AppendStopVotes(signals.Noted(), options.values);
  const StepResult result = model_.Step(options);
  ZEROD_CHECK(result.values.size() == options.values.size(), result.values.size(), " values");
  const double step_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  const auto tokens = static_cast<double>(shape_.batch * options_.seq);
  Outcome outcome;
  outcome.report = {static_cast<int64_t>(result.step), result.values[0], result.grad_norm,
                    tokens / step_ms * 1000,           step_ms,          result.skipped};
  outcome.stop_signal = CountStopVotes(result.values);
  return outcome;
}

Trainer::Evaluation Trainer::Evaluate(const StopSignals& signals) {
  const c10::NoGradGuard no_grad;
  const int64_t samples = source_.eval_samples();
  double loss_sum = 0;
  double count = 0;
  for (int64_t round = 0; round < neox::EvalRounds(shape_, samples); ++round) {
    const neox::EvalPart part = neox::EvalPartOf(shape_, samples, round);
    const neox::TokenBatch tokens = source_.Eval(part.first, shape_.micro_batch_size());
    const at::Tensor logits = model_.Forward(tokens.input);
    if (part.valid == 0) continue;
    const at::Tensor loss =
        neox::CrossEntropy(logits.narrow(0, 0, part.valid), tokens.target.narrow(0, 0, part.valid));
    loss_sum += loss.item<double>() * static_cast<double>(part.valid);
    count += static_cast<double>(part.valid);
  }
  std::vector<double> values = {loss_sum, count};
  AppendStopVotes(signals.Noted(), values);
  const std::vector<double> sums = model_.Sum(values);
  return {sums[0] / sums[1], CountStopVotes(sums)};
}

}  // namespace zerod::train
