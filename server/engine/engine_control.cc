// Engine: the control thread forms groups (engine_form.cc), ends them and watches the clock; what
// the nodes agree on before.

#include <algorithm>
#include <span>

#include <spdlog/spdlog.h>

#include "absl/time/time.h"
#include "proto/contract/error.h"
#include "server/engine/engine_impl.h"
#include "server/engine/formation.h"

namespace zerod {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
/// A tick this late means that the process stood still.
constexpr std::chrono::seconds kPause{1};
/// Of an epoch that this node hasn't joined yet: a registration and more.
constexpr size_t kEarlyMessagesMax = 1 << 16;

}  // namespace

bool Engine::Impl::SomethingToDo() const {
  for (const auto& successor : successors_) {
    if (HolderOf(successor->local_rank) == nullptr) return true;
  }
  return stopping_ || (group_ && group_->over()) || (IsForming() && !group_);
}

void Engine::Impl::ControlLoop() {
  Clock::time_point watched = Clock::now();
  for (;;) {
    bool end = false;
    bool form = false;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return SomethingToDo(); };
      mutex_.AwaitWithTimeout(absl::Condition(&ready), kTick);
      const Clock::time_point now = Clock::now();
      const Clock::duration pause = now - std::exchange(watched, now);
      if (group_ && pause > kPause) group_->ExcusePause(pause);
      if (group_) group_->CheckLateness(now);
      AdmitSuccessors(now);
      WatchPending(now);
      end = group_ && group_->over();
      form = !group_ && IsForming();
      if (stopping_ && !group_ && !form) return;
    }
    if (end) EndGroup();
    if (form) FormGroup();
  }
}

void Engine::Impl::ProposeIfComplete() {
  if (proposed_ || group_ || decision_ || topology_.ranks_per_node.empty()) return;
  if (static_cast<int>(pending_.size()) < options_.ranks) return;
  const AttachRequest& request = pending_.begin()->second->request;
  Proposal proposal;
  proposal.number = ++proposal_number_;
  proposal.job_id = request.job_id;
  proposal.mode = request.mode;
  proposal.epoch_seen = epoch_seen_;
  proposal.window_bytes = request.window_bytes;
  proposal.cache_bytes = request.cache_bytes < 0 ? options_.cache_bytes : request.cache_bytes;
  proposal.gradient_slots = request.gradient_slots;
  proposal.tensor_parallel = request.tensor_parallel;
  if (const auto found = jobs_.find(request.job_id); found != jobs_.end()) {
    proposal.exists = true;
    proposal.plan_hash = found->second->PlanHash();
    proposal.step = found->second->step;
  }
  proposed_ = true;
  if (options_.node == 0) {
    Deliver(0, proposal);
  } else {
    link_->Send(0, {epoch_seen_, proposal});
  }
}

void Engine::Impl::Deliver(int node, const Proposal& proposal) {
  if (proposal.withdrawn) {
    proposals_.erase(node);
    return;
  }
  proposals_[node] = proposal;
  DecideIfComplete();
}

void Engine::Impl::DecideIfComplete() {
  if (topology_.ranks_per_node.empty()) return;
  if (static_cast<int>(proposals_.size()) < topology_.NodeCount()) return;
  const Decision decision = DecideFormation(proposals_);
  proposals_.clear();
  if (link_ != nullptr) link_->Broadcast({epoch_seen_, decision});
  Accept(decision);
}

void Engine::Impl::Accept(const Decision& decision) {
  // One that answers a proposal which was withdrawn since knows nothing of the workers of now.
  const std::span<const uint64_t> numbers = decision.numbers;
  const size_t node = options_.node;
  const bool awaited = proposed_ && node < numbers.size() && numbers[node] == proposal_number_;
  if (awaited) proposed_ = false;
  if (!decision.accepted) {
    if (!awaited) return;
    spdlog::warn(
        Concat("the workers of job '", decision.job_id, "' are refused: ", decision.message));
    FaultPending(Error(decision.code, decision.message));
    return;
  }
  epoch_seen_ = std::max(epoch_seen_, decision.new_epoch);
  const bool possible = awaited && !group_ && !decision_ && !topology_.ranks_per_node.empty() &&
                        static_cast<int>(pending_.size()) == options_.ranks &&
                        pending_.begin()->second->request.job_id == decision.job_id;
  if (!possible) {  // a worker or a node has gone while the decision was on its way
    link_->Broadcast({decision.new_epoch,
                      AbortNotice{0, ErrorCode::kAborted,
                                  Concat("node ", options_.node, " lost a worker or a peer")}});
    ProposeIfComplete();
    return;
  }
  if (link_ != nullptr) store_ = std::make_shared<PeerStore>(decision.new_epoch, *link_);
  decision_ = decision;
  for (const auto& [local, member] : pending_) forming_events_.push_back(member->events);
  forming_ = std::exchange(pending_, {});
  // What other nodes said may have overtaken the decision.
  for (const auto& [node, message] : std::exchange(early_, {})) OnPeerMessageEarly(node, message);
}

void Engine::Impl::OnPeerMessageEarly(int node, const PeerMessage& message) {
  const bool forming = IsForming() && message.epoch == decision_->new_epoch;
  if (group_ || (!forming && message.epoch <= epoch_seen_)) return;  // of a former epoch
  if (forming) {
    if (const auto* entry = std::get_if<StoreEntry>(&message.body)) {
      store_->Add(*entry);
      return;
    }
    if (const auto* abort = std::get_if<AbortNotice>(&message.body)) {
      SpoilForming(Error(abort->code, abort->message));
      return;
    }
  }
  if (early_.size() < kEarlyMessagesMax) {
    early_.emplace_back(node, message);
  } else {
    SpoilForming(Error(ErrorCode::kResourceExhausted,
                       Concat("node ", node, " sends too much before this node has joined")));
  }
}

void Engine::Impl::SpoilForming(const Error& error) {
  if (!IsForming()) return;
  if (!forming_failure_) forming_failure_ = error;
  if (store_) store_->Abort(error.what());
}

void Engine::Impl::EndGroup() {
  std::unique_ptr<Group> group;
  {
    absl::MutexLock lock(&mutex_);
    attached_.clear();  // nobody reaches the members any more
    AddToTotals(*group_);
    group = std::move(group_);
    group_ = nullptr;
    decision_.emplace();  // keeps new groups out, and the job in, until this one is gone
    decision_->job_id = group->job().id();
  }
  group->Teardown();
  absl::MutexLock lock(&mutex_);
  group->DropUnfinishedStep();
  const std::string job_id = group->job().id();
  const bool drop = group->DropsJob();
  spdlog::info(Concat("epoch ", group->epoch(), ": job '", job_id, "' ",
                      drop ? "dropped" : "detached", " at step ", group->job().step));
  group.reset();
  if (drop) jobs_.erase(job_id);
  decision_.reset();
  ProposeIfComplete();
}

void Engine::Impl::FaultPending(const Error& error) {
  for (auto& [local, member] : pending_) member->events->OnFault(error);
  pending_.clear();
  proposed_ = false;
}

void Engine::Impl::Withdraw(const std::string& reason) {
  if (!proposed_) return;
  proposed_ = false;
  Proposal proposal;
  proposal.withdrawn = true;
  proposal.reason = reason;
  if (options_.node == 0) {
    proposals_.erase(0);
  } else {
    link_->Send(0, {epoch_seen_, proposal});
  }
}

std::string Engine::Impl::MissingText() const {
  if (topology_.ranks_per_node.empty()) {
    return link_ == nullptr ? "the other nodes" : link_->WaitingFor();
  }
  std::string missing;
  for (int local = 0; local < options_.ranks; ++local) {
    if (pending_.contains(local)) continue;
    missing +=
        Concat(missing.empty() ? "" : ", ", "rank ", topology_.FirstRank(topology_.node) + local);
  }
  if (!missing.empty()) return missing;
  return group_ || decision_ ? "the former group to end" : "the workers of the other nodes";
}

void Engine::Impl::WatchPending(Clock::time_point now) {
  if (pending_.empty() || stopping_) return;
  Clock::time_point oldest = now;
  for (const auto& [local, member] : pending_) oldest = std::min(oldest, member->attached_at);
  if (now - oldest > options_.join_deadline) {
    const Error error(ErrorCode::kDeadlineExceeded, Concat("not all ranks were attached within ",
                                                           options_.join_deadline.count() / 1000.0,
                                                           " s: waiting for ", MissingText()));
    Withdraw(error.what());
    FaultPending(error);
    return;
  }
  if (now - pending_warned_ < options_.late_warning) return;
  pending_warned_ = now;
  const std::string text = Concat("waiting for ", MissingText());
  spdlog::warn(text);
  for (const auto& [local, member] : pending_) member->events->OnWarning(text);
}

void Engine::Impl::OnPeerMessage(int node, const PeerMessage& message) {
  absl::MutexLock lock(&mutex_);
  if (const auto* proposal = std::get_if<Proposal>(&message.body)) {
    if (options_.node == 0) Deliver(node, *proposal);
    return;
  }
  if (const auto* decision = std::get_if<Decision>(&message.body)) {
    if (node == 0) Accept(*decision);
    return;
  }
  if (group_ && message.epoch == group_->epoch()) {
    group_->OnPeerMessage(node, message);
  } else {
    OnPeerMessageEarly(node, message);
  }
}

void Engine::Impl::OnPeerLost(int node, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  topology_.ranks_per_node.clear();
  proposals_.erase(node);
  proposals_.erase(options_.node);
  // Of another node's loss only node 0 forgets what this node proposed to it.
  if (options_.node == 0 || node == 0) proposed_ = false;
  std::erase_if(early_, [&](const auto& entry) { return entry.first == node; });
  SpoilForming(Error(ErrorCode::kAborted, Concat("node ", node, " is lost: ", reason)));
  if (group_) group_->OnPeerLost(node, reason);
}

void Engine::Impl::OnMembership(const std::vector<int>& ranks) {
  absl::MutexLock lock(&mutex_);
  topology_.ranks_per_node = ranks;
  for (auto it = pending_.begin(); it != pending_.end();) {
    try {
      CheckPlace(it->second->request);
      ++it;
    } catch (const Error& error) {
      Withdraw(error.what());
      it->second->events->OnFault(error);
      it = pending_.erase(it);
    }
  }
  ProposeIfComplete();
}

}  // namespace zerod
