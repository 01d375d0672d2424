// Group: what moves parameters: gathers, releases, residency, reads, writes, imports, seal.

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include "proto/contract/error.h"
#include "server/engine/group.h"
#include "server/engine/group_guard.h"
#include "server/engine/import_work.h"

namespace zerod {
namespace {

SharedMemory MakeWritable(const std::string& label, int64_t size_bytes,
                          const EngineOptions& options) {
  SharedMemory memory = SharedMemory::Create(label, size_bytes, options.huge_pages);
  if (options.failpoints.poison_fresh_memory) {
    auto* values = reinterpret_cast<float*>(memory.data());
    std::fill_n(values, size_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  }
  return memory;
}

}  // namespace

void Group::Publish(Member& member) {
  const Member::PendingGather gather = member.gathers.front();
  member.gathers.pop_front();
  if (!gather.released) ++member.leases[gather.layer];
  if (member.state == Member::State::kActive) {
    Complete(member.page(), Queue::kGather, gather.ticket);
  }
}

void Group::PublishLocalGathers(Member& member) {
  while (!member.gathers.empty()) {
    const Member::PendingGather& gather = member.gathers.front();
    const uint64_t version = job_.layer(gather.layer).version;
    ZEROD_CHECK(version <= gather.version, "layer ", gather.layer, " is at version ", version);
    if (version < gather.version) return;  // its update will come back here
    const auto unwritten = std::ranges::find_if(unwritten_, [&](const auto& write) {
      return write.first < gather.ticket && write.second == gather.layer;
    });
    if (unwritten != unwritten_.end()) return;  // so will the write
    Publish(member);
  }
}

void Group::PublishAllLocalGathers() {
  if (uses_node_lane_) return;  // the node lane waits for the version itself
  for (const auto& member : members_) PublishLocalGathers(*member);
}

void Group::CompleteAll(Queue queue, uint64_t ticket) {
  for (const auto& member : members_) {
    if (member->state == Member::State::kActive) Complete(member->page(), queue, ticket);
  }
}

void Group::PostToNodeLane(std::function<void()> task) {
  ++node_lane_posted_;
  node_lane_->Post([this, task = std::move(task)] {
    if (!cancelled_) Guarded(task);
    absl::MutexLock lock(&mutex_);
    ++node_lane_done_;
    TryContribute();
    CheckEnded();
  });
}

void Group::PostStepToNodeLane(Dispatched& operation) {
  if (uses_node_lane_) RunOnNodeLane(operation.first());
  operation.on_node_lane = true;
  operation.node_lane_items = node_lane_posted_;
}

void Group::RunOnNodeLane(const Operation& operation) {
  if (!uses_node_lane_) return;  // everything is in place and was published at submission
  const int layer = operation.layer;
  switch (operation.kind) {
    case OperationKind::kGather:
      PostToNodeLane([this, ticket = operation.ticket, layer, version = operation.version] {
        GatherOnNodeLane(ticket, layer, version);
      });
      break;
    case OperationKind::kRelease:
      PostToNodeLane([this, layer] {
        std::vector<int> evicted;
        {
          absl::MutexLock lock(&mutex_);
          evicted = residency_->Release(layer);
        }
        EvictOnNodeLane(evicted);
      });
      break;
    case OperationKind::kStep:
      PostToNodeLane([this] {
        std::vector<int> evicted;
        {
          absl::MutexLock lock(&mutex_);
          evicted = residency_->Step();
        }
        EvictOnNodeLane(evicted);
      });
      break;
    default:
      ZEROD_CHECK(false, OperationKindName(operation.kind), " isn't node lane work");
  }
}

void Group::GatherOnNodeLane(uint64_t ticket, int index, uint64_t version) {
  bool hit = false;
  LayerStore& layer = job_.layer(index);
  {
    absl::MutexLock lock(&mutex_);
    auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return layer.version >= version || over_;
    };
    mutex_.Await(absl::Condition(&ready));
    if (over_) return;
    ZEROD_CHECK(layer.version == version, "layer ", index, " is at version ", layer.version);
    hit = residency_->Gather(index);
    if (hit) ++cache_hits_;
  }
  std::this_thread::sleep_for(options_.failpoints.gather_delay);  // failpoint
  if (!hit) exchange_.Gather(layer, ticket);
  absl::MutexLock lock(&mutex_);
  for (const auto& member : members_) {
    if (member->state == Member::State::kDead || member->gathers.empty()) continue;
    ZEROD_CHECK(member->gathers.front().ticket == ticket, "gathers of rank ", member->rank);
    Publish(*member);
  }
}

void Group::EvictOnNodeLane(const std::vector<int>& layers) {
  for (int layer : layers) job_.layer(layer).PunchRemote();
}

void Group::Seal(const Dispatched& operation) {
  for (const auto& member : members_) {
    if (member->registered == static_cast<int>(job_.layers().size())) continue;
    Abort(Error(
        ErrorCode::kFailedPrecondition,
        Concat("rank ", member->rank, " registered ", member->registered, " layers, job '",
               job_.id(), "' has ", job_.layers().size(), ", the next is '",
               job_.layer(member->registered).name(),
               "'; attach with the same model or drop the job (zeroctl drop ", job_.id(), ")")));
    return;
  }
  std::vector<Residency::LayerSize> sizes;
  for (const auto& layer : job_.layers()) {
    sizes.push_back({layer->plan().gathered_bytes, layer->HasTrainable()});
  }
  const int64_t slot_bytes = job_.SlotBytes();
  for (const auto& member : members_) {
    for (int slot = 0; slot_bytes > 0 && slot < gradient_slots_; ++slot) {
      member->slots.push_back(MakeWritable(Concat("zerod:slot", slot), slot_bytes, options_));
    }
  }
  job_.sealed = true;
  residency_.emplace(cache_bytes_, std::move(sizes));
  CompleteAll(Queue::kData, operation.ticket);
}

SharedMemory& Group::MakeStage(Member& member, int layer) {
  mutex_.AssertHeld();
  if (layer < 0 || layer >= member.registered) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("no layer ", layer, " among ", member.registered, " to stage"));
  }
  member.stage = std::make_shared<SharedMemory>(
      MakeWritable("zerod:stage", job_.layer(layer).plan().stage_bytes, options_));
  member.stage_layer = layer;
  return *member.stage;
}

void Group::PostData(Dispatched operation) {
  // The reduces and updates before it must be in the bytes; what comes after waits its turn.
  ++data_outstanding_;
  auto shared = std::make_shared<Dispatched>(std::move(operation));
  PostToNodeLane([this, shared] {
    {
      absl::MutexLock lock(&mutex_);
      auto quiet = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return (reduces_outstanding_ == 0 && updates_outstanding_ == 0) || over_;
      };
      mutex_.Await(absl::Condition(&quiet));
      if (over_) return;
    }
    DataOnNodeLane(*shared);
    absl::MutexLock lock(&mutex_);
    unwritten_.erase(shared->ticket);
    CompleteAll(Queue::kData, shared->ticket);
    PublishAllLocalGathers();
    --data_outstanding_;
    RunGated();
  });
}

void Group::DataOnNodeLane(const Dispatched& operation) {
  const Operation& first = operation.first();
  LayerStore& layer = job_.layer(first.layer);
  if (first.kind == OperationKind::kImport) {
    ImportShards({topology_, options_.model_roots, first.import_from, cancelled_}, layer);
    return;
  }
  auto bytes_of = [](const SharedMemory& memory) {
    return std::span<std::byte>(memory.data(), memory.size_bytes());
  };
  if (first.kind == OperationKind::kWrite) {
    const int source = first.source_rank;
    std::span<std::byte> stage;
    if (topology_.IsLocal(source)) {
      stage = bytes_of(*operation.stages[source - topology_.FirstRank(topology_.node)]);
    }
    exchange_.Write(layer, first.ticket, source, stage);
    absl::MutexLock lock(&mutex_);
    if (residency_) residency_->Invalidate(first.layer);
    return;
  }
  std::vector<std::span<std::byte>> stages;
  for (int local = 0; local < LocalRanks(); ++local) {
    if (operation.operations[local].wants_data)
      stages.push_back(bytes_of(*operation.stages[local]));
  }
  exchange_.Read(layer, first.ticket, first.content, stages);
}

}  // namespace zerod
