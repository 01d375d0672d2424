#include "worker/train/train_options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <unistd.h>

#include "proto/contract/default_socket.h"
#include "proto/contract/error.h"

namespace zerod::train {
namespace {

constexpr int64_t kThreadsMax = 1024;

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// OMP_NUM_THREADS may be a list, one entry for each level of nesting; ours has one level.
int64_t ReadThreads(const std::string& text) {
  if (text.empty()) return 1;
  int64_t threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  const bool whole = end == text.data() + text.size() || *end == ',';
  if (error != std::errc() || !whole || threads < 1 || threads > kThreadsMax) {
    Refuse(Concat("the environment variable OMP_NUM_THREADS is \"", text,
                  "\"; it must be a number from 1 to ", kThreadsMax));
  }
  return threads;
}

void RequireAtLeast(const char* option, int64_t value, int64_t lowest) {
  if (value < lowest) Refuse(Concat(option, " is ", value, "; it must be at least ", lowest));
}

void RequireBetween(const char* option, double value, double lowest, double highest) {
  if (std::isfinite(value) && value >= lowest && value <= highest) return;
  if (highest == std::numeric_limits<double>::max()) {
    Refuse(Concat(option, " is ", value, "; it must be a number from ", lowest, " on"));
  }
  Refuse(Concat(option, " is ", value, "; it must be a number from ", lowest, " to ", highest));
}

/// The parser and the places that it fills.
class Parser {
 public:
  Parser(const TrainEnvironment& environment, const std::string& version)
      : app_("zerod-train: trains a GPT-NeoX model whose state lives in zerod", "zerod-train") {
    options_.session = environment.session;
    options_.session.program = "zerod-train";
    options_.threads = environment.threads;
    app_.set_version_flag("--version", "zerod-train " + version);
    AddData();
    AddOptimizer();
    AddOutput();
    AddJob();
    AddTuning();
  }

  TrainRequest Parse(const std::vector<std::string>& arguments) {
    try {
      app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    } catch (const CLI::CallForHelp&) {
      return {app_.help(), {}};
    } catch (const CLI::CallForVersion& call) {
      return {std::string(call.what()) + "\n", {}};
    } catch (const CLI::ParseError& error) {
      Refuse(Concat(error.what(), "; zerod-train --help lists the options"));
    }
    Finish();
    Check();
    return {std::nullopt, options_};
  }

 private:
  template <typename Value>
  CLI::Option* Add(const char* name, Value& value, const char* type, const std::string& help) {
    return app_.add_option(name, value, help)->type_name(type)->group(group_);
  }

  void AddData() {
    group_ = "Model and data";
    Add("--model", options_.model_dir, "DIR",
        "Folder with config.json; weights from model.safetensors if it is there, else new ones");
    Add("--text", text_path_, "FILE", "Train on a text whose bytes are the tokens");
    Add("--tokens", tokens_path_, "FILE", "Train on little-endian 16-bit tokens");
    Add("--batch", options_.batch, "N", "Samples per step over all ranks [8]");
    Add("--seq", options_.seq, "N", "Tokens per sample [128]");
    Add("--steps", options_.steps, "N", "Steps to have been taken in the end [100]");
    Add("--micro-batches", options_.micro_batches, "N",
        "Parts of a rank's batch whose gradients are accumulated [1]");
    Add("--shuffle", shuffle_seed_, "SEED", "Permute the samples [in file order]");
    Add("--seed", options_.seed, "SEED", "Of initial weights and of the sample [0]");
  }

  void AddOptimizer() {
    group_ = "Optimizer";
    Add("--optimizer", optimizer_, "NAME", "adamw or sgd [adamw]");
    Add("--lr", options_.lr, "RATE", "Learning rate after the warm-up [0.001]");
    Add("--warmup", options_.warmup_steps, "N", "Steps in which the rate rises linearly [0]");
    Add("--weight-decay", options_.weight_decay, "X", "Decoupled, on every tensor [0]");
    Add("--clip", options_.clip, "NORM", "Largest global gradient norm; 0: any [0]");
    Add("--beta1", options_.beta1, "X", "Of AdamW [0.9]");
    Add("--beta2", options_.beta2, "X", "Of AdamW [0.95]");
    Add("--eps", options_.eps, "X", "Of AdamW [1e-8]");
  }

  void AddOutput() {
    group_ = "Output";
    Add("--eval-every", options_.eval_every, "N",
        "Hold out the last tenth and evaluate it every N steps and at the end; 0: don't [0]");
    Add("--log", options_.log_path, "FILE", "JSON lines: one per step and per evaluation");
    Add("--sample", sample_prompt_, "TEXT", "At the end print what the model makes of TEXT");
    Add("--sample-tokens", options_.sample_tokens, "N", "Length of that sample [200]");
    Add("--temperature", options_.temperature, "X", "Of that sample; 0: most likely token [0.8]");
  }

  void AddJob() {
    group_ = "Job (RANK, WORLD_SIZE and LOCAL_RANK come from the environment)";
    Add("--job", options_.session.job_id, "ID", "What the state belongs to [ZEROD_JOB, default]");
    Add("--attach", attach_, "MODE", "create, attach or attach-or-create [attach-or-create]");
    app_.add_flag("--drop", options_.drop, "Give the job's state up at the end [keep it]")
        ->group(group_);
    Add("--socket", options_.session.socket_path, "PATH",
        "Socket of this node's zerod [ZEROD_SOCKET]");
  }

  void AddTuning() {
    group_ = "Performance";
    Add("--prefetch", options_.prefetch_depth, "N", "Layers asked for before they are needed [1]");
    app_.add_flag("--checkpoint", options_.checkpoint,
                  "Recompute activations in the backward instead of keeping them")
        ->group(group_);
    Add("--window-bytes", window_bytes_, "BYTES",
        "Bound on gathered layers in use; takes KiB, MiB, GiB; 0: none [0]");
    Add("--cache-bytes", cache_bytes_, "BYTES",
        "Bound on gathered layers kept for reuse [the daemon's]");
    Add("--threads", options_.threads, "N", "Of each rank's computation [OMP_NUM_THREADS, 1]");
  }

  static int64_t ReadBytes(const char* option, const std::string& given) {
    std::string text = given;
    uint64_t bytes = 0;
    try {
      CLI::AsSizeValue(false)(text);
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
      if (error == std::errc() && end == text.data() + text.size() &&
          bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return static_cast<int64_t>(bytes);
      }
    } catch (const CLI::Error&) {
    }
    Refuse(Concat(option, " is \"", given, "\"; give bytes, with KiB, MiB or GiB if you like"));
  }

  void Finish() {
    if (options_.model_dir.empty()) Refuse("--model is missing; give a folder with a config.json");
    if (text_path_.empty() == tokens_path_.empty()) {
      Refuse("give the training data by either --text or --tokens");
    }
    options_.data_is_text = !text_path_.empty();
    options_.data_path = options_.data_is_text ? text_path_ : tokens_path_;
    if (app_.count("--shuffle") > 0) options_.shuffle_seed = shuffle_seed_;
    if (app_.count("--sample") > 0) options_.sample_prompt = sample_prompt_;
    if (app_.count("--window-bytes") > 0) {
      options_.session.window_bytes = ReadBytes("--window-bytes", window_bytes_);
    }
    if (app_.count("--cache-bytes") > 0) {
      options_.session.cache_bytes = ReadBytes("--cache-bytes", cache_bytes_);
    }
    if (optimizer_ == "sgd") options_.optimizer = OptimizerKind::kSgd;
    if (optimizer_ != "sgd" && optimizer_ != "adamw") {
      Refuse(Concat("--optimizer is \"", optimizer_, "\"; give adamw or sgd"));
    }
    FinishAttach();
  }

  void FinishAttach() {
    static constexpr std::pair<std::string_view, AttachMode> kModes[] = {
        {"create", AttachMode::kCreate},
        {"attach", AttachMode::kAttach},
        {"attach-or-create", AttachMode::kAttachOrCreate}};
    for (const auto& [name, mode] : kModes) {
      if (attach_ != name) continue;
      options_.session.mode = mode;
      return;
    }
    Refuse(Concat("--attach is \"", attach_, "\"; give create, attach or attach-or-create"));
  }

  void Check() const {
    constexpr double kAny = std::numeric_limits<double>::max();
    RequireAtLeast("--batch", options_.batch, 1);
    RequireAtLeast("--seq", options_.seq, 1);
    RequireAtLeast("--steps", options_.steps, 0);
    RequireAtLeast("--micro-batches", options_.micro_batches, 1);
    RequireAtLeast("--warmup", options_.warmup_steps, 0);
    RequireAtLeast("--eval-every", options_.eval_every, 0);
    RequireAtLeast("--sample-tokens", options_.sample_tokens, 1);
    RequireAtLeast("--prefetch", options_.prefetch_depth, 0);
    RequireAtLeast("--threads", options_.threads, 1);
    RequireBetween("--lr", options_.lr, 0, kAny);
    RequireBetween("--weight-decay", options_.weight_decay, 0, kAny);
    RequireBetween("--clip", options_.clip, 0, kAny);
    RequireBetween("--temperature", options_.temperature, 0, kAny);
    RequireBetween("--beta1", options_.beta1, 0, 1);
    RequireBetween("--beta2", options_.beta2, 0, 1);
    RequireBetween("--eps", options_.eps, 0, kAny);
    if (options_.threads > kThreadsMax) {
      Refuse(Concat("--threads is ", options_.threads, "; at most ", kThreadsMax, " are possible"));
    }
    if (options_.prefetch_depth > std::numeric_limits<int>::max()) {
      Refuse(Concat("--prefetch is ", options_.prefetch_depth, "; the model has fewer layers"));
    }
    if (options_.sample_prompt && !options_.data_is_text) {
      Refuse("--sample needs --text: how the tokens of --tokens become text isn't known");
    }
  }

  CLI::App app_;
  std::string group_;
  TrainOptions options_;
  std::string text_path_;
  std::string tokens_path_;
  uint64_t shuffle_seed_ = 0;
  std::string sample_prompt_;
  std::string optimizer_ = "adamw";
  std::string attach_ = "attach-or-create";
  std::string window_bytes_;
  std::string cache_bytes_;
};

}  // namespace

TrainEnvironment TrainEnvironment::FromProcess() {
  TrainEnvironment environment;
  environment.session = SessionOptions::FromEnvironment();
  if (environment.session.socket_path.empty()) {
    environment.session.socket_path = DefaultSocketPath(Variable("XDG_RUNTIME_DIR"), getuid());
  }
  environment.threads = ReadThreads(Variable("OMP_NUM_THREADS"));
  return environment;
}

TrainRequest ReadTrainOptions(const std::vector<std::string>& arguments,
                              const TrainEnvironment& environment, const std::string& version) {
  return Parser(environment, version).Parse(arguments);
}

}  // namespace zerod::train
