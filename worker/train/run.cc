#include "worker/train/run.h"

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/log.h"
#include "client/options.h"
#include "proto/contract/error.h"
#include "worker/neox/checkpoint.h"
#include "worker/neox/config.h"
#include "worker/neox/data.h"
#include "worker/neox/input_file.h"
#include "worker/neox/sampling.h"
#include "worker/sharded/sharded_sequential.h"
#include "worker/train/console.h"
#include "worker/train/figures.h"
#include "worker/train/metrics_log.h"
#include "worker/train/model_builder.h"
#include "worker/train/printable_text.h"
#include "worker/train/process_setup.h"
#include "worker/train/progress.h"
#include "worker/train/stop_signals.h"
#include "worker/train/summary.h"
#include "worker/train/text_sampler.h"
#include "worker/train/trainer.h"

namespace zerod::train {
namespace {

using Clock = std::chrono::steady_clock;

/// All that is read from files. It is read before the daemon is asked for anything, so that bad
/// files are found without it.
struct Inputs {
  neox::Config config;
  std::unique_ptr<neox::TokenSource> tokens;
  std::unique_ptr<neox::Checkpoint> weights;  // null: new weights
};

Inputs ReadInputs(const TrainOptions& options) {
  Inputs inputs;
  inputs.config = neox::ReadConfig(options.model_dir + "/config.json");
  if (options.seq > inputs.config.max_position_embeddings) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("--seq is ", options.seq, ", but the model of ", options.model_dir,
                       " takes at most ", inputs.config.max_position_embeddings,
                       " tokens (max_position_embeddings)"));
  }
  neox::DataOptions data;
  data.path = options.data_path;
  data.format = options.data_is_text ? neox::TokenFormat::kText : neox::TokenFormat::kUint16;
  data.vocab_size = inputs.config.vocab_size;
  data.seq = options.seq;
  data.hold_out = options.eval_every > 0;
  data.shuffle_seed = options.shuffle_seed;
  inputs.tokens = std::make_unique<neox::TokenSource>(data);
  const std::string weights = options.model_dir + "/model.safetensors";
  if (neox::PathExists(weights)) {
    inputs.weights = std::make_unique<neox::Checkpoint>(weights, inputs.config);
  }
  return inputs;
}

neox::BatchShape ShapeOf(const TrainOptions& options) {
  neox::BatchShape shape;
  shape.batch = options.batch;
  shape.dp_size = options.session.world_size;
  shape.dp_index = options.session.rank;
  shape.micro_batches = options.micro_batches;
  neox::CheckBatchShape(shape);
  return shape;
}

/// Everything after the attach.
class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, const Inputs& inputs, Session& session, Console& console,
              MetricsLog& log)
      : options_(options),
        inputs_(inputs),
        session_(session),
        console_(console),
        log_(log),
        model_(session, {.groups = {}, .prefetch_depth = static_cast<int>(options.prefetch_depth)}),
        trainer_(options, ShapeOf(options), *inputs.tokens, model_),
        progress_(console, options.steps, StdoutColumns) {}

  /// Returns the signal that ended it, 0 if none did.
  int Go() {
    const Clock::time_point begin = Clock::now();
    if (session_.info().created) log_.Clear();
    BuildModel(inputs_.config, inputs_.weights.get(), {options_.seed, options_.checkpoint}, model_);
    model_.Seal();
    Introduce(std::chrono::duration<double>(Clock::now() - begin).count());
    if (int signal = Train(); signal != 0) return Stopped(signal);
    if (!options_.sample_prompt) return 0;
    const int signal = Sample();
    return signal == 0 ? 0 : Stopped(signal);
  }

 private:
  void Introduce(double seconds) {
    const SessionInfo& info = session_.info();
    std::vector<LayerPlan> plans;
    for (size_t layer = 0; layer < model_.layer_count(); ++layer) {
      plans.push_back(model_.plan(layer));
    }
    const ModelSize size = MeasureModel(plans, options_.optimizer, info.gradient_slots);
    console_.Line(SummaryText(size, info.mesh, info.node_count));
    const std::string values =
        inputs_.weights != nullptr ? "weights from model.safetensors" : "new weights";
    const int64_t done = static_cast<int64_t>(info.step);
    if (info.created) {
      console_.Line(Concat("job ", info.job_id, " is new: ", values, ", ready in ",
                           FixedText(seconds, 1), " s"));
    } else if (done < options_.steps) {
      console_.Line(
          Concat("job ", info.job_id, " has taken ", done, " steps: training goes on from there"));
    } else {
      console_.Line(Concat("job ", info.job_id, " has taken ", done,
                           " steps: nothing is left to train up to --steps ", options_.steps));
    }
  }

  int Train() {
    auto step = static_cast<int64_t>(session_.info().step);
    bool evaluated = false;
    for (; step < options_.steps; ++step) {
      const Trainer::Outcome outcome = trainer_.Step(step, signals_);
      const StepReport& report = outcome.report;
      log_.Write(StepLine(report));
      progress_.Step(report, Clock::now());
      if (report.skipped) {
        console_.Line(Concat("step ", report.step,
                             " was skipped on all ranks: its gradient norm is ", report.grad_norm,
                             "; no parameter changed"));
      }
      if (outcome.stop_signal != 0) return outcome.stop_signal;
      evaluated = options_.eval_every > 0 && report.step % options_.eval_every == 0;
      if (evaluated) {
        if (int signal = Evaluate(report.step); signal != 0) return signal;
      }
    }
    console_.ClearBar();
    return options_.eval_every > 0 && !evaluated ? Evaluate(step) : 0;
  }

  int Evaluate(int64_t step) {
    const Trainer::Evaluation evaluation = trainer_.Evaluate(signals_);
    log_.Write(EvalLine(step, evaluation.loss));
    progress_.Evaluated(step, evaluation.loss);
    return evaluation.stop_signal;
  }

  int Stopped(int signal) {
    console_.ClearBar();
    console_.Line(Concat("stopped by a signal after step ", model_.steps(), "; job ",
                         session_.info().job_id,
                         " is kept by the daemons and can be attached again"));
    return signal;
  }

  /// Returns the signal that came meanwhile to any rank, else 0.
  int Sample() {
    SampleOptions sample;
    sample.prompt = *options_.sample_prompt;
    sample.tokens = options_.sample_tokens;
    sample.temperature = options_.temperature;
    sample.seed = options_.seed;
    sample.context = options_.seq;
    const std::string text = SampleText(sample, model_);
    // Ends the gathers: nobody detaches while another rank still needs a layer.
    std::vector<double> votes;
    AppendStopVotes(signals_.Noted(), votes);
    votes = model_.Sum(votes);
    console_.Line("sample:");
    console_.Block(PrintableText(text));
    return CountStopVotes(votes);
  }

  const TrainOptions& options_;
  const Inputs& inputs_;
  Session& session_;
  Console& console_;
  MetricsLog& log_;
  ShardedSequential model_;
  Trainer trainer_;
  Progress progress_;
  StopSignals signals_;
};

int RunAttached(const TrainOptions& options, const Inputs& inputs, Session& session,
                Console& console, MetricsLog& log) {
  try {
    const int signal = TrainingRun(options, inputs, session, console, log).Go();
    session.Detach(options.drop && signal == 0);
    return signal == 0 ? 0 : 128 + signal;
  } catch (const Error& error) {
    console.ClearBar();
    // Who was there and isn't any more is a lost peer, not a wrong address.
    if (error.code() != ErrorCode::kUnavailable) throw;
    throw Error(ErrorCode::kAborted, error.what());
  } catch (...) {
    console.ClearBar();
    throw;
  }
}

}  // namespace

int Run(const TrainOptions& options) {
  SetUpProcess(options.threads);
  CheckOptions(options.session);
  ShapeOf(options);
  const Inputs inputs = ReadInputs(options);
  const bool shows = options.session.rank == 0;
  Console console(shows ? StdoutStyle() : ConsoleStyle::kSilent, std::cout);
  MetricsLog log(shows ? options.log_path : "");
  SessionOptions session_options = options.session;
  session_options.on_warning = [&console](const std::string& warning) {
    console.ClearBar();
    LogWarning(warning);
  };
  const std::unique_ptr<Session> session = Session::Connect(session_options);
  return RunAttached(options, inputs, *session, console, log);
}

}  // namespace zerod::train
