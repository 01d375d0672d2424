#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/neox/layers.h"

namespace zerod::neox {

/// A whole model in one process without any sharding: what everything else is compared with.
class PlainModel {
 public:
  explicit PlainModel(const Config& config, DType dtype = DType::kFloat32);

  void Initialize(uint64_t seed);
  void Load(const Checkpoint& checkpoint);

  /// Token ids [B, T] -> logits [B, T, V].
  at::Tensor Forward(const at::Tensor& tokens);

  /// By published name.
  std::map<std::string, at::Tensor> NamedParameters() const;
  std::vector<at::Tensor> Parameters() const;

  const std::vector<std::shared_ptr<Layer>>& layers() const { return layers_; }

  /// The one that all layers share.
  ForwardContext& forward() { return *forward_; }

 private:
  const std::shared_ptr<ForwardContext> forward_ = std::make_shared<ForwardContext>();
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace zerod::neox
