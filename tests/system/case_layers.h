#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "worker/sharded/sharded_sequential.h"

namespace zerod {

/// A layer of a test model: its initial parameters and what it computes from them.
using Tensors = std::vector<at::Tensor>;
using LayerFunction = std::function<Tensors(const Tensors& parameters, const Tensors& inputs)>;
struct CaseLayer {
  std::string name;
  std::function<Tensors()> values;
  LayerFunction function;
  bool frozen = false;
  LayerOptions options = {};
};

/// A module with parameters p0, p1, … and the layer's function as its forward.
LayerModule ModuleOf(const CaseLayer& layer);

/// Registers the layers; their indices are 0, 1, …
void AddLayers(ShardedModel& model, const std::vector<CaseLayer>& layers);

/// Runs layer `index` on inputs; so that one program can run sharded and plain.
using Apply = std::function<Tensors(size_t index, const Tensors& inputs)>;
Apply ShardedApply(ShardedModel& model);

/// The layers in this process, in plain LibTorch.
class PlainLayers {
 public:
  explicit PlainLayers(std::vector<CaseLayer> layers);
  Apply Applier();
  /// Of all layers, in registration order, frozen ones left out.
  Tensors Trainable() const;
  /// p -= rate / divisor * grad where there is a gradient; then there is none.
  void SgdStep(double rate, double divisor);

 private:
  std::vector<CaseLayer> layers_;
  std::vector<Tensors> parameters_;
};

StepOptions PlainSgd(double rate, double divisor = 0);

/// A tensor of one value, without a gradient.
at::Tensor Filled(at::IntArrayRef sizes, double value);

/// parameters[0] multiplied by the first input.
Tensors MatVec(const Tensors& parameters, const Tensors& inputs);
/// y = x + sum(p0 * c): its gradient with respect to p0 is c times that of y, whatever p0 is.
LayerFunction AddWeighted(double c);

/// Integer after `"key": ` behind the first occurrence of `after` in JSON that zeroctl printed.
int64_t NumberIn(const std::string& json, const std::string& key, const std::string& after = "");

}  // namespace zerod
