// Group: what consumes gradients: reduces, the step, and scalars.

#include <algorithm>
#include <thread>

#include <spdlog/spdlog.h>

#include "proto/contract/error.h"
#include "server/engine/group.h"
#include "server/engine/group_guard.h"

namespace zerod {

ShardContext Group::ContextOf(int local_rank) {
  return {topology_, local_rank, kernels_, reduce_communicator_.get(),
          &reduce_buffers_[local_rank]};
}

void Group::PostReduce(const Dispatched& operation) {
  LayerStore& layer = job_.layer(operation.first().layer);
  ReduceWork work;
  work.ticket = operation.ticket;
  work.overwrite = !layer.accumulated;
  for (int local = 0; local < LocalRanks(); ++local) {
    const Operation& own = operation.operations[local];
    work.slots.push_back(members_[local]->slots[own.slot].data());
    for (size_t i = 0; i < layer.active.size(); ++i) {
      layer.active[i] = layer.active[i] || own.has_gradient[i];
    }
  }
  layer.accumulated = true;
  ++layer.reduces;
  ++reduce_count_;
  reduce_lanes_left_[operation.ticket] = LocalRanks();
  reduces_outstanding_ += LocalRanks();
  for (int local = 0; local < LocalRanks(); ++local) {
    lanes_[local]->Post([this, local, &layer, work] { ReduceOnLane(local, layer, work); });
  }
}

void Group::ReduceOnLane(int local_rank, LayerStore& layer, const ReduceWork& work) {
  double sum_squares = 0;
  Guarded([&] {
    if (!cancelled_) sum_squares = ReduceShard(ContextOf(local_rank), layer, work);
  });
  absl::MutexLock lock(&mutex_);
  layer.sum_squares[local_rank] = sum_squares;
  --reduces_outstanding_;
  if (--reduce_lanes_left_[work.ticket] == 0) {
    reduce_lanes_left_.erase(work.ticket);
    if (!over_ && !broken_) CompleteAll(Queue::kReduce, work.ticket);
  }
  TryContribute();
  CheckEnded();
}

StepContribution Group::MakeContribution() const {
  StepContribution contribution;
  const Dispatched& operation = pending_step_->operation;
  contribution.ticket = operation.ticket;
  for (int local = 0; local < LocalRanks(); ++local) {
    double sum_squares = 0;
    for (const auto& layer : job_.layers()) {
      if (layer->accumulated) sum_squares += layer->sum_squares[local];
    }
    contribution.sum_squares.push_back(sum_squares);
    const std::vector<double>& values = operation.operations[local].values;
    contribution.values.insert(contribution.values.end(), values.begin(), values.end());
  }
  for (const auto& layer : job_.layers()) {
    if (layer->accumulated) contribution.active.emplace_back(layer->index(), layer->active);
  }
  return contribution;
}

void Group::TryContribute() {
  if (!pending_step_ || pending_step_->contributed || over_ || broken_) return;
  if (reduces_outstanding_ > 0 || updates_outstanding_ > 0) return;
  if (node_lane_done_ < pending_step_->operation.node_lane_items) return;
  pending_step_->contributed = true;
  StepContribution contribution = MakeContribution();
  step_contributions_[contribution.ticket][topology_.node] = contribution;
  Broadcast(std::move(contribution));
  TryDecide();
}

void Group::TryDecide() {
  if (!pending_step_ || !pending_step_->contributed || over_) return;
  const uint64_t ticket = pending_step_->operation.ticket;
  const auto found = step_contributions_.find(ticket);
  if (found == step_contributions_.end()) return;
  if (static_cast<int>(found->second.size()) < topology_.NodeCount()) return;
  std::vector<double> sum_squares;
  std::vector<double> values;
  std::vector<StepContribution> parts;
  for (auto& [node, part] : found->second) {  // in node order, so in rank order
    sum_squares.insert(sum_squares.end(), part.sum_squares.begin(), part.sum_squares.end());
    values.insert(values.end(), part.values.begin(), part.values.end());
    parts.push_back(std::move(part));
  }
  step_contributions_.erase(found);
  const Operation& own = pending_step_->operation.first();
  if (values.size() != own.values.size() * topology_.World()) {
    Break(Error(ErrorCode::kDataLoss,
                Concat("step ", job_.step + 1, ": a node contributed the wrong number of values")));
    return;
  }
  const StepDecision decision = DecideStep(own.step, sum_squares, values);
  if (!decision.apply) {
    spdlog::warn(
        Concat("step ", job_.step + 1, " is skipped on all ranks: the gradient norm isn't finite"));
  }
  MarkActive(parts, decision.apply);
  ++job_.step;
  decided_ticket_ = ticket;
  PublishStep(decision);
  PostUpdates(decision);
  pending_step_.reset();
  PublishAllLocalGathers();
  RunGated();
  CheckSettled();
}

void Group::MarkActive(const std::vector<StepContribution>& parts, bool apply) {
  for (const auto& layer : job_.layers()) {
    std::fill(layer->updating.begin(), layer->updating.end(), false);
    std::fill(layer->active.begin(), layer->active.end(), false);
  }
  if (!apply) return;
  for (const StepContribution& part : parts) {
    for (const auto& [index, active] : part.active) {
      LayerStore& layer = job_.layer(index);
      for (size_t i = 0; i < active.size(); ++i) {
        const bool trainable = layer.plan().chunks[layer.plan().tensors[i].chunk].trainable;
        layer.updating[i] = layer.updating[i] || (active[i] && trainable);
      }
    }
  }
  for (const auto& layer : job_.layers()) {
    for (size_t i = 0; i < layer->updating.size(); ++i) layer->counts[i] += layer->updating[i];
  }
}

void Group::PublishStep(const StepDecision& decision) {
  StepRecord record;
  record.ticket = decided_ticket_;
  record.step = job_.step;
  record.grad_norm = decision.grad_norm;
  record.skipped = decision.apply ? 0 : 1;
  record.value_count = static_cast<uint32_t>(decision.values.size());
  std::ranges::copy(decision.values, record.values);
  for (const auto& member : members_) {
    job_.private_state[member->local_rank] =
        std::move(pending_step_->operation.operations[member->local_rank].private_state);
    if (member->state != Member::State::kActive) continue;
    member->page().step = record;
    Complete(member->page(), Queue::kStep, record.ticket);
  }
}

void Group::PostUpdates(const StepDecision& decision) {
  const Dispatched& operation = pending_step_->operation;
  std::vector<int> order = operation.forward_order;
  for (size_t layer = 0; layer < job_.layers().size(); ++layer) {
    const int index = static_cast<int>(layer);
    if (std::ranges::find(order, index) == order.end()) order.push_back(index);
  }
  const UpdateWork work{operation.first().step, decision.factor, job_.step};
  for (int local = 0; local < LocalRanks(); ++local) {
    StepProgress& progress = job_.Progress(local);
    progress.arguments = work.arguments;
    progress.grad_norm = decision.grad_norm;
    progress.factor = decision.factor;
    progress.decided = job_.step;
  }
  for (int index : order) {
    LayerStore& layer = job_.layer(index);
    // The next reduce, which the lanes run after this update, overwrites.
    layer.accumulated = false;
    if (std::ranges::find(layer.updating, true) == layer.updating.end()) {
      layer.WriteVersion(job_.step, epoch_);
      continue;
    }
    layer.lanes_left = LocalRanks();
    updates_outstanding_ += LocalRanks();
    for (int local = 0; local < LocalRanks(); ++local) {
      lanes_[local]->Post([this, local, &layer, work] { UpdateOnLane(local, layer, work); });
    }
  }
  if (updates_outstanding_ == 0) RecordApplied();
}

void Group::RecordApplied() {
  for (int local = 0; local < LocalRanks(); ++local) {
    StepProgress& progress = job_.Progress(local);
    progress.begun = progress.applied = job_.step;
  }
}

void Group::UpdateOnLane(int local_rank, LayerStore& layer, const UpdateWork& work) {
  const Failpoints& failpoints = options_.failpoints;
  const int rank = members_[local_rank]->rank;
  if (failpoints.update_delay_layer == layer.index() &&
      (failpoints.update_delay_rank < 0 || failpoints.update_delay_rank == rank)) {
    std::this_thread::sleep_for(failpoints.update_delay);  // failpoint
  }
  // A decided step is finished whatever happens to the workers: cancelled_ doesn't matter here.
  UpdateShard(ContextOf(local_rank), layer, work, job_.Progress(local_rank));
  absl::MutexLock lock(&mutex_);
  --updates_outstanding_;
  if (updates_outstanding_ == 0) RecordApplied();
  if (--layer.lanes_left == 0) {
    layer.WriteVersion(work.step, epoch_);
    PublishAllLocalGathers();
  }
  TryContribute();
  CheckEnded();
}

void Group::ContributeScalar(const Dispatched& operation) {
  ScalarContribution contribution;
  contribution.ticket = operation.ticket;
  for (const Operation& own : operation.operations) {
    contribution.values.insert(contribution.values.end(), own.values.begin(), own.values.end());
  }
  pending_scalar_ = operation;
  scalar_contributions_[operation.ticket][topology_.node] = contribution;
  Broadcast(std::move(contribution));
  TryCompleteScalar();
}

void Group::TryCompleteScalar() {
  if (!pending_scalar_ || over_) return;
  const uint64_t ticket = pending_scalar_->ticket;
  const auto found = scalar_contributions_.find(ticket);
  if (found == scalar_contributions_.end()) return;
  if (static_cast<int>(found->second.size()) < topology_.NodeCount()) return;
  std::vector<double> values;
  for (const auto& [node, part] : found->second) {
    values.insert(values.end(), part.values.begin(), part.values.end());
  }
  scalar_contributions_.erase(found);
  if (values.size() != pending_scalar_->first().values.size() * topology_.World()) {
    Break(Error(ErrorCode::kDataLoss, "a node contributed the wrong number of values to a scalar"));
    return;
  }
  const std::vector<double> sums = SumOverRanks(values, topology_.World());
  for (const auto& member : members_) {
    if (member->state != Member::State::kActive) continue;
    member->page().scalar_ticket = ticket;
    std::ranges::copy(sums, member->page().scalar_values);
    Complete(member->page(), Queue::kScalar, ticket);
  }
  pending_scalar_.reset();
  RunGated();
}

}  // namespace zerod
