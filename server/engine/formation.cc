#include "server/engine/formation.h"

#include <algorithm>

namespace zerod {
namespace {

Decision Refuse(const std::string& job_id, ErrorCode code, const std::string& message) {
  Decision decision;
  decision.job_id = job_id;
  decision.code = code;
  decision.message = message;
  return decision;
}

/// Names the first option in which a node differs from node `first_node`; empty if none.
std::string FirstOptionDifference(int first_node, const Proposal& first, int node,
                                  const Proposal& other) {
  auto differ = [&](const char* what, const auto& here, const auto& there) {
    if (here == there) return std::string();
    return Concat(what, " is ", here, " on node ", first_node, " and ", there, " on node ", node,
                  "; start all workers with the same options");
  };
  for (std::string text : {differ("the job", first.job_id, other.job_id),
                           differ("the attach mode", first.mode, other.mode),
                           differ("tensor_parallel", first.tensor_parallel, other.tensor_parallel),
                           differ("window_bytes", first.window_bytes, other.window_bytes),
                           differ("cache_bytes", first.cache_bytes, other.cache_bytes),
                           differ("gradient_slots", first.gradient_slots, other.gradient_slots)}) {
    if (!text.empty()) return text;
  }
  return {};
}

/// Names the first difference in what the nodes hold of an existing job; empty if none.
std::string FirstStateDifference(int first_node, const Proposal& first, int node,
                                 const Proposal& other) {
  const std::string job = Concat("job '", first.job_id, "' ");
  if (first.exists != other.exists) {
    return Concat(job, "exists on node ", first.exists ? first_node : node, " but not on node ",
                  first.exists ? node : first_node, "; drop it (zeroctl drop ", first.job_id,
                  ") and create it again");
  }
  if (first.plan_hash != other.plan_hash) {
    return Concat(job, "has different layers on nodes ", first_node, " and ", node);
  }
  if (first.step != other.step) {
    return Concat(job, "is at step ", first.step, " on node ", first_node, " and ", other.step,
                  " on node ", node);
  }
  return {};
}

/// The decision but for the numbers that it answers.
Decision Decide(const std::map<int, Proposal>& proposals) {
  const auto& [first_node, first] = *proposals.begin();
  uint64_t epoch_seen = 0;
  for (const auto& [node, proposal] : proposals) {
    epoch_seen = std::max(epoch_seen, proposal.epoch_seen);
    const std::string option = FirstOptionDifference(first_node, first, node, proposal);
    if (!option.empty()) return Refuse(first.job_id, ErrorCode::kInvalidArgument, option);
    const std::string state = FirstStateDifference(first_node, first, node, proposal);
    if (!state.empty()) return Refuse(first.job_id, ErrorCode::kFailedPrecondition, state);
  }
  if (first.mode == 1 && first.exists) {
    return Refuse(first.job_id, ErrorCode::kAlreadyExists,
                  Concat("job '", first.job_id, "' exists already, at step ", first.step,
                         "; attach to it or drop it (zeroctl drop ", first.job_id, ")"));
  }
  if (first.mode == 2 && !first.exists) {
    return Refuse(first.job_id, ErrorCode::kInvalidArgument,
                  Concat("there is no job '", first.job_id, "' to attach to (see zeroctl jobs)"));
  }
  Decision decision;
  decision.job_id = first.job_id;
  decision.accepted = true;
  decision.created = !first.exists;
  decision.new_epoch = epoch_seen + 1;
  return decision;
}

}  // namespace

Decision DecideFormation(const std::map<int, Proposal>& proposals) {
  Decision decision = Decide(proposals);
  for (const auto& [node, proposal] : proposals) decision.numbers.push_back(proposal.number);
  return decision;
}

}  // namespace zerod
