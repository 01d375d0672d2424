#include "worker/neox/config.h"

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"
#include "worker/neox/input_file.h"
#include "worker/neox/json_text.h"

namespace zerod::neox {
namespace {

using nlohmann::json;

constexpr uint64_t kConfigLimitBytes = 4 << 20;

// Far above any published model, far below what overflows a product of two.
constexpr int64_t kVocabMax = 1 << 24;
constexpr int64_t kHiddenMax = 1 << 18;
constexpr int64_t kLayersMax = 1 << 14;
constexpr int64_t kPositionsMax = 1 << 24;

const std::map<std::string, Activation>& Activations() {
  static const std::map<std::string, Activation> activations = {
      {"gelu", Activation::kGelu},
      {"gelu_python", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
      {"relu", Activation::kRelu},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"tanh", Activation::kTanh},
  };
  return activations;
}

const std::map<std::string, DType>& StoredTypes() {
  static const std::map<std::string, DType> types = {
      {"float32", DType::kFloat32}, {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16}};
  return types;
}

/// Keys that published files carry and that change nothing in training.
const std::set<std::string>& IgnoredKeys() {
  static const std::set<std::string> keys = {"_attn_implementation_autoset",
                                             "_commit_hash",
                                             "_name_or_path",
                                             "add_cross_attention",
                                             "architectures",
                                             "attn_implementation",
                                             "bad_words_ids",
                                             "begin_suppress_tokens",
                                             "bos_token_id",
                                             "chunk_size_feed_forward",
                                             "classifier_dropout",
                                             "cross_attention_hidden_size",
                                             "decoder_start_token_id",
                                             "diversity_penalty",
                                             "do_sample",
                                             "early_stopping",
                                             "encoder_no_repeat_ngram_size",
                                             "eos_token_id",
                                             "exponential_decay_length_penalty",
                                             "finetuning_task",
                                             "forced_bos_token_id",
                                             "forced_eos_token_id",
                                             "id2label",
                                             "is_decoder",
                                             "label2id",
                                             "length_penalty",
                                             "max_length",
                                             "min_length",
                                             "no_repeat_ngram_size",
                                             "num_beam_groups",
                                             "num_beams",
                                             "num_labels",
                                             "num_return_sequences",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "output_scores",
                                             "pad_token_id",
                                             "prefix",
                                             "problem_type",
                                             "remove_invalid_values",
                                             "repetition_penalty",
                                             "return_dict",
                                             "return_dict_in_generate",
                                             "sep_token_id",
                                             "suppress_tokens",
                                             "task_specific_params",
                                             "temperature",
                                             "tf_legacy_loss",
                                             "tie_encoder_decoder",
                                             "tokenizer_class",
                                             "top_k",
                                             "top_p",
                                             "torchscript",
                                             "transformers_version",
                                             "typical_p",
                                             "use_bfloat16",
                                             "use_cache"};
  return keys;
}

/// Takes values out of a JSON object, one key at a time, and knows at the end which keys nobody
/// took.
class Reader {
 public:
  Reader(const json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {
    for (const auto& item : object.items()) left_.insert(item.key());
  }

  [[noreturn]] void Fail(const std::string& key, const std::string& why) const {
    throw Error(ErrorCode::kFailedPrecondition, Concat(where_, ": '", prefix_, key, "' ", why));
  }

  /// Null counts as absent, as in the published implementation.
  const json* Take(const std::string& key) {
    left_.erase(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t Size(const std::string& key, int64_t largest) {
    const json* value = Take(key);
    if (value == nullptr) Fail(key, "is missing");
    if (!value->is_number_integer()) Fail(key, "must be an integer, not " + Shown(*value));
    const bool fits = value->is_number_unsigned()
                          ? value->get<uint64_t>() <= static_cast<uint64_t>(largest)
                          : value->get<int64_t>() <= largest;
    if (!fits || value->get<int64_t>() < 1) {
      Fail(key, Concat("must be between 1 and ", largest, ", not ", Shown(*value)));
    }
    return value->get<int64_t>();
  }

  std::optional<double> Number(const std::string& key) {
    const json* value = Take(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) Fail(key, "must be a number, not " + Shown(*value));
    const double number = value->get<double>();
    if (!std::isfinite(number)) Fail(key, "is too large");
    return number;
  }

  /// 0 if absent.
  double Probability(const std::string& key) {
    const double value = Number(key).value_or(0);
    if (!(value >= 0 && value < 1)) {
      Fail(key, Concat("must be at least 0 and below 1, not ", value));
    }
    return value;
  }

  bool Bool(const std::string& key, bool absent) {
    const json* value = Take(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) Fail(key, "must be true or false, not " + Shown(*value));
    return value->get<bool>();
  }

  template <typename T>
  std::optional<T> Choice(const std::string& key, const std::map<std::string, T>& choices) {
    const json* value = Take(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) Fail(key, "must be a string, not " + Shown(*value));
    const auto found = choices.find(value->get<std::string>());
    if (found != choices.end()) return found->second;
    std::string known;
    for (const auto& choice : choices) known += (known.empty() ? "" : ", ") + choice.first;
    Fail(key, "is " + Shown(*value) + "; supported are " + known);
  }

  void Ignore(const std::set<std::string>& keys) {
    for (const auto& key : keys) left_.erase(key);
  }

  void RefuseTheRest() const {
    if (left_.empty()) return;
    Fail(*left_.begin(),
         "is not a key of a GPT-NeoX model that can be trained here; remove it if "
         "it changes nothing");
  }

  static std::string Shown(const json& value) {
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    return text;
  }

 private:
  const json& object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string> left_;
};

void ReadSizes(Reader& reader, Config& config) {
  config.vocab_size = reader.Size("vocab_size", kVocabMax);
  config.hidden_size = reader.Size("hidden_size", kHiddenMax);
  config.num_hidden_layers = reader.Size("num_hidden_layers", kLayersMax);
  config.num_attention_heads = reader.Size("num_attention_heads", kHiddenMax);
  config.intermediate_size = reader.Size("intermediate_size", 8 * kHiddenMax);
  config.max_position_embeddings = reader.Size("max_position_embeddings", kPositionsMax);
  if (config.hidden_size % config.num_attention_heads != 0) {
    reader.Fail("hidden_size",
                Concat("is ", config.hidden_size, ", which ", config.num_attention_heads,
                       " heads (num_attention_heads) don't divide"));
  }
}

struct Rotary {
  std::optional<double> fraction;
  std::optional<double> base;
};

Rotary ReadRopeParameters(const json& object, const std::string& key, Reader& outer,
                          const std::string& where) {
  if (!object.is_object()) outer.Fail(key, "must be an object");
  Reader reader(object, where, key + ".");
  reader.Choice<int>("rope_type", {{"default", 0}});
  reader.Choice<int>("type", {{"default", 0}});
  Rotary rotary;
  rotary.base = reader.Number("rope_theta");
  rotary.fraction = reader.Number("partial_rotary_factor");
  reader.RefuseTheRest();
  return rotary;
}

/// A file may carry both spellings (releases write the newer one, tools add the older one for old
/// readers); then they must agree.
void TakeEither(Reader& reader, const std::string& key, std::optional<double> newer,
                double& setting) {
  const std::optional<double> older = reader.Number(key);
  if (older && newer && *older != *newer) {
    reader.Fail(key, Concat("is ", *older, " but rope_parameters says ", *newer));
  }
  setting = newer.value_or(older.value_or(setting));
}

void ReadRotary(Reader& reader, const std::string& where, Config& config) {
  Rotary newer;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {  // two names of one thing
    const json* object = reader.Take(key);
    if (object == nullptr) continue;
    const Rotary found = ReadRopeParameters(*object, key, reader, where);
    if (found.fraction) newer.fraction = found.fraction;
    if (found.base) newer.base = found.base;
  }
  TakeEither(reader, "rotary_pct", newer.fraction, config.rotary_pct);
  TakeEither(reader, "rotary_emb_base", newer.base, config.rotary_emb_base);
  for (const char* key : {"partial_rotary_factor", "rope_theta"}) {
    // Some releases repeat these at the top level.
    double repeated = key[0] == 'p' ? config.rotary_pct : config.rotary_emb_base;
    TakeEither(reader, key, repeated, repeated);
  }
  if (!(config.rotary_pct >= 0 && config.rotary_pct <= 1)) {
    reader.Fail("rotary_pct", Concat("must be between 0 and 1, not ", config.rotary_pct));
  }
  if (!(config.rotary_emb_base > 0)) {
    reader.Fail("rotary_emb_base", Concat("must be positive, not ", config.rotary_emb_base));
  }
  if (2 * config.rotary_pairs() > config.head_size()) {
    reader.Fail("rotary_pct",
                Concat("rotates ", 2 * config.rotary_pairs(),
                       " elements (an even number) of heads that have only ", config.head_size()));
  }
}

void ReadKinds(Reader& reader, Config& config) {
  reader.Choice<int>("model_type", {{"gpt_neox", 0}});
  config.hidden_act = reader.Choice("hidden_act", Activations()).value_or(config.hidden_act);
  config.use_parallel_residual = reader.Bool("use_parallel_residual", true);
  config.attention_bias = reader.Bool("attention_bias", true);
  config.tie_word_embeddings = reader.Bool("tie_word_embeddings", false);
  const auto older = reader.Choice("torch_dtype", StoredTypes());
  config.dtype = reader.Choice("dtype", StoredTypes()).value_or(older.value_or(config.dtype));
}

void ReadNumbers(Reader& reader, Config& config) {
  config.layer_norm_eps = reader.Number("layer_norm_eps").value_or(config.layer_norm_eps);
  if (!(config.layer_norm_eps > 0)) reader.Fail("layer_norm_eps", "must be positive");
  config.initializer_range = reader.Number("initializer_range").value_or(config.initializer_range);
  if (!(config.initializer_range >= 0)) reader.Fail("initializer_range", "must not be negative");
  config.attention_dropout = reader.Probability("attention_dropout");
  config.hidden_dropout = reader.Probability("hidden_dropout");
  for (const char* key : {"attention_probs_dropout_prob", "hidden_dropout_prob"}) {
    // gpt-neox-20b has them. The published implementation doesn't read them.
    if (reader.Number(key).value_or(0) != 0) {
      reader.Fail(key,
                  "is a setting of other models and must be 0; set attention_dropout or "
                  "hidden_dropout");
    }
  }
}

/// Settings that would change the model, but whose usual value doesn't.
void RefuseOtherArchitectures(Reader& reader) {
  if (reader.Bool("is_encoder_decoder", false)) {
    reader.Fail("is_encoder_decoder", "must be false");
  }
  const json* pruned = reader.Take("pruned_heads");
  if (pruned != nullptr && !pruned->empty()) reader.Fail("pruned_heads", "must be empty");
}

}  // namespace

int64_t Config::rotary_ndims() const {
  return static_cast<int64_t>(static_cast<double>(head_size()) * rotary_pct);
}

Config ParseConfig(std::string_view text, const std::string& where) {
  const json object = ParseJsonObject(text, where);
  Reader reader(object, where);
  // First, because the other complaints about a config of another architecture would mislead.
  if (reader.Take("model_type") == nullptr) {
    reader.Fail("model_type", "is missing; it must be \"gpt_neox\"");
  }
  Config config;
  ReadKinds(reader, config);
  ReadSizes(reader, config);
  ReadRotary(reader, where, config);
  ReadNumbers(reader, config);
  RefuseOtherArchitectures(reader);
  reader.Ignore(IgnoredKeys());
  reader.RefuseTheRest();
  return config;
}

Config ReadConfig(const std::string& path) {
  return ParseConfig(InputFile(path).ReadAll(kConfigLimitBytes), path);
}

}  // namespace zerod::neox
