// Engine: the control thread forms groups, ends them and watches the clock.

#include <algorithm>

#include <spdlog/spdlog.h>

#include "absl/time/time.h"
#include "proto/contract/error.h"
#include "server/engine/engine_impl.h"
#include "server/engine/formation.h"

namespace zerod {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

bool Engine::Impl::SomethingToDo() const {
  return stopping_ || (group_ && group_->over()) || (decision_ && !group_);
}

void Engine::Impl::ControlLoop() {
  for (;;) {
    bool end = false;
    bool form = false;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return SomethingToDo(); };
      mutex_.AwaitWithTimeout(absl::Condition(&ready), kTick);
      const Clock::time_point now = Clock::now();
      if (group_) group_->CheckLateness(now);
      WatchPending(now);
      end = group_ && group_->over();
      form = !group_ && decision_ && !stopping_;
      if (stopping_ && !group_) return;
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
  proposed_ = false;
  if (!decision.accepted) {
    FaultPending(Error(decision.code, decision.message));
    return;
  }
  epoch_seen_ = std::max(epoch_seen_, decision.new_epoch);
  if (link_ != nullptr) store_ = std::make_shared<PeerStore>(decision.new_epoch, *link_);
  decision_ = decision;
  // Entries of other nodes may have overtaken the decision.
  for (const auto& [node, message] : early_) {
    if (message.epoch != decision.new_epoch) continue;
    if (const auto* entry = std::get_if<StoreEntry>(&message.body)) store_->Add(*entry);
  }
}

Group::Setup Engine::Impl::PrepareGroup(const Decision& decision) {
  if (static_cast<int>(pending_.size()) < options_.ranks) {
    throw Error(ErrorCode::kAborted, "a worker left while the group was forming");
  }
  Group::Setup setup;
  setup.options = &options_;
  setup.mutex = &mutex_;
  setup.topology = topology_;
  setup.epoch = decision.new_epoch;
  setup.created = decision.created;
  setup.link = link_;
  const AttachRequest& request = pending_.begin()->second->request;
  setup.cache_bytes = request.cache_bytes < 0 ? options_.cache_bytes : request.cache_bytes;
  setup.gradient_slots = request.gradient_slots;
  if (decision.created) {
    Placement placement;
    placement.job_id = decision.job_id;
    placement.topology = topology_;
    placement.mesh = {topology_.World() / request.tensor_parallel, request.tensor_parallel};
    placement.huge_pages = options_.huge_pages;
    placement.poison = options_.failpoints.poison_fresh_memory;
    jobs_[decision.job_id] = std::make_unique<Job>(std::move(placement));
  }
  setup.job = jobs_.at(decision.job_id).get();
  setup.job->epoch = decision.new_epoch;
  for (auto& [local, member] : pending_) setup.members.push_back(std::move(member));
  pending_.clear();
  return setup;
}

void Engine::Impl::ConnectCommunicators(Group::Setup& setup, std::shared_ptr<PeerStore> store) {
  if (store == nullptr) return;
  CommunicatorOptions options;
  options.node = options_.node;
  options.node_count = options_.node_count;
  options.host = setup.link->DataHost();
  options.name = "gather";
  setup.gathers = MakeGlooCommunicator(options, *store);
  options.name = "reduce";
  setup.reduces = MakeGlooCommunicator(options, *store);
}

void Engine::Impl::FormGroup() {
  Decision decision;
  std::shared_ptr<PeerStore> store;
  Group::Setup setup;
  try {
    {
      absl::MutexLock lock(&mutex_);
      decision = *decision_;
      store = store_;
      setup = PrepareGroup(decision);
    }
    ConnectCommunicators(setup, store);
  } catch (const Error& error) {
    absl::MutexLock lock(&mutex_);
    const Error text(error.code(),
                     Concat("forming the group of job '", decision.job_id, "': ", error.what()));
    for (auto& member : setup.members) {
      if (member) member->events->OnFault(text);
    }
    FaultPending(text);
    if (decision.created) jobs_.erase(decision.job_id);
    if (link_ != nullptr) {
      link_->Broadcast({decision.new_epoch, AbortNotice{0, text.code(), text.what()}});
    }
    decision_.reset();
    store_.reset();
    return;
  }
  absl::MutexLock lock(&mutex_);
  for (const auto& member : setup.members) attached_[member->attach_id] = member.get();
  group_ = std::make_unique<Group>(std::move(setup));
  decision_.reset();
  store_.reset();
  spdlog::info("epoch {}: job '{}' {} at step {}", group_->epoch(), decision.job_id,
               decision.created ? "created" : "attached", group_->job().step);
  group_->Welcome();
  for (const auto& [node, message] : std::exchange(early_, {})) {
    if (message.epoch == group_->epoch()) group_->OnPeerMessage(node, message);
  }
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
  const bool unfinished = !group->job().sealed;
  spdlog::info("epoch {}: job '{}' detached at step {}", group->epoch(), job_id, group->job().step);
  const bool drop = group->drops_job() || unfinished;
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
  spdlog::warn("{}", text);
  for (const auto& [local, member] : pending_) member->events->OnWarning(text);
}

void Engine::Impl::OnPeerMessage(int node, const PeerMessage& message) {
  absl::MutexLock lock(&mutex_);
  if (const auto* proposal = std::get_if<Proposal>(&message.body)) {
    Deliver(node, *proposal);
    return;
  }
  if (const auto* decision = std::get_if<Decision>(&message.body)) {
    if (node == 0) Accept(*decision);
    return;
  }
  if (group_ && message.epoch == group_->epoch()) {
    group_->OnPeerMessage(node, message);
    return;
  }
  if (message.epoch < epoch_seen_) return;  // of a former epoch
  if (store_ && decision_ && message.epoch == decision_->new_epoch) {
    if (const auto* entry = std::get_if<StoreEntry>(&message.body)) store_->Add(*entry);
    if (const auto* abort = std::get_if<AbortNotice>(&message.body)) store_->Abort(abort->message);
  }
  if (!group_) early_.emplace_back(node, message);
}

void Engine::Impl::OnPeerLost(int node, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  topology_.ranks_per_node.clear();
  proposals_.clear();
  proposed_ = false;
  if (store_) store_->Abort(Concat("node ", node, " is lost: ", reason));
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
      it->second->events->OnFault(error);
      it = pending_.erase(it);
    }
  }
  ProposeIfComplete();
}

}  // namespace zerod
