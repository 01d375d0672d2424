#include "worker/train/train_options.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <unistd.h>

#include "proto/contract/default_socket.h"
#include "proto/contract/error.h"
#include "worker/train/train_checks.h"
#include "worker/train/vocabulary.h"

namespace zerod::train {
namespace {

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

constexpr int64_t kNumberMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kTokenMax = std::numeric_limits<uint32_t>::max();

struct Limits {
  int64_t lowest = 0;
  int64_t highest = 0;
};

template <typename Number>
bool IsNumber(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

template <typename Number>
std::string NotAllowed(const std::string& text, Number lowest, Number highest) {
  return Concat("'", text, "' is not allowed; give a whole number from ", lowest, " to ", highest);
}

/// Of an option whose value is a text.
std::string FaultOfEmpty(const std::string& text) {
  return text.empty() ? "an empty text is not allowed" : "";
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
    CheckTrainOptions(options_);
    return {std::nullopt, options_};
  }

 private:
  template <typename Value>
  CLI::Option* Add(const char* name, Value& value, const char* type, const std::string& help) {
    return app_.add_option(name, value, help)->type_name(type)->group(group_);
  }

  /// Numbers are checked as text: the parser takes what is too large for the largest there is.
  void AddNumber(const char* name, int64_t& value, const char* type, const std::string& help,
                 const Limits& limits) {
    Add(name, value, type, help)->check([limits](const std::string& text) {
      int64_t number = 0;
      const bool fits =
          IsNumber(text, number) && number >= limits.lowest && number <= limits.highest;
      return fits ? "" : NotAllowed(text, limits.lowest, limits.highest);
    });
  }

  void AddSeed(const char* name, uint64_t& value, const char* type, const std::string& help) {
    Add(name, value, type, help)->check([](const std::string& text) {
      uint64_t number = 0;
      return IsNumber(text, number)
                 ? ""
                 : NotAllowed(text, uint64_t{0}, std::numeric_limits<uint64_t>::max());
    });
  }

  /// CheckTrainOptions knows the limits. The parser takes an empty text for 0.
  CLI::Option* AddReal(const char* name, double& value, const char* type, const std::string& help) {
    return Add(name, value, type, help)->check([](const std::string& text) {
      double number = 0;
      return IsNumber(text, number) ? "" : Concat("'", text, "' is not allowed; give a number");
    });
  }

  void AddText(const char* name, std::string& value, const char* type, const std::string& help) {
    Add(name, value, type, help)->check(FaultOfEmpty);
  }

  void Repeated(const char* name, std::vector<std::string>& values, const char* type,
                const std::string& help) {
    // One value each time it is named, so that a pattern may begin with anything.
    Add(name, values, type, help)
        ->expected(1)
        ->take_all()
        ->allow_extra_args(false)
        ->check(FaultOfEmpty);
  }

  void Flag(const char* name, bool& value, const std::string& help) {
    app_.add_flag(name, value, help)->group(group_);
  }

  void AddData() {
    group_ = "Model and data";
    AddText("--model", options_.model_dir, "DIR",
            "Folder with config.json; weights from model.safetensors, or from shards with "
            "model.safetensors.index.json, if they are there, else new ones");
    AddText("--text", text_path_, "FILE", "Train on a text whose bytes are the tokens");
    AddText("--tokens", tokens_path_, "FILE",
            "Train on little-endian 16- or 32-bit tokens (deploy/tokenize.py makes them)");
    Add("--token-bytes", options_.token_bytes, "2|4",
        "Size of a token [what FILE.json says; without it 2, or 4 for a vocabulary above 65536]")
        ->check([](const std::string& text) {
          return text == "2" || text == "4" ? ""
                                            : Concat("'", text, "' is not allowed; give 2 or 4");
        });
    AddText("--eval-text,--eval-tokens", options_.eval_path, "FILE",
            "Evaluate this, of the kind of the training data [its last tenth, see --eval-every]");
    AddNumber("--document-end", document_end_, "ID",
              "Token behind each document [what FILE.json says]", {0, kTokenMax});
    Flag("--mask-documents", options_.mask_documents,
         "Don't ask for the token after a document's end: such positions don't count in loss and "
         "gradient, which are means over those that do");
    AddNumber("--batch", options_.batch, "N", "Samples per step over all ranks [8]",
              {1, kNumberMax});
    AddNumber("--seq", options_.seq, "N", "Tokens per sample [128]", {1, kNumberMax});
    AddNumber("--steps", options_.steps, "N", "Steps to have been taken in the end [100]",
              {0, kStepsMax});
    AddReal("--epochs", epochs_, "X", "Passes over the data, in place of --steps")
        ->excludes("--steps");
    AddNumber("--micro-batches", options_.micro_batches, "N",
              "Parts of a rank's batch whose gradients are accumulated [1]", {1, kNumberMax});
    AddSeed("--shuffle", shuffle_seed_, "SEED",
            "Permute the samples, each pass otherwise [in file order]");
    AddSeed("--seed", options_.seed, "SEED", "Of initial weights, dropout and the sample [0]");
  }

  void AddOptimizer() {
    group_ = "Optimizer";
    Add("--optimizer", optimizer_, "NAME", "adamw or sgd [adamw]");
    AddReal("--lr", options_.lr, "RATE", "Learning rate after the warm-up [0.001]");
    AddNumber("--warmup", options_.warmup_steps, "N", "Steps in which the rate rises linearly [0]",
              {0, kStepsMax});
    Add("--schedule", schedule_, "NAME",
        "Then it is constant, or falls: linear, cosine [constant]");
    AddReal("--min-lr", options_.min_lr, "RATE", "Where the fall ends [0]");
    AddNumber("--decay-steps", options_.decay_steps, "N",
              "Step at which it ends; counts from the job's beginning [the last one]",
              {0, kStepsMax});
    AddReal("--weight-decay", options_.weight_decay, "X", "Decoupled [0]");
    AddReal("--clip", options_.clip, "NORM", "Largest global gradient norm; 0: any [0]");
    AddReal("--beta1", options_.beta1, "X", "Of AdamW [0.9]");
    AddReal("--beta2", options_.beta2, "X", "Of AdamW [0.95]");
    AddReal("--eps", options_.eps, "X", "Of AdamW [1e-8]");
    Add("--dtype", dtype_, "NAME",
        "Of the parameters: fp32, or bf16 with float32 masters in the daemons [fp32]");
    AddRules();
  }

  void AddRules() {
    group_ =
        "Parameters by name (each may be repeated; REGEX matches a part of a published name such "
        "as gpt_neox.layers.0.mlp.dense_4h_to_h.weight)";
    Repeated("--train", options_.rules.train, "REGEX",
             "Train only what this matches; the rest is frozen and costs only its own bytes");
    Repeated("--freeze", options_.rules.freeze, "REGEX",
             "Don't train what this matches; wins over --train");
    Repeated("--no-decay", options_.rules.no_decay, "REGEX",
             "No weight decay for what this matches");
    Repeated("--lr-scale", rates_, "REGEX=X",
             "X times the learning rate for what this matches; the last that matches counts");
  }

  void AddOutput() {
    group_ = "Output";
    AddNumber(
        "--eval-every", options_.eval_every, "N",
        "Evaluate every N steps and at the end; without a file for it the last tenth of the data "
        "is held out; 0: only that file at the end [0]",
        {0, kStepsMax});
    AddText("--log", options_.log_path, "FILE", "JSON lines: one per step and per evaluation");
    AddText("--export", options_.export_dir, "DIR",
            "At the end write config.json and weights there, as published models have them");
    Add("--export-dtype", export_dtype_, "NAME", "fp32, fp16 or bf16 [as the imported weights]");
    AddText("--sample", sample_prompt_, "TEXT", "At the end print what the model makes of TEXT");
    AddText("--sample-ids", sample_ids_, "IDS",
            "The same with the prompt as token ids (deploy/tokenize.py --encode prints them)");
    AddNumber("--sample-tokens", options_.sample.tokens, "N", "Length of that sample [200]",
              {1, kNumberMax});
    AddReal("--sample-temperature", options_.sample.temperature, "X", "0: most likely token [0.8]");
    AddNumber("--sample-top-k", options_.sample.top_k, "N",
              "Only from the N most likely; 0: all [0]", {0, kNumberMax});
    AddReal("--sample-top-p", options_.sample.top_p, "P",
            "Only from the fewest tokens that have probability P together [1]");
    AddText("--vocabulary", options_.sample.vocabulary_path, "FILE",
            "Bytes of each token, for the sample [what the FILE.json of --tokens says]");
  }

  void AddJob() {
    group_ = "Job (RANK, WORLD_SIZE and LOCAL_RANK come from the environment)";
    AddText("--job", options_.session.job_id, "ID",
            "What the state belongs to [ZEROD_JOB, default]");
    Flag("--attach", attach_,
         "Go on with a job that the daemons keep, at its step and place in the data; an error if "
         "there is none [go on if there is one, else a new job]");
    Flag("--create", create_, "Begin a new job; an error if there is one of this name");
    Flag("--drop", options_.drop, "Give the job's state up at the end [keep it]");
    AddText("--socket", options_.session.socket_path, "PATH",
            "Socket of this node's zerod [ZEROD_SOCKET]");
  }

  void AddTuning() {
    group_ = "Performance";
    AddNumber("--prefetch", options_.prefetch_depth, "N",
              "Layers asked for before they are needed [1]", {0, kNumberMax});
    Flag("--checkpoint", options_.checkpoint,
         "Recompute activations in the backward instead of keeping them");
    Add("--window-bytes", window_bytes_, "BYTES",
        "Bound on gathered layers in use; takes KiB, MiB, GiB; 0: none [0]");
    Add("--cache-bytes", cache_bytes_, "BYTES",
        "Bound on gathered layers kept for reuse [the daemon's]");
    AddNumber("--threads", options_.threads, "N", "Of each rank's computation [OMP_NUM_THREADS, 1]",
              {1, kThreadsMax});
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
    if (Given("--epochs")) options_.epochs = epochs_;
    if (Given("--document-end")) options_.document_end = document_end_;
    if (Given("--shuffle")) options_.shuffle_seed = shuffle_seed_;
    if (Given("--sample")) options_.sample.prompt = sample_prompt_;
    if (Given("--sample-ids")) FinishIds();
    if (Given("--window-bytes")) {
      options_.session.window_bytes = ReadBytes("--window-bytes", window_bytes_);
    }
    if (Given("--cache-bytes")) {
      options_.session.cache_bytes = ReadBytes("--cache-bytes", cache_bytes_);
    }
    for (const std::string& rate : rates_) options_.rules.rates.push_back(RateRule::Parse(rate));
    if (attach_ && create_) Refuse("--attach and --create exclude each other");
    if (attach_) options_.session.mode = AttachMode::kAttach;
    if (create_) options_.session.mode = AttachMode::kCreate;
    FinishNames();
  }

  void FinishIds() {
    try {
      options_.sample.ids = ParseIds(sample_ids_);
    } catch (const Error& error) {
      Refuse(Concat("--sample-ids: ", error.what()));
    }
    if (options_.sample.ids.empty())
      Refuse(Concat("--sample-ids: '", sample_ids_, "' has no token id"));
  }

  bool Given(const char* option) const { return app_.count(option) > 0; }

  void FinishNames() {
    options_.optimizer =
        Choice<OptimizerKind>("--optimizer", optimizer_,
                              {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}});
    options_.decay = Choice<Decay>(
        "--schedule", schedule_,
        {{"constant", Decay::kConstant}, {"linear", Decay::kLinear}, {"cosine", Decay::kCosine}});
    options_.dtype =
        Choice<DType>("--dtype", dtype_, {{"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}});
    if (!Given("--export-dtype")) return;
    options_.export_dtype = Choice<DType>(
        "--export-dtype", export_dtype_,
        {{"fp32", DType::kFloat32}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}});
  }

  template <typename Value>
  static Value Choice(const char* option, const std::string& given,
                      std::initializer_list<std::pair<const char*, Value>> choices) {
    std::string names;
    for (const auto& [name, value] : choices) {
      if (given == name) return value;
      names += Concat(names.empty()                             ? ""
                      : name == std::prev(choices.end())->first ? " or "
                                                                : ", ",
                      name);
    }
    Refuse(Concat(option, " is \"", given, "\"; give ", names));
  }

  CLI::App app_;
  std::string group_;
  TrainOptions options_;
  std::string text_path_;
  std::string tokens_path_;
  uint64_t shuffle_seed_ = 0;
  std::string sample_prompt_;
  std::string sample_ids_;
  double epochs_ = 0;
  int64_t document_end_ = 0;
  std::string optimizer_ = "adamw";
  std::string schedule_ = "constant";
  std::string dtype_ = "fp32";
  std::string export_dtype_;
  std::vector<std::string> rates_;
  bool attach_ = false;
  bool create_ = false;
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
