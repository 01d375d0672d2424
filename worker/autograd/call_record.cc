#include "worker/autograd/call_record.h"

#include "worker/autograd/backward_state.h"

namespace zerod {

CallRecord::CallRecord(const BackwardTracker& tracker)
    : state_(tracker.state_), first_(state_->StartRecord()) {}

CallRecord::~CallRecord() { state_->EndRecord(); }

std::vector<at::Tensor> CallRecord::Parameters() const {
  return state_->RecordedParameters(first_);
}

}  // namespace zerod
