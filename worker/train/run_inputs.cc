#include "worker/train/run_inputs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "proto/contract/error.h"
#include "worker/neox/tensor_spec.h"
#include "worker/train/checkpoint_folder.h"
#include "worker/train/text_sampler.h"
#include "worker/train/train_checks.h"
#include "worker/train/trainer.h"

namespace zerod::train {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void CheckLength(const TrainOptions& options, const neox::Config& config) {
  if (options.seq <= config.max_position_embeddings) return;
  Refuse(Concat("--seq is ", options.seq, ", but the model of ", options.model_dir,
                " takes at most ", config.max_position_embeddings,
                " tokens (max_position_embeddings)"));
}

/// Rules that match nothing, or leave nothing, are mistakes that would otherwise be seen late.
void CheckRules(const TrainOptions& options, const neox::Config& config) {
  std::vector<std::string> names;
  for (const neox::TensorSpec& spec : neox::ModelTensors(config)) names.push_back(spec.name);
  CheckMatches(options.rules, names);
  const std::vector<ParameterGroup> groups = GroupsOf(options.rules);
  const bool trains = std::ranges::any_of(
      names, [&](const std::string& name) { return SettingsOf(groups, name).train; });
  if (!trains && options.steps > 0) {
    Refuse("--freeze and --train leave no parameter to train; --steps 0 only imports and exports");
  }
}

/// Fills in what the description beside the token file says and the options don't.
int FinishData(const neox::Config& config, TrainOptions& options) {
  if (options.data_is_text) return 1;
  const auto info = neox::TokenFileInfo::Read(options.data_path);
  if (!options.document_end) options.document_end = info.document_end;
  if (options.mask_documents && !options.document_end) {
    Refuse(Concat("--mask-documents needs --document-end: ", options.data_path,
                  ".json names no token that ends a document"));
  }
  if (options.sample.vocabulary_path.empty()) {
    options.sample.vocabulary_path = info.vocabulary_path;
  }
  if (options.token_bytes != 0) return options.token_bytes;
  return info.token_bytes.value_or(neox::UsualTokenBytes(config.vocab_size));
}

neox::DataOptions DataOf(const TrainOptions& options, const neox::Config& config, int token_bytes) {
  neox::DataOptions data;
  data.path = options.data_path;
  data.token_bytes = token_bytes;
  data.eval_path = options.eval_path;
  data.vocab_size = config.vocab_size;
  data.seq = options.seq;
  data.hold_out = options.eval_every > 0 && options.eval_path.empty();
  data.shuffle_seed = options.shuffle_seed;
  if (options.mask_documents && *options.document_end >= config.vocab_size) {
    Refuse(Concat("--document-end is ", *options.document_end, ", which the model's vocabulary of ",
                  config.vocab_size, " lacks; documents would never end"));
  }
  if (options.mask_documents) data.masked_end = options.document_end;
  return data;
}

void ReadPrompt(RunInputs& inputs) {
  const TextOptions& sample = inputs.options.sample;
  if (!sample.prompt && sample.ids.empty()) return;
  if (inputs.options.data_is_text) {
    inputs.vocabulary = std::make_unique<Vocabulary>(Vocabulary::OfBytes());
  } else if (!sample.vocabulary_path.empty()) {
    inputs.vocabulary = std::make_unique<Vocabulary>(Vocabulary::Read(sample.vocabulary_path));
  }
  if (!sample.ids.empty()) {
    inputs.prompt = sample.ids;
    return;
  }
  if (inputs.vocabulary == nullptr) {
    Refuse(
        "--sample needs --vocabulary FILE to know the text of tokens (deploy/tokenize.py writes "
        "it), or --sample-ids");
  }
  inputs.prompt = inputs.vocabulary->Encode(*sample.prompt);
}

int64_t MemoryOfMachine() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

/// A file that was cut short, or is read with the wrong width, is seen before it trains nonsense.
void CheckTokenCount(const std::string& path, int token_bytes) {
  const auto described = neox::TokenFileInfo::Read(path).token_count;
  const int64_t length = neox::TokenFile(path, token_bytes).length();
  if (!described || *described == length) return;
  throw Error(ErrorCode::kDataLoss,
              Concat(path, ": has ", length, " tokens of ", token_bytes, " bytes, but ", path,
                     ".json says ", *described, "; was it cut short, or --token-bytes wrong?"));
}

}  // namespace

RunInputs RunInputs::Read(const TrainOptions& given) {
  RunInputs inputs;
  inputs.options = given;
  TrainOptions& options = inputs.options;
  inputs.config = neox::ReadConfig(options.model_dir + "/config.json");
  CheckLength(options, inputs.config);
  CheckBatchMemory(options, inputs.config.vocab_size, MemoryOfMachine());
  CheckRules(options, inputs.config);
  if (!options.export_dir.empty()) {
    CheckExportFolder(options.export_dir, options.model_dir, options.session.rank == 0);
  }
  const int token_bytes = FinishData(inputs.config, options);
  if (!options.data_is_text) {
    CheckTokenCount(options.data_path, token_bytes);
    if (!options.eval_path.empty()) CheckTokenCount(options.eval_path, token_bytes);
  }
  inputs.tokens = std::make_unique<neox::TokenSource>(DataOf(options, inputs.config, token_bytes));
  inputs.evaluates = inputs.tokens->eval_samples() > 0;
  if (options.epochs) {
    options.steps = neox::StepsOfEpochs(*options.epochs, inputs.tokens->epoch_tokens(),
                                        options.batch * options.seq);
    CheckSampleCount(options.steps, options.batch);
  }
  if (options.decay_steps == 0) options.decay_steps = options.steps;
  if (!given.sample.vocabulary_path.empty()) Vocabulary::Read(given.sample.vocabulary_path);
  ReadPrompt(inputs);
  if (!inputs.prompt.empty()) CheckPrompt(inputs.prompt, inputs.config);
  if (neox::Checkpoint::IsIn(options.model_dir)) {
    inputs.weights = std::make_unique<neox::Checkpoint>(options.model_dir, inputs.config);
  }
  return inputs;
}

}  // namespace zerod::train
