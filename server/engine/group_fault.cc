// Group: what a rank may not submit.

#include <algorithm>
#include <cmath>

#include "proto/contract/error.h"
#include "server/engine/group.h"

namespace zerod {
namespace {

constexpr uint64_t kTicketMax = UINT32_MAX;  // what a SegmentTag can name

}  // namespace

std::optional<Error> Group::FindFault(const Member& member, const Operation& operation) const {
  auto fault = [&](const std::string& what) {
    return Error(ErrorCode::kInvalidArgument,
                 Concat("rank ", member.rank, " submitted ", OperationKindName(operation.kind),
                        " (operation ", operation.ticket, "): ", what));
  };
  if (operation.ticket != member.last_ticket + 1) {
    return fault(Concat("expected operation ", member.last_ticket + 1));
  }
  if (operation.ticket > kTicketMax) {
    return fault(Concat("an attach ends after ", kTicketMax, " operations; attach again"));
  }
  if (operation.ticket > order_.compared() + kOperationsAheadMax) {
    return fault(Concat("it is ", kOperationsAheadMax, " operations ahead of another rank"));
  }
  const bool sealed = residency_.has_value();
  switch (operation.kind) {
    case OperationKind::kRegister:
    case OperationKind::kSeal:
      if (sealed) return fault("the layers are sealed already");
      return std::nullopt;
    case OperationKind::kStep:
      if (!sealed) return fault("seal the layers first");
      if (!std::isfinite(operation.step.gradient_divisor) || operation.step.gradient_divisor == 0) {
        return fault(Concat("gradient_divisor is ", operation.step.gradient_divisor));
      }
      if (operation.private_state.size() > static_cast<size_t>(kPrivateStateBytesMax)) {
        return fault("more than 16 MiB of private state");
      }
      [[fallthrough]];
    case OperationKind::kScalar:
      if (operation.values.size() > kValuesMax) {
        return fault(Concat(operation.values.size(), " values, at most ", kValuesMax));
      }
      return std::nullopt;
    case OperationKind::kWrite:
      if (operation.content != Content::kParameter) return fault("only parameters can be written");
      if (operation.source_rank < 0 || operation.source_rank >= topology_.World()) {
        return fault(Concat("no rank ", operation.source_rank));
      }
      if (operation.source_rank == member.rank && member.stage_layer != operation.layer) {
        return fault(Concat("no staging buffer for layer ", operation.layer));
      }
      return FindLayerFault(member, operation);
    case OperationKind::kImport:
      if (job_.sealed) return fault("only a new job imports its values; drop the old one first");
      return FindLayerFault(member, operation);
    case OperationKind::kRead:
      if (operation.wants_data && member.stage_layer != operation.layer) {
        return fault(Concat("no staging buffer for layer ", operation.layer));
      }
      return FindLayerFault(member, operation);
    case OperationKind::kGather:
    case OperationKind::kRelease:
    case OperationKind::kReduce:
      if (!sealed) return fault("seal the layers first");
      return FindLayerFault(member, operation);
  }
  return fault("unknown kind");
}

std::optional<Error> Group::FindLayerFault(const Member& member, const Operation& operation) const {
  auto fault = [&](const std::string& what) {
    return Error(ErrorCode::kInvalidArgument,
                 Concat("rank ", member.rank, " submitted ", OperationKindName(operation.kind),
                        " (operation ", operation.ticket, "): ", what));
  };
  if (operation.layer < 0 || operation.layer >= member.registered) {
    return fault(Concat("no layer ", operation.layer, " among ", member.registered));
  }
  const LayerStore& layer = *job_.layers()[operation.layer];
  const bool leased = member.leases[operation.layer] > 0 ||
                      std::ranges::any_of(member.gathers, [&](const Member::PendingGather& g) {
                        return g.layer == operation.layer && !g.released;
                      });
  switch (operation.kind) {
    case OperationKind::kGather:
      if (operation.version != member.version) {
        return fault(Concat("version ", operation.version, " of layer '", layer.name(),
                            "', but after its steps so far it is ", member.version));
      }
      break;
    case OperationKind::kRelease:
      if (!leased) return fault(Concat("layer '", layer.name(), "' isn't leased"));
      break;
    case OperationKind::kWrite:
      if (leased) return fault(Concat("layer '", layer.name(), "' is leased; release it first"));
      break;
    case OperationKind::kImport:
      if (operation.import_from.size() != layer.plan().tensors.size()) {
        return fault(Concat(operation.import_from.size(), " places in files for ",
                            layer.plan().tensors.size(), " tensors of layer '", layer.name(), "'"));
      }
      break;
    case OperationKind::kReduce:
      if (!layer.HasTrainable()) return fault(Concat("layer '", layer.name(), "' is frozen"));
      if (operation.slot < 0 || operation.slot >= static_cast<int>(member.slots.size())) {
        return fault(Concat("no gradient slot ", operation.slot));
      }
      if (operation.has_gradient.size() != layer.plan().tensors.size()) {
        return fault(Concat(operation.has_gradient.size(), " gradient bits for ",
                            layer.plan().tensors.size(), " tensors of layer '", layer.name(), "'"));
      }
      break;
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace zerod
