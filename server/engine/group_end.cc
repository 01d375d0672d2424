// Group: how an epoch ends: leaving, dying workers, divergence, late ranks.

#include <algorithm>
#include <chrono>

#include <spdlog/spdlog.h>

#include "proto/contract/error.h"
#include "server/engine/group.h"

namespace zerod {
namespace {

/// How long nodes wait for each other's word on which step can still be finished.
constexpr std::chrono::seconds kSettleTimeout{10};

std::string RanksText(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) text += Concat(i == 0 ? " " : ", ", ranks[i]);
  return text;
}

}  // namespace

void Group::Leave(Member& member, bool drop) {
  mutex_.AssertHeld();
  if (member.state != Member::State::kActive || over_) return;
  member.state = Member::State::kLeft;
  std::ranges::fill(member.leases, 0);
  drop_ = drop_ || drop;
  member.events->OnDetached();
  const bool all_left = std::ranges::all_of(
      members_, [](const auto& other) { return other->state == Member::State::kLeft; });
  if (!all_left) return;
  ends_[topology_.node] = EndNotice{drop_};
  Broadcast(EndNotice{drop_});
  CheckEnded();
}

void Group::CheckEnded() {
  if (over_ || aborting_ || static_cast<int>(ends_.size()) < topology_.NodeCount()) return;
  if (reduces_outstanding_ > 0 || updates_outstanding_ > 0) return;
  if (node_lane_done_ < node_lane_posted_ || pending_step_ || pending_scalar_) return;
  if (!gated_.empty()) return;
  over_ = true;
  cancelled_ = true;
}

void Group::Lose(Member& member, const std::string& reason) {
  mutex_.AssertHeld();
  if (member.state != Member::State::kActive || over_) return;
  member.state = Member::State::kDead;
  std::ranges::fill(member.leases, 0);
  Abort(Error(ErrorCode::kAborted, Concat("rank ", member.rank, " (", member.request.program,
                                          ", pid ", member.request.pid, ") is gone: ", reason)));
}

void Group::OnPeerLost(int node, const std::string& reason) {
  mutex_.AssertHeld();
  if (over_) return;
  // A lost node can't answer any more: what it had contributed is here already, or never will be.
  uint64_t contributed = decided_ticket_;
  for (const auto& [ticket, parts] : step_contributions_) {
    if (parts.contains(node)) contributed = std::max(contributed, ticket);
  }
  horizons_.try_emplace(node, contributed);
  lost_.insert(node);
  if (aborting_) LowerHorizon();
  Abort(Error(ErrorCode::kAborted, Concat("node ", node, " is lost: ", reason)));
  CheckSettled();
}

uint64_t Group::SubmittedStep() const {
  uint64_t ticket = UINT64_MAX;
  for (const auto& member : members_) ticket = std::min(ticket, member->last_step_ticket);
  return ticket;
}

uint64_t Group::ContributedStep() const {
  return pending_step_ && pending_step_->contributed ? pending_step_->operation.ticket
                                                     : decided_ticket_;
}

/// A step to which this node has contributed may be decided elsewhere, so it is always included.
uint64_t Group::OwnHorizon() const {
  uint64_t ticket = broken_ ? ContributedStep() : SubmittedStep();
  for (int node : lost_) ticket = std::min(ticket, horizons_.at(node));
  return ticket;
}

void Group::LowerHorizon() {
  uint64_t& own = horizons_[topology_.node];
  if (OwnHorizon() >= own) return;
  own = OwnHorizon();
  Broadcast(AbortNotice{own, error_->code(), error_->what()});
}

void Group::Break(const Error& error) {
  if (over_) return;
  broken_ = true;
  if (aborting_) LowerHorizon();
  Abort(error);
  CheckSettled();
}

void Group::Abort(const Error& error) {
  mutex_.AssertHeld();
  if (aborting_ || over_) return;
  aborting_ = true;
  error_ = error;
  abort_began_ = std::chrono::steady_clock::now();
  spdlog::warn(Concat("epoch ", epoch_, " of job '", job_.id(), "' ends: ", error.what()));
  horizons_[topology_.node] = OwnHorizon();
  Broadcast(AbortNotice{horizons_[topology_.node], error.code(), error.what()});
  CheckSettled();
}

void Group::CheckSettled() {
  if (!aborting_ || over_ || static_cast<int>(horizons_.size()) < topology_.NodeCount()) return;
  uint64_t horizon = UINT64_MAX;
  for (const auto& [node, ticket] : horizons_) horizon = std::min(horizon, ticket);
  if (decided_ticket_ >= horizon) Finish();
}

bool Group::DropsJob() const {
  mutex_.AssertHeld();
  if (!job_.sealed) return true;
  return aborting_ ? created_ && job_.step == 0 : drop_;
}

void Group::Finish() {
  over_ = true;
  cancelled_ = true;
  if (gather_communicator_) gather_communicator_->Abort();
  if (reduce_communicator_) reduce_communicator_->Abort();
  const bool dropped = std::ranges::any_of(
      members_,
      [decided = decided_ticket_](const auto& member) { return member->last_ticket > decided; });
  const std::string outcome =
      DropsJob() ? std::string("' had taken no step and is dropped")
                 : Concat("' stands at step ", job_.step,
                          dropped ? ", what came after was dropped on all ranks" : "");
  const Error error(error_->code(), Concat(error_->what(), "; job '", job_.id(), outcome));
  for (const auto& member : members_) {
    std::ranges::fill(member->leases, 0);
    if (member->state != Member::State::kActive) continue;
    member->state = Member::State::kDead;
    member->events->OnFault(error);
    zerod::Abort(member->page());
  }
}

void Group::Teardown() {
  lanes_.clear();
  node_lane_.reset();
  gather_communicator_.reset();
  reduce_communicator_.reset();
}

void Group::DropUnfinishedStep() {
  mutex_.AssertHeld();
  for (const auto& layer : job_.layers()) {
    layer->accumulated = false;
    std::fill(layer->active.begin(), layer->active.end(), false);
    ZEROD_CHECK(layer->version == job_.step, "layer '", layer->name(), "' is at version ",
                layer->version, ", the job at step ", job_.step);
    if (topology_.NodeCount() == 1) continue;
    try {
      layer->PunchRemote();
    } catch (const Error& error) {  // the memory stays in use; its content is never read
      spdlog::warn(Concat("layer '", layer->name(), "': ", error.what()));
    }
  }
}

void Group::WarnLate(const OrderCheck::Late& late) {
  warned_ticket_ = late.ticket;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(late.waited).count();
  const std::string text = Concat(RanksText(late.ranks), late.ranks.size() == 1 ? " is" : " are",
                                  " late: rank ", late.waiting_rank, " submitted ", late.operation,
                                  " (operation ", late.ticket, ") ", waited, " s ago");
  spdlog::warn(text);
  for (const auto& member : members_) {
    if (member->state == Member::State::kActive) member->events->OnWarning(text);
  }
}

Error Group::LateError(const OrderCheck::Late& late) const {
  for (int rank : late.ranks) {
    const int node = topology_.NodeOf(rank);
    const bool left = node == topology_.node ? members_[rank - topology_.FirstRank(node)]->state ==
                                                   Member::State::kLeft
                                             : ends_.contains(node);
    if (!left) continue;
    return Error(ErrorCode::kAborted,
                 Concat("rank ", rank, " has detached after operation ", order_.last_ticket(rank),
                        ", but rank ", late.waiting_rank, " submitted ", late.operation,
                        " (operation ", late.ticket, "); all ranks must run the same program"));
  }
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(late.waited).count();
  return Error(ErrorCode::kDeadlineExceeded,
               Concat(RanksText(late.ranks), " didn't submit ", late.operation, " (operation ",
                      late.ticket, ") within ", waited, " ms of rank ", late.waiting_rank));
}

void Group::ExcusePause(std::chrono::steady_clock::duration pause) {
  mutex_.AssertHeld();
  order_.Excuse(pause);
  abort_began_ += pause;
}

void Group::CheckLateness(std::chrono::steady_clock::time_point now) {
  mutex_.AssertHeld();
  if (over_) return;
  if (aborting_) {
    if (now - abort_began_ > kSettleTimeout) {
      spdlog::error(
          Concat("epoch ", epoch_, ": not all nodes said what they can finish within 10 s"));
      Finish();
    }
    return;
  }
  const auto late = order_.FindLate(now);
  if (!late || late->ranks.empty()) return;
  const Error error = LateError(*late);
  if (error.code() == ErrorCode::kAborted || late->waited > options_.late_deadline) {
    Abort(error);
  } else if (late->waited > options_.late_warning && warned_ticket_ != late->ticket) {
    WarnLate(*late);
  }
}

}  // namespace zerod
