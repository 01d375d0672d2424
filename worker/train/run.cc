#include "worker/train/run.h"

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/log.h"
#include "client/options.h"
#include "proto/contract/error.h"
#include "proto/contract/printable_text.h"
#include "worker/neox/forward_context.h"
#include "worker/sharded/sharded_sequential.h"
#include "worker/train/console.h"
#include "worker/train/exporter.h"
#include "worker/train/figures.h"
#include "worker/train/metrics_log.h"
#include "worker/train/model_builder.h"
#include "worker/train/process_setup.h"
#include "worker/train/progress.h"
#include "worker/train/run_inputs.h"
#include "worker/train/stop_signals.h"
#include "worker/train/summary.h"
#include "worker/train/text_sampler.h"
#include "worker/train/trainer.h"

namespace zerod::train {
namespace {

using Clock = std::chrono::steady_clock;

/// Everything after the attach.
class TrainingRun {
 public:
  TrainingRun(const RunInputs& inputs, Session& session, Console& console, MetricsLog& log)
      : options_(inputs.options),
        inputs_(inputs),
        session_(session),
        console_(console),
        log_(log),
        forward_(std::make_shared<neox::ForwardContext>()),
        model_(session, {.groups = GroupsOf(options_.rules),
                         .prefetch_depth = static_cast<int>(options_.prefetch_depth)}),
        trainer_(options_, *inputs.tokens, *forward_, model_),
        progress_(console, options_.steps, EpochsPerStep(inputs), StdoutColumns) {}

  /// Returns the signal that ended it, 0 if none did.
  int Go() {
    const Clock::time_point begin = Clock::now();
    if (session_.info().created) log_.Clear();
    BuildModel(inputs_.config, inputs_.weights.get(),
               {options_.seed, options_.checkpoint, options_.dtype, forward_}, model_);
    model_.Seal();
    Introduce(SecondsSince(begin));
    if (int signal = Train(); signal != 0) return Stopped(signal);
    Conclude();
    if (!options_.export_dir.empty()) WriteExport();
    if (inputs_.prompt.empty()) return 0;
    const int signal = Sample();
    return signal == 0 ? 0 : Stopped(signal);
  }

 private:
  static double SecondsSince(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  static double EpochsPerStep(const RunInputs& inputs) {
    return static_cast<double>(inputs.options.batch * inputs.options.seq) /
           static_cast<double>(inputs.tokens->epoch_tokens());
  }

  void Introduce(double seconds) {
    const SessionInfo& info = session_.info();
    std::vector<LayerPlan> plans;
    for (size_t layer = 0; layer < model_.layer_count(); ++layer) {
      plans.push_back(model_.plan(layer));
    }
    const ModelSize size = MeasureModel(plans, {.optimizer = options_.optimizer,
                                                .gradient_slots = info.gradient_slots,
                                                .prefetch_depth = options_.prefetch_depth,
                                                .window_limit_bytes = info.window_bytes,
                                                .node_count = info.node_count});
    console_.Block(SummaryText(size, info.mesh, info.node_count));
    const std::string values =
        inputs_.weights != nullptr ? "weights of " + options_.model_dir : "new weights";
    const int64_t done = static_cast<int64_t>(info.step);
    if (info.created) {
      console_.Line(Concat("job ", info.job_id, " is new: ", values, ", ready in ",
                           FixedText(seconds, 1), " s"));
    } else if (done < options_.steps) {
      console_.Line(
          Concat("job ", info.job_id, " has taken ", done,
                 " steps: training goes on from there, in epoch ",
                 1 + static_cast<int64_t>(static_cast<double>(done) * EpochsPerStep(inputs_))));
    } else {
      console_.Line(Concat("job ", info.job_id, " has taken ", done,
                           " steps: nothing is left to train up to --steps ", options_.steps));
    }
    if (done >= options_.steps) return;
    const std::string difference =
        PlaceOf(options_, *inputs_.tokens).DifferenceFrom(info.private_state);
    if (!difference.empty()) {
      console_.Line(Concat("other data than before: ", difference,
                           "; its place is that of a job that always had these"));
    }
  }

  int Train() {
    const Clock::time_point begin = Clock::now();
    auto step = static_cast<int64_t>(session_.info().step);
    result_.first_step = step;
    int signal = 0;
    bool evaluated = false;
    for (; step < options_.steps && signal == 0; ++step) {
      signal = Step(step);
      evaluated = options_.eval_every > 0 && (step + 1) % options_.eval_every == 0;
      if (evaluated && signal == 0) signal = Evaluate(step + 1);
    }
    console_.ClearBar();
    if (inputs_.evaluates && !evaluated && signal == 0) signal = Evaluate(step);
    result_.last_step = step;
    result_.seconds = SecondsSince(begin);
    return signal;
  }

  int Step(int64_t step) {
    const Trainer::Outcome outcome = trainer_.Step(step, signals_);
    const StepReport& report = outcome.report;
    log_.Write(StepLine(report));
    progress_.Step(report, Clock::now());
    if (!report.uncounted) result_.loss = report.loss;
    result_.tokens += options_.batch * options_.seq;
    if (report.skipped) {
      console_.Line(Concat("step ", report.step, " was skipped on all ranks: its gradient norm is ",
                           report.grad_norm, "; no parameter changed"));
    }
    if (report.uncounted) {
      console_.Line(Concat("step ", report.step,
                           " has no loss and a gradient of zero: each of its ",
                           "tokens is the end of a document"));
    }
    return outcome.stop_signal;
  }

  int Evaluate(int64_t step) {
    const Trainer::Evaluation evaluation = trainer_.Evaluate(signals_);
    log_.Write(EvalLine(step, evaluation.loss));
    progress_.Evaluated(step, evaluation.loss);
    result_.eval_loss = evaluation.loss;
    if (!result_.best_eval_loss || evaluation.loss < *result_.best_eval_loss) {
      result_.best_eval_loss = evaluation.loss;
      result_.best_step = step;
    }
    return evaluation.stop_signal;
  }

  void Conclude() {
    if (result_.first_step == result_.last_step && !result_.eval_loss) return;  // only sampled
    console_.Block(ResultText(result_));
    if (!options_.log_path.empty()) console_.Line("log of every step: " + options_.log_path);
  }

  void WriteExport() {
    const Clock::time_point begin = Clock::now();
    const std::vector<std::string> not_finite =
        Export({.folder = options_.export_dir,
                .config_path = options_.model_dir + "/config.json",
                .source = inputs_.weights.get(),
                .dtype = options_.export_dtype},
               inputs_.config, model_);
    if (!not_finite.empty()) LogWarning(NotFiniteText(not_finite));
    console_.Line(Concat("exported to ", options_.export_dir, " in ",
                         FixedText(SecondsSince(begin), 1), " s"));
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
    sample.tokens = options_.sample.tokens;
    sample.temperature = options_.sample.temperature;
    sample.top_k = options_.sample.top_k;
    sample.top_p = options_.sample.top_p;
    sample.seed = options_.seed;
    sample.end_token = options_.document_end;
    // A model that began here has never seen a position beyond those of its samples.
    if (inputs_.weights == nullptr) sample.context = options_.seq;
    if (inputs_.vocabulary != nullptr) {
      // The model's vocabulary may be padded; what lies beyond ours can't be text.
      sample.vocabulary = static_cast<int64_t>(inputs_.vocabulary->tokens().size());
    }
    const std::vector<int64_t> ids =
        SampleTokens(inputs_.prompt, sample, SampleModelOf(inputs_.config, *forward_, model_));
    // Ends the gathers: nobody detaches while another rank still needs a layer.
    std::vector<double> votes;
    AppendStopVotes(signals_.Noted(), votes);
    votes = model_.Sum(votes);
    ShowSample(ids);
    return CountStopVotes(votes);
  }

  void ShowSample(const std::vector<int64_t>& ids) {
    console_.Line("sample:");
    std::vector<int64_t> all = inputs_.prompt;
    all.insert(all.end(), ids.begin(), ids.end());
    static const std::vector<std::string> kNoText;
    console_.Block(PrintableText(
        DecodeTokens(all, inputs_.vocabulary != nullptr ? inputs_.vocabulary->tokens() : kNoText)));
  }

  const TrainOptions& options_;
  const RunInputs& inputs_;
  Session& session_;
  Console& console_;
  MetricsLog& log_;
  std::shared_ptr<neox::ForwardContext> forward_;  // shared with the layers
  ShardedSequential model_;
  Trainer trainer_;
  Progress progress_;
  StopSignals signals_;
  RunResult result_;
};

int RunAttached(const RunInputs& inputs, Session& session, Console& console, MetricsLog& log) {
  try {
    const int signal = TrainingRun(inputs, session, console, log).Go();
    session.Detach(inputs.options.drop && signal == 0);
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
  const RunInputs inputs = RunInputs::Read(options);
  const bool shows = options.session.rank == 0;
  Console console(shows ? StdoutStyle() : ConsoleStyle::kSilent, std::cout);
  MetricsLog log(shows ? options.log_path : "");
  SessionOptions session_options = options.session;
  session_options.on_warning = [&console](const std::string& warning) {
    console.ClearBar();
    LogWarning(warning);
  };
  const std::unique_ptr<Session> session = Session::Connect(session_options);
  return RunAttached(inputs, *session, console, log);
}

}  // namespace zerod::train
