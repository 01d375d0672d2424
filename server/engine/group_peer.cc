// Group: what the other nodes say. Nothing of it is trusted: a peer may run another build.

#include "proto/contract/error.h"
#include "server/engine/group.h"
#include "server/engine/group_guard.h"

namespace zerod {
namespace {

/// A node that has contributed to a step, or a scalar, can at most be one ahead of this one.
constexpr size_t kContributionsMax = 2;

template <typename... Args>
void Require(bool condition, const Args&... what) {
  if (!condition) throw Error(ErrorCode::kDataLoss, Concat(what...));
}

}  // namespace

void Group::OnPeerMessage(int node, const PeerMessage& message) {
  mutex_.AssertHeld();
  if (over_) return;
  try {
    Require(node >= 0 && node < topology_.NodeCount() && node != topology_.node,
            "there is no peer ", node);
    Take(node, message);
  } catch (const std::exception& caught) {
    const Error error = AsError(caught);
    Break(Error(error.code(), Concat("a message of node ", node, ": ", error.what())));
  }
  CheckEnded();
}

void Group::Take(int node, const PeerMessage& message) {
  if (const auto* progress = std::get_if<Progress>(&message.body)) {
    TakeProgress(node, *progress);
  } else if (const auto* step = std::get_if<StepContribution>(&message.body)) {
    Require(step->ticket > decided_ticket_, "step ", step->ticket, " is decided already");
    CheckContribution(node, *step);
    step_contributions_[step->ticket][node] = *step;
    Require(step_contributions_.size() <= kContributionsMax, "it is too many steps ahead");
    TryDecide();
  } else if (const auto* scalar = std::get_if<ScalarContribution>(&message.body)) {
    CheckValues(node, scalar->values.size());
    scalar_contributions_[scalar->ticket][node] = *scalar;
    Require(scalar_contributions_.size() <= kContributionsMax, "it is too many scalars ahead");
    TryCompleteScalar();
  } else if (const auto* abort = std::get_if<AbortNotice>(&message.body)) {
    const auto [known, added] = horizons_.try_emplace(node, abort->horizon_ticket);
    known->second = std::min(known->second, abort->horizon_ticket);
    Abort(Error(abort->code, abort->message));
    CheckSettled();
  } else if (const auto* end = std::get_if<EndNotice>(&message.body)) {
    ends_[node] = *end;
    drop_ = drop_ || end->drop;
  }
}

void Group::TakeProgress(int node, const Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  uint64_t& recorded = peer_tickets_[node];
  for (const RankedFingerprint& entry : progress.fingerprints) {
    Require(entry.fingerprint.ticket == recorded + 1, "operation ", entry.fingerprint.ticket,
            " follows ", recorded);
    Require(
        entry.rank >= 0 && entry.rank < topology_.World() && topology_.NodeOf(entry.rank) == node,
        "rank ", entry.rank, " isn't on it");
    Require(recorded < order_.compared() + kOperationsAheadMax, "it is ", kOperationsAheadMax,
            " operations ahead");
    if (auto difference = order_.Record(entry.rank, entry.fingerprint, now)) {
      Break(Error(ErrorCode::kAborted, *difference));
      return;
    }
    recorded = entry.fingerprint.ticket;
  }
  Require(progress.last_tickets.size() == static_cast<size_t>(topology_.Ranks(node)), "tickets of ",
          progress.last_tickets.size(), " ranks, it has ", topology_.Ranks(node));
  const int first = topology_.FirstRank(node);
  for (size_t i = 0; i < progress.last_tickets.size(); ++i) {
    Require(progress.last_tickets[i] <= recorded, "operation ", progress.last_tickets[i],
            " wasn't described");
    order_.Advance(first + static_cast<int>(i), progress.last_tickets[i]);
  }
  RunGated();
}

void Group::CheckValues(int node, size_t count) const {
  const size_t ranks = topology_.Ranks(node);
  Require(count % ranks == 0 && count <= ranks * kValuesMax, count, " values of ", ranks, " ranks");
}

void Group::CheckContribution(int node, const StepContribution& step) const {
  const size_t ranks = topology_.Ranks(node);
  Require(step.sum_squares.size() == ranks, step.sum_squares.size(), " sums of squares of ", ranks,
          " ranks");
  CheckValues(node, step.values.size());
  for (const auto& [layer, active] : step.active) {
    Require(layer >= 0 && layer < static_cast<int>(job_.layers().size()), "layer ", layer,
            " among ", job_.layers().size());
    const size_t tensors = job_.layer(layer).plan().tensors.size();
    Require(active.size() == tensors, "bits of ", active.size(), " tensors of layer ", layer,
            ", which has ", tensors);
  }
}

}  // namespace zerod
