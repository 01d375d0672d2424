#include "worker/train/exporter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>

#include "proto/contract/error.h"
#include "worker/neox/config_text.h"
#include "worker/neox/input_file.h"
#include "worker/train/checkpoint_folder.h"

namespace zerod::train {
namespace {

constexpr uint64_t kConfigLimitBytes = 4 << 20;
constexpr int64_t kPartNumel = 1 << 20;  // converted and written at once
constexpr const char* kEmbedding = "gpt_neox.embed_in.weight";
constexpr const char* kHead = "embed_out.weight";

at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
  }
  ZEROD_CHECK(false, "dtype ", static_cast<int>(dtype));
}

/// What becomes of the model's tensors: by their names, those of the files. A tied embedding may be
/// stored twice.
using Targets = std::multimap<std::string, neox::StoredTensor>;

/// The sum is quick and finite for all but absurd values; one that isn't says where to look closer.
bool IsFinite(const at::Tensor& values) {
  return std::isfinite(values.sum().item<float>()) || at::isfinite(values).all().item<bool>();
}

neox::StoredTensor TargetOf(const ExportOptions& options, const neox::Config& config,
                            const TensorSpec& tensor, const std::string& published) {
  neox::StoredTensor target{published, config.dtype, tensor.shape};
  if (options.source != nullptr) {
    target.name = options.source->stored_name(published);
    target.dtype = options.source->stored_dtype(published);
  }
  target.dtype = options.dtype.value_or(target.dtype);
  return target;
}

/// Also lists the stored tensors in the model's order.
Targets MakeTargets(const ExportOptions& options, const neox::Config& config,
                    const ShardedModel& model, std::vector<neox::StoredTensor>& order) {
  const std::vector<std::string> names =
      options.source != nullptr ? options.source->names() : std::vector<std::string>();
  const bool stores_tied_head =
      config.tie_word_embeddings && std::ranges::find(names, kHead) != names.end();
  Targets targets;
  for (size_t layer = 0; layer < model.layer_count(); ++layer) {
    for (const TensorSpec& tensor : model.plan(layer).spec.tensors) {
      order.push_back(TargetOf(options, config, tensor, tensor.name));
      targets.emplace(tensor.name, order.back());
      if (tensor.name != kEmbedding || !stores_tied_head) continue;
      order.push_back(TargetOf(options, config, tensor, kHead));
      targets.emplace(tensor.name, order.back());
    }
  }
  return targets;
}

/// What rank 0 does.
class Writing {
 public:
  Writing(const ExportOptions& options, const neox::Config& config, const ShardedModel& model)
      : source_(options.source) {
    FolderContent content;
    content.folder = options.folder;
    content.config =
        neox::ConfigText(neox::InputFile(options.config_path).ReadAll(kConfigLimitBytes),
                         options.config_path, options.dtype);
    content.max_file_bytes = options.max_file_bytes;
    targets_ = MakeTargets(options, config, model, content.tensors);
    folder_ = std::make_unique<CheckpointFolder>(content);
  }

  void Write(const LayerSpec& spec, const std::vector<at::Tensor>& values) {
    ZEROD_CHECK(values.size() == spec.tensors.size(), "layer ", spec.name);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto [first, last] = targets_.equal_range(spec.tensors[i].name);
      for (auto target = first; target != last; ++target) {
        Write(target->second, spec.tensors[i], values[i]);
      }
    }
  }

  void Publish() { folder_->Publish(); }

  /// Names of tensors with NaN or infinite values.
  const std::vector<std::string>& not_finite() const { return not_finite_; }

 private:
  void Write(const neox::StoredTensor& target, const TensorSpec& tensor, const at::Tensor& value) {
    const at::Tensor flat = value.reshape({-1});
    bool finite = true;
    for (int64_t first = 0; first < flat.numel(); first += kPartNumel) {
      const at::Tensor part = Unrounded(
          tensor, first, flat.narrow(0, first, std::min(kPartNumel, flat.numel() - first)));
      const at::Tensor stored = part.to(ScalarTypeOf(target.dtype)).contiguous();
      if (target.dtype != DType::kFloat32) CheckRange(target, part, stored);
      finite = finite && IsFinite(part);
      folder_->Write(target.name, static_cast<uint64_t>(first),
                     {static_cast<const std::byte*>(stored.const_data_ptr()), stored.nbytes()});
    }
    if (!finite) not_finite_.push_back(target.name);
  }

  /// Frozen tensors of a bfloat16 job have no masters. What the elements of `part` were rounded
  /// from stands in the source; if the source holds anything else by now, `part` itself.
  at::Tensor Unrounded(const TensorSpec& tensor, int64_t first, const at::Tensor& part) const {
    if (tensor.trainable || tensor.dtype != DType::kBFloat16 || source_ == nullptr) return part;
    const at::Tensor exact = at::empty(part.sizes(), at::kFloat);
    source_->Read(tensor.name, static_cast<uint64_t>(first),
                  {exact.mutable_data_ptr<float>(), static_cast<size_t>(exact.numel())});
    return at::equal(exact.to(at::kBFloat16).to(at::kFloat), part) ? exact : part;
  }

  static void CheckRange(const neox::StoredTensor& target, const at::Tensor& part,
                         const at::Tensor& stored) {
    const at::Tensor lost = at::isinf(stored).logical_and_(at::isinf(part).logical_not_());
    if (!lost.any().item<bool>()) return;
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("tensor '", target.name, "' has the value ",
                       part.masked_select(lost)[0].item<float>(), ", which ",
                       DTypeName(target.dtype), " can't hold; export as float32 or bfloat16"));
  }

  const neox::Checkpoint* source_;
  Targets targets_;
  std::unique_ptr<CheckpointFolder> folder_;
  std::vector<std::string> not_finite_;
};

/// Lets rank 0 do something and all ranks know how it went. The first failure of rank 0 is thrown
/// there as it is and on the others in short, with the operating system's reason.
class Together {
 public:
  Together(const std::string& folder, ShardedModel& model) : folder_(folder), model_(model) {}

  bool writes() const { return model_.session().info().rank == 0; }

  void Do(const std::function<void()>& action) {
    std::exception_ptr failure;
    double reason = kFine;
    try {
      if (writes()) action();
    } catch (const neox::WriteError& error) {
      failure = std::current_exception();
      reason = error.reason();
    } catch (...) {
      failure = std::current_exception();
      reason = kOther;
    }
    const double sum = model_.Sum({reason})[0];
    if (failure != nullptr) std::rethrow_exception(failure);
    if (sum == kFine) return;
    throw Error(ErrorCode::kInternal,
                Concat("rank 0 could not export to ", folder_, ": ",
                       sum == kOther ? "its message says why" : ErrnoText(static_cast<int>(sum))));
  }

 private:
  static constexpr double kFine = 0;  // else errno values
  static constexpr double kOther = -1;

  const std::string& folder_;
  ShardedModel& model_;
};

}  // namespace

std::vector<std::string> Export(const ExportOptions& options, const neox::Config& config,
                                ShardedModel& model) {
  model.Seal();
  Together together(options.folder, model);
  std::unique_ptr<Writing> writing;
  together.Do([&] { writing = std::make_unique<Writing>(options, config, model); });
  for (size_t layer = 0; layer < model.layer_count(); ++layer) {
    const LayerSpec& spec = model.plan(layer).spec;
    if (spec.tensors.empty()) continue;
    // Updates work on the masters; what is gathered may be rounded.
    const std::vector<at::Tensor> values =
        model.ReadLayer(layer, Content::kMaster, together.writes());
    together.Do([&] { writing->Write(spec, values); });
  }
  together.Do([&] { writing->Publish(); });
  return writing != nullptr ? writing->not_finite() : std::vector<std::string>();
}

std::string NotFiniteText(const std::vector<std::string>& names) {
  ZEROD_CHECK(!names.empty(), "all values are finite");
  const std::string others = names.size() == 1 ? "" : Concat(" and ", names.size() - 1, " more");
  return Concat("exported NaN or infinite values in tensor '", names[0], "'", others);
}

}  // namespace zerod::train
