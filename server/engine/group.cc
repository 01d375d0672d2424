#include "server/engine/group.h"

#include <algorithm>

#include "proto/contract/error.h"
#include "server/engine/group_guard.h"
#include "server/layout/difference.h"
#include "server/optimizer/factory.h"

namespace zerod {
Group::Group(Setup setup)
    : options_(*setup.options),
      mutex_(*setup.mutex),
      topology_(setup.topology),
      epoch_(setup.epoch),
      job_(*setup.job),
      created_(setup.created),
      link_(setup.link),
      cache_bytes_(setup.cache_bytes),
      gradient_slots_(setup.gradient_slots),
      kernels_(SelectKernels(DetectInstructionSet())),
      uses_node_lane_(topology_.NodeCount() > 1 || options_.failpoints.gather_delay.count() > 0),
      members_(std::move(setup.members)),
      gather_communicator_(std::move(setup.gathers)),
      reduce_communicator_(std::move(setup.reduces)),
      exchange_(topology_, gather_communicator_.get()),
      order_(topology_.World(), [this](const Fingerprint& f) { return Describe(f); }) {
  for (int local = 0; local < LocalRanks(); ++local) {
    members_[local]->version = job_.step;
    reduce_buffers_.emplace_back(options_.failpoints.poison_fresh_memory);
    lanes_.push_back(std::make_unique<Lane>(Concat("lane-", members_[local]->rank)));
  }
  node_lane_ = std::make_unique<Lane>("node-lane");
}

Group::~Group() = default;

void Group::Welcome() {
  mutex_.AssertHeld();
  for (const auto& member : members_) {
    struct Welcome welcome;
    welcome.epoch = epoch_;
    welcome.job_id = job_.id();
    welcome.created = created_;
    welcome.step = job_.step;
    welcome.mesh = job_.mesh();
    welcome.node = topology_.node;
    welcome.node_count = topology_.NodeCount();
    welcome.token = member->token;
    welcome.private_state = job_.private_state[member->local_rank];
    welcome.gradient_slots = gradient_slots_;
    welcome.cache_bytes = cache_bytes_;
    welcome.deadline_ms = options_.late_deadline.count();
    member->events->OnWelcome(welcome);
  }
}

std::string Group::Describe(const Fingerprint& fingerprint) const {
  std::string text = OperationKindName(fingerprint.kind);
  if (fingerprint.layer < 0) return text;
  const size_t index = static_cast<size_t>(fingerprint.layer);
  if (index >= job_.layers().size()) return Concat(text, " of layer ", index);
  return Concat(text, " of layer ", index, " '", job_.layers()[index]->name(), "'");
}

void Group::Submit(Member& member, std::vector<Operation> operations) {
  mutex_.AssertHeld();
  if (aborting_ || over_ || member.state != Member::State::kActive) return;
  try {
    for (Operation& operation : operations) {
      if (!Admit(member, operation) || aborting_ || over_) break;
    }
    // What came before a fault counts: the epoch's last step may be in it.
    order_.Advance(member.rank, member.last_ticket);
    SendProgress();
    Dispatch();
  } catch (const std::exception& error) {
    Break(AsError(error));
  }
}

bool Group::Admit(Member& member, Operation& operation) {
  if (std::optional<Error> fault = FindFault(member, operation)) {
    Abort(*fault);
    return false;
  }
  const Fingerprint fingerprint = FingerprintOf(operation);
  const auto now = std::chrono::steady_clock::now();
  if (std::optional<std::string> difference = order_.Record(member.rank, fingerprint, now)) {
    Abort(Error(ErrorCode::kAborted, *difference));
    return false;
  }
  member.last_ticket = operation.ticket;
  member.last_kind = operation.kind;
  const size_t position = operation.ticket - first_ticket_;
  if (position >= tickets_.size()) {
    tickets_.resize(position + 1);
    if (link_ != nullptr) outgoing_.fingerprints.push_back({fingerprint, member.rank});
  }
  Ticket& ticket = tickets_[position];
  ticket.operations.resize(LocalRanks());
  ticket.stages.resize(LocalRanks());
  ticket.stages[member.local_rank] = member.stage;
  ++ticket.submitted;
  ApplyToMember(member, operation);
  ticket.operations[member.local_rank] = std::move(operation);
  return true;
}

void Group::ApplyToMember(Member& member, const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kRegister:
      RegisterLayer(member, operation);
      break;
    case OperationKind::kGather:
      member.gathers.push_back({operation.ticket, operation.layer, operation.version});
      if (!uses_node_lane_) PublishLocalGathers(member);
      break;
    case OperationKind::kWrite:
      unwritten_[operation.ticket] = operation.layer;
      break;
    case OperationKind::kRelease: {
      int& leases = member.leases[operation.layer];
      if (leases > 0) {
        --leases;
        break;
      }
      // A prefetch that is given back before it came: it completes without a lease.
      const auto pending = std::ranges::find_if(member.gathers, [&](const auto& gather) {
        return gather.layer == operation.layer && !gather.released;
      });
      if (pending != member.gathers.end()) pending->released = true;
      break;
    }
    case OperationKind::kStep:
      // It ends every lease that was taken before it, also those that are still to come.
      std::ranges::fill(member.leases, 0);
      for (Member::PendingGather& gather : member.gathers) gather.released = true;
      member.last_step_ticket = operation.ticket;
      ++member.version;
      break;
    default:
      break;
  }
}

void Group::RegisterLayer(Member& member, const Operation& operation) {
  const size_t index = member.registered;
  try {
    if (index == job_.layers().size()) {
      if (job_.sealed) {
        throw Error(
            ErrorCode::kFailedPrecondition,
            Concat("job '", job_.id(), "' has ", index, " layers; rank ", member.rank,
                   " registers one more, '", operation.layer_spec.name,
                   "'; attach with the same model or drop the job (zeroctl drop ", job_.id(), ")"));
      }
      job_.AddLayer(operation.layer_spec);
    }
    const LayerStore& layer = job_.layer(static_cast<int>(index));
    if (auto difference = FirstDifference(operation.layer_spec, layer.plan().spec)) {
      throw Error(
          ErrorCode::kFailedPrecondition,
          Concat("rank ", member.rank, " registers another model than job '", job_.id(),
                 "' has: ", *difference,
                 "; attach with the same model or drop the job (zeroctl drop ", job_.id(), ")"));
    }
    ++member.registered;
    member.leases.resize(member.registered);
    member.events->OnPlan(operation.ticket, static_cast<int>(index), layer.plan());
  } catch (const Error& error) {
    Abort(error);
  }
}

void Group::SendProgress() {
  if (link_ == nullptr) return;
  outgoing_.last_tickets.clear();
  for (const auto& member : members_) outgoing_.last_tickets.push_back(member->last_ticket);
  Broadcast(std::exchange(outgoing_, {}));
}

void Group::Broadcast(decltype(PeerMessage::body) body) {
  if (link_ != nullptr) link_->Broadcast({epoch_, std::move(body)});
}

void Group::NoteGather(int layer) {
  ++job_.layer(layer).gathers;
  ++gather_count_;
  if (std::ranges::find(forward_order_, layer) == forward_order_.end()) {
    forward_order_.push_back(layer);
  }
}

void Group::Dispatch() {
  while (!tickets_.empty() && tickets_.front().submitted == LocalRanks()) {
    Dispatched next;
    next.ticket = first_ticket_++;
    next.operations = std::move(tickets_.front().operations);
    next.stages = std::move(tickets_.front().stages);
    tickets_.pop_front();
    const OperationKind kind = next.first().kind;
    if (kind == OperationKind::kGather) NoteGather(next.first().layer);
    if (kind == OperationKind::kRegister) continue;
    const bool gather = kind == OperationKind::kGather || kind == OperationKind::kRelease;
    if (kind == OperationKind::kStep) next.forward_order = std::exchange(forward_order_, {});
    // Gathers may overtake reduces and steps that wait for other nodes, but all work of the node's
    // lane keeps its order: the same on all nodes, and no gather before the step it waits for.
    if (gated_for_node_lane_ == 0) {
      if (gather) {
        RunOnNodeLane(next.first());
        continue;
      }
      if (kind == OperationKind::kStep) PostStepToNodeLane(next);
    }
    if (next.IsForNodeLane()) ++gated_for_node_lane_;
    gated_.push_back(std::move(next));
  }
  RunGated();
}

bool Group::Dispatched::IsForNodeLane() const {
  switch (first().kind) {
    case OperationKind::kGather:
    case OperationKind::kRelease:
    case OperationKind::kRead:
    case OperationKind::kWrite:
    case OperationKind::kImport:
      return true;
    case OperationKind::kStep:
      return !on_node_lane;
    default:
      return false;
  }
}

bool Group::GateIsOpen() const {
  if (gated_.empty() || pending_step_ || pending_scalar_ || data_outstanding_ > 0) return false;
  if (over_ || broken_) return false;
  const OperationKind kind = gated_.front().first().kind;
  const bool gather = kind == OperationKind::kGather || kind == OperationKind::kRelease;
  return gather || order_.compared() >= gated_.front().ticket;
}

void Group::RunGated() {
  if (running_gated_) return;  // the caller below goes on: no recursion, however many are queued
  running_gated_ = true;
  try {
    while (GateIsOpen()) {
      Dispatched next = std::move(gated_.front());
      gated_.pop_front();
      if (next.IsForNodeLane()) --gated_for_node_lane_;
      Run(std::move(next));
    }
  } catch (const std::exception& error) {
    Break(AsError(error));
  }
  running_gated_ = false;
  CheckEnded();
}

void Group::Run(Dispatched operation) {
  switch (operation.first().kind) {
    case OperationKind::kGather:
    case OperationKind::kRelease:
      RunOnNodeLane(operation.first());
      break;
    case OperationKind::kSeal:
      Seal(operation);
      break;
    case OperationKind::kReduce:
      PostReduce(operation);
      break;
    case OperationKind::kScalar:
      ContributeScalar(operation);
      break;
    case OperationKind::kWrite:
    case OperationKind::kRead:
    case OperationKind::kImport:
      PostData(std::move(operation));
      break;
    case OperationKind::kStep:
      if (!operation.on_node_lane) PostStepToNodeLane(operation);
      pending_step_ = PendingStep{std::move(operation), false};
      TryContribute();
      break;
    case OperationKind::kRegister:
      break;
  }
}

}  // namespace zerod
