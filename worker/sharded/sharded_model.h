#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "client/session.h"
#include "worker/autograd/backward_tracker.h"
#include "worker/autograd/layer_events.h"
#include "worker/autograd/parameter_storage.h"
#include "worker/sharded/gradient_slots.h"
#include "worker/sharded/options.h"
#include "worker/sharded/prefetch_order.h"

namespace zerod {

/// The layers of one job on this rank: gathers them for the forward and again for the backward,
/// hands gradients over, steps. ShardedSequential and ShardedLayer are thin faces of it.
///
/// All ranks must do the same: register the same layers, call them in the same order, step alike.
/// Errors are zerod::Error; those of LibTorch inside a layer get the layer's name. After an error
/// of the session nothing works any more; attach again.
///
/// Thread: one; backwards run on the thread that calls backward().
class ShardedModel : private LayerEvents {
 public:
  /// The session outlives the model. Installs the handler of memory faults (fault_report.h):
  /// reading parameters outside of a call of their layer ends the process with a line that names
  /// it.
  ShardedModel(Session& session, ShardedOptions options);
  ~ShardedModel() override;
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Registers a layer: calls `factory`, uploads the values if the job is new (dp index 0 provides
  /// them) and frees them, so that at most one layer is held at a time. Returns its index.
  size_t AddLayer(const std::string& name, const std::function<LayerModule()>& factory,
                  const LayerOptions& options = {});

  /// No more layers. Implied by the first call of a layer. Throws Error (kResourceExhausted) when
  /// the session's window can't hold a layer and its prefetch, naming the bytes needed.
  void Seal();

  /// Runs a layer's forward, anywhere in a graph.
  std::vector<at::Tensor> Call(size_t layer, const std::vector<at::Tensor>& inputs);
  /// A forward of a micro-batch or an evaluation begins; lets prefetch learn the order. The order
  /// of the calls, if it is known, saves the first pass from guessing.
  void BeginPass(const std::vector<size_t>& expected = {});

  /// The optimizer step on all ranks. Returns once it is decided; updates overlap the next forward.
  StepResult Step(const StepOptions& options);
  /// Sums over all ranks, in rank order; ends an evaluation. At most kValuesMax values.
  std::vector<double> Sum(const std::vector<double>& values);

  /// A full tensor: its parameter, summed gradient of the running step, or moments; on every rank
  /// that passes `wants_data`, else undefined. All ranks call it.
  at::Tensor ReadTensor(const std::string& name, Content content = Content::kParameter,
                        bool wants_data = true);
  /// All tensors of a layer in spec order; undefined ones without `wants_data`, and for frozen
  /// tensors unless parameters or masters are read. They lie in one buffer, which lives as long as
  /// any of them: read layer by layer, no more than one is held. Masters are float32 whatever the
  /// parameters are. All ranks call it.
  std::vector<at::Tensor> ReadLayer(size_t layer, Content content = Content::kParameter,
                                    bool wants_data = true);
  /// Replaces a parameter by the value of dp index 0; others may pass an undefined one. All ranks.
  void WriteTensor(const std::string& name, const at::Tensor& value);

  size_t layer_count() const { return layers_.size(); }
  const std::string& layer_name(size_t layer) const { return layers_[layer].plan.spec.name; }
  const LayerPlan& plan(size_t layer) const { return layers_[layer].plan; }
  /// Names of all tensors in registration order.
  std::vector<std::string> tensor_names() const;
  /// Leased or asked for now. Bytes of whole layers.
  int64_t held_bytes() const { return held_bytes_; }
  uint64_t steps() const { return version_; }
  Session& session() { return session_; }

 private:
  enum class Residence { kReleased, kRequested, kBound };
  struct Layer {
    LayerPlan plan;          // of a layer without parameters only the name is set
    int session_index = -1;  // in the job; -1 for a layer without parameters, which has no tickets
    LayerModule module;
    std::vector<size_t> uses;            // layers whose parameters it reads too
    std::vector<at::Tensor> parameters;  // its own
    std::vector<size_t> tensor_of;       // by tracker parameter: index in the spec
    std::vector<Mapping> regions;        // by chunk
    std::vector<std::unique_ptr<ParameterStorage>> storages;
    bool checkpoint = false;
    Residence residence = Residence::kReleased;
    uint64_t gather_ticket = 0;
    int holds = 0;
    bool kept = false;  // one of the holds keeps the last layer from forward to backward
  };

  // sharded_layers.cc: registration, values
  LayerSpec Describe(const std::string& name, LayerModule& module, Layer& layer);
  void FindUses(const std::vector<std::string>& names, Layer& layer) const;
  size_t FindLayer(const std::string& name) const;
  void Upload(size_t layer, const LayerOptions& options);
  void Import(size_t layer, const std::vector<FileRange>& ranges);
  void BindParameters(Layer& layer);
  std::pair<size_t, size_t> FindTensor(const std::string& name) const;
  at::Tensor StageView(const Layer& layer, size_t tensor, const std::shared_ptr<Mapping>& stage,
                       at::ScalarType dtype) const;
  std::shared_ptr<Mapping> ReadStage(size_t layer, Content content, bool wants_data);
  void CheckWindow() const;

  // sharded_model.cc: acquiring and releasing
  void Request(size_t layer);
  void Acquire(size_t layer);
  void Unhold(size_t layer);
  void Release(size_t layer);
  void Prefetch(const std::vector<size_t>& layers);
  bool FitsWindow(size_t layer) const;
  void MakeRoom(size_t layer);
  void ReleaseUnused();
  void KeepForBackward(size_t layer, bool attached);
  void DropKept();
  std::vector<at::Tensor> RunForward(size_t layer, const std::vector<at::Tensor>& inputs);
  uint64_t Submit(OperationKind kind, size_t layer);

  // LayerEvents
  void OnBackwardPlan(const std::vector<size_t>& layers) override;
  void OnBackwardBegin(size_t layer) override;
  void OnBackwardEnd(size_t layer, bool more_calls) override;
  void OnGradient(size_t layer, size_t parameter, const at::Tensor& gradient) override;
  void OnGradientsComplete(size_t layer) override;
  void OnBackwardFinished() override;
  void OnBackwardFailed(const BackwardFailure& failure) noexcept override;

  Session& session_;
  const ShardedOptions options_;
  BackwardTracker tracker_;
  std::deque<Layer> layers_;              // references stay valid
  std::unique_ptr<GradientSlots> slots_;  // from Seal on
  PrefetchOrder order_;
  std::deque<size_t> backward_order_;  // calls that the running backward will still begin
  bool sealed_ = false;
  bool in_pass_ = false;
  bool pass_training_ = false;
  uint64_t version_ = 0;  // steps taken
  int backwards_ = 0;     // since the last step
  int64_t held_bytes_ = 0;
};

}  // namespace zerod
