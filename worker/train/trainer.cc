#include "worker/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include <c10/core/GradMode.h>

#include "proto/contract/error.h"
#include "worker/neox/loss.h"
#include "worker/train/schedule.h"

namespace zerod::train {

neox::BatchShape ShapeOf(const TrainOptions& options) {
  neox::BatchShape shape;
  shape.batch = options.batch;
  shape.dp_size = options.session.world_size;
  shape.dp_index = options.session.rank;
  shape.micro_batches = options.micro_batches;
  neox::CheckBatchShape(shape);
  return shape;
}

DataPlace PlaceOf(const TrainOptions& options, const neox::TokenSource& source) {
  return {options.batch, options.seq, source.train_length(), options.shuffle_seed};
}

Trainer::Trainer(const TrainOptions& options, const neox::TokenSource& source,
                 neox::ForwardContext& forward, ShardedSequential& model)
    : options_(options),
      shape_(ShapeOf(options)),
      source_(source),
      forward_(forward),
      model_(model) {}

double Trainer::Accumulate(int64_t step, int64_t micro_batch) {
  const neox::TokenBatch tokens =
      source_.Train(neox::FirstSample(shape_, step, micro_batch), shape_.micro_batch_size());
  forward_.BeginTraining({options_.seed, step, micro_batch, shape_.dp_index});
  const at::Tensor loss = neox::CrossEntropy(model_.Forward(tokens.input), tokens.target);
  loss.backward();
  return loss.item<double>();
}

StepOptions Trainer::MakeStepOptions(int64_t step, int64_t counted) const {
  StepOptions options;
  options.optimizer = options_.optimizer;
  options.learning_rate = Schedule{options_.lr, options_.warmup_steps, options_.decay,
                                   options_.min_lr, options_.decay_steps}
                              .RateAt(step);
  options.beta1 = options_.beta1;
  options.beta2 = options_.beta2;
  options.eps = options_.eps;
  options.weight_decay = options_.weight_decay;
  options.max_grad_norm = options_.clip;
  // A micro-batch's loss is a sum divided by the number of its positions; what makes the mean over
  // the positions of the whole step that count is the rest.
  options.gradient_divisor = static_cast<double>(std::max<int64_t>(counted, 1)) /
                             static_cast<double>(shape_.micro_batch_size() * options_.seq);
  options.private_state = PlaceOf(options_, source_).ToText();
  return options;
}

Trainer::Outcome Trainer::Step(int64_t step, const StopSignals& signals) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  // Every rank reads the step's targets to count them, so that nobody asks the others.
  const int64_t counted = source_.CountTrainTargets(step * shape_.batch, shape_.batch);
  StepOptions options = MakeStepOptions(step, counted);
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
  outcome.report.step = static_cast<int64_t>(result.step);
  outcome.report.loss = counted > 0 ? result.values[0] : std::numeric_limits<double>::quiet_NaN();
  outcome.report.grad_norm = result.grad_norm;
  outcome.report.tokens_per_s = tokens / step_ms * 1000;
  outcome.report.step_ms = step_ms;
  outcome.report.skipped = result.skipped;
  outcome.report.uncounted = counted == 0;
  outcome.stop_signal = CountStopVotes(result.values);
  return outcome;
}

Trainer::Evaluation Trainer::Evaluate(const StopSignals& signals) {
  const c10::NoGradGuard no_grad;
  const int64_t samples = source_.eval_samples();
  forward_.BeginEvaluation();
  double loss_sum = 0;
  double count = 0;
  for (int64_t round = 0; round < neox::EvalRounds(shape_, samples); ++round) {
    const neox::EvalPart part = neox::EvalPartOf(shape_, samples, round);
    const neox::TokenBatch tokens = source_.Eval(part.first, shape_.micro_batch_size());
    const at::Tensor logits = model_.Forward(tokens.input);
    if (part.valid == 0) continue;
    const at::Tensor target = tokens.target.narrow(0, 0, part.valid);
    const at::Tensor loss = neox::CrossEntropy(logits.narrow(0, 0, part.valid), target);
    loss_sum += loss.item<double>() * static_cast<double>(target.numel());
    count += static_cast<double>(neox::CountTargets(target));
  }
  std::vector<double> values = {loss_sum, count};
  AppendStopVotes(signals.Noted(), values);
  const std::vector<double> sums = model_.Sum(values);
  // The file had targets when it was opened.
  if (sums[1] == 0) {
    throw Error(ErrorCode::kDataLoss,
                "no token of the held-out data counts, so nothing could be evaluated; was its file "
                "changed?");
  }
  return {sums[0] / sums[1], CountStopVotes(sums)};
}

}  // namespace zerod::train
