#include "worker/autograd/backward_tracker.h"

#include "worker/autograd/backward_state.h"

namespace zerod {

BackwardTracker::BackwardTracker(LayerEvents& events)
    : state_(std::make_shared<BackwardState>(events)) {}

BackwardTracker::~BackwardTracker() { state_->Close(); }

size_t BackwardTracker::AddLayer(at::TensorList parameters) { return state_->AddLayer(parameters); }

}  // namespace zerod
