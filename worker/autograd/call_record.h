#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/autograd/backward_tracker.h"

namespace zerod {

/// Notes which layers are called (LayerCall) from its construction to its destruction, also with
/// gradients disabled. Records nest; each sees the calls of those inside it.
class CallRecord {
 public:
  explicit CallRecord(const BackwardTracker& tracker);
  ~CallRecord();
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  /// The trainable parameters of the layers called so far, each once.
  std::vector<at::Tensor> Parameters() const;

 private:
  std::shared_ptr<BackwardState> state_;
  size_t first_;
};

}  // namespace zerod
