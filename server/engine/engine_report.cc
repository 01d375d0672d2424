// Engine: what zeroctl shows.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "proto/contract/error.h"
#include "server/engine/engine_impl.h"
#include "server/layout/predicted_bytes.h"

namespace zerod {
namespace {

/// FNV-1a over 8-byte words: fast enough for whole shards.
uint64_t Checksum(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    hash = (hash ^ word) * 0x100000001b3ull;
  }
  return hash;
}

int64_t TensorsNumel(const LayerPlan& plan, bool trainable_only) {
  int64_t numel = 0;
  for (const TensorPlan& tensor : plan.tensors) {
    if (!trainable_only || plan.chunks[tensor.chunk].trainable) numel += tensor.numel;
  }
  return numel;
}

ShardReport ReportOf(const LayerStore& layer, int chunk, int rank) {
  const ChunkPlan& plan = layer.plan().chunks[chunk];
  const int64_t parts = plan.dtype == DType::kFloat32 ? 3 : 4;  // with a master
  ShardReport report;
  report.layer = layer.index();
  report.layer_name = layer.name();
  report.chunk = chunk;
  report.trainable = plan.trainable;
  report.dtype = DTypeName(plan.dtype);
  report.rank = rank;
  report.numel = plan.shard_numel;
  report.parameter_bytes = plan.shard_numel * SizeOf(plan.dtype);
  report.state_bytes = plan.trainable ? plan.shard_numel * parts * int64_t{sizeof(float)} : 0;
  report.version = layer.version;
  return report;
}

}  // namespace

void Engine::Impl::AddTraffic(const Group& group, StatusReport& report) {
  report.gathers += group.gather_count();
  report.reduces += group.reduce_count();
  report.cache_hits += group.cache_hits();
  if (const Communicator* gathers = group.gathers()) {
    report.gather_sent_bytes += gathers->counters().sent_bytes;
    report.gather_received_bytes += gathers->counters().received_bytes;
  }
  if (const Communicator* reduces = group.reduces()) {
    report.reduce_sent_bytes += reduces->counters().sent_bytes;
    report.reduce_received_bytes += reduces->counters().received_bytes;
  }
}

void Engine::Impl::AddToTotals(const Group& group) { AddTraffic(group, totals_); }

StatusReport Engine::Impl::Status() const {
  absl::MutexLock lock(&mutex_);
  StatusReport report = totals_;
  report.node = options_.node;
  report.node_count = options_.node_count;
  report.ranks = options_.ranks;
  report.epoch = epoch_seen_;
  const bool joined = !topology_.ranks_per_node.empty();
  if (joined) {
    report.first_rank = topology_.FirstRank(topology_.node);
    report.world_size = topology_.World();
  }
  if (group_) {
    report.state = group_->aborting() ? "aborting" : "training";
  } else if (decision_ && !IsForming()) {
    report.state = "ending";
  } else if (!joined) {
    report.state = "joining";
  } else {
    report.state = pending_.empty() && !IsForming() ? "idle" : "attaching";
  }
  if (!joined || !pending_.empty()) report.waiting_for = MissingText();
  if (!group_) return report;
  report.attached_job = group_->job().id();
  report.step = group_->job().step;
  AddTraffic(*group_, report);
  report.resident_gathered_bytes = topology_.NodeCount() > 1 ? group_->resident_bytes() : 0;
  return report;
}

bool Engine::Impl::IsAttached(const std::string& job_id) const {
  const bool proposed =
      proposed_ && !pending_.empty() && pending_.begin()->second->request.job_id == job_id;
  return proposed || (group_ && group_->job().id() == job_id) ||
         (decision_ && decision_->job_id == job_id);
}

std::vector<JobReport> Engine::Impl::Jobs() const {
  absl::MutexLock lock(&mutex_);
  std::vector<JobReport> reports;
  for (const auto& [id, job] : jobs_) {
    JobReport report;
    report.job_id = id;
    report.step = job->step;
    report.attached = IsAttached(id);
    report.layers = static_cast<int>(job->layers().size());
    report.parameters_numel = job->ParametersNumel();
    report.trainable_numel = job->TrainableNumel();
    report.state_bytes = job->StateBytes();
    report.dp = job->mesh().dp;
    report.tp = job->mesh().tp;
    report.plan_hash = job->PlanHash();
    reports.push_back(std::move(report));
  }
  return reports;
}

void Engine::Impl::DropJob(const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  JobOf(job_id);
  if (IsAttached(job_id)) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("job '", job_id, "' is attached; stop its workers first"));
  }
  jobs_.erase(job_id);
}

const Job& Engine::Impl::JobOf(const std::string& job_id) const {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    throw Error(ErrorCode::kNotFound, Concat("there is no job '", job_id, "' (see zeroctl jobs)"));
  }
  return *found->second;
}

std::string Engine::Impl::ResolveLocked(const std::string& job_id) const {
  if (!job_id.empty()) return job_id;
  if (group_) return group_->job().id();
  if (jobs_.size() == 1) return jobs_.begin()->first;
  throw Error(ErrorCode::kNotFound,
              jobs_.empty() ? "there is no job" : "there are several jobs; name one");
}

std::string Engine::Impl::ResolveJob(const std::string& job_id) const {
  absl::MutexLock lock(&mutex_);
  return ResolveLocked(job_id);
}

std::vector<LayerReport> Engine::Impl::Layers(const std::string& job_id) const {
  absl::MutexLock lock(&mutex_);
  const Job& job = JobOf(ResolveLocked(job_id));
  std::vector<LayerReport> reports;
  for (const auto& layer : job.layers()) {
    LayerReport report;
    report.index = layer->index();
    report.name = layer->name();
    report.tensors = static_cast<int>(layer->plan().tensors.size());
    report.parameters_numel = TensorsNumel(layer->plan(), false);
    report.trainable_numel = TensorsNumel(layer->plan(), true);
    report.gathered_bytes = layer->plan().gathered_bytes;
    report.version = layer->version;
    report.gathers = layer->gathers;
    report.reduces = layer->reduces;
    if (group_ && &group_->job() == &job) {
      for (const auto& member : group_->members()) {
        if (layer->index() < static_cast<int>(member->leases.size())) {
          report.leases += member->leases[layer->index()];
        }
      }
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<ShardReport> Engine::Impl::Shards(const std::string& job_id, bool checksums) const {
  std::vector<ShardReport> reports;
  std::vector<std::span<std::byte>> bytes;
  std::shared_ptr<const Job> job;
  {
    absl::MutexLock lock(&mutex_);
    const std::string id = ResolveLocked(job_id);
    JobOf(id);
    job = jobs_.at(id);
    const Topology& topology = job->placement().topology;
    const int first_rank = topology.FirstRank(topology.node);
    for (const auto& layer : job->layers()) {
      for (size_t chunk = 0; chunk < layer->plan().chunks.size(); ++chunk) {
        for (int local = 0; local < topology.LocalRanks(); ++local) {
          const int rank = first_rank + local;
          bytes.push_back(layer->ShardBytes(static_cast<int>(chunk), rank, 1));
          reports.push_back(ReportOf(*layer, static_cast<int>(chunk), rank));
        }
      }
    }
  }
  // Seconds for a large model: nobody waits for it.
  for (size_t i = 0; checksums && i < reports.size(); ++i) reports[i].checksum = Checksum(bytes[i]);
  return reports;
}

std::vector<MemoryReport> Engine::Impl::Memory(const std::string& job_id) const {
  absl::MutexLock lock(&mutex_);
  const Job& job = JobOf(ResolveLocked(job_id));
  const bool attached = group_ && &group_->job() == &job;
  std::vector<LayerPlan> plans;
  int64_t regions_resident = 0;
  int64_t states_resident = 0;
  for (const auto& layer : job.layers()) {
    plans.push_back(layer->plan());
    states_resident += layer->StateResidentBytes();
    for (size_t chunk = 0; chunk < layer->plan().chunks.size(); ++chunk) {
      regions_resident +=
          layer->Region(static_cast<int>(chunk)).ResidentBytes() - kRegionHeaderBytes;
    }
  }
  int64_t slots_resident = 0;
  int64_t stages = 0;
  if (attached) {
    for (const auto& member : group_->members()) {
      for (const SharedMemory& slot : member->slots) slots_resident += slot.ResidentBytes();
      if (member->stage) stages += member->stage->ResidentBytes();
    }
  }
  const PredictedBytes rank = PredictBytes(plans, attached ? group_->gradient_slots() : 0);
  const int64_t ranks = job.placement().topology.LocalRanks();
  const int64_t parameters = rank.parameters * ranks;
  // They lie side by side, so all are resident alike.
  const int64_t states = rank.gradients + rank.optimizer_state;
  const int64_t accumulators_resident =
      states == 0 ? 0 : std::lround(static_cast<double>(states_resident) / states * rank.gradients);
  const int64_t gathered = attached ? group_->resident_bytes() : 0;
  return {{"parameters", parameters, std::min(parameters, regions_resident)},
          {"gradients", rank.gradients * ranks, accumulators_resident},
          {"optimizer", rank.optimizer_state * ranks, states_resident - accumulators_resident},
          {"slots", rank.slots * ranks, slots_resident},
          {"gathered", gathered, std::max<int64_t>(0, regions_resident - parameters)},
          {"staging", stages, stages}};
}

std::vector<SessionReport> Engine::Impl::Sessions() const {
  absl::MutexLock lock(&mutex_);
  std::vector<SessionReport> reports;
  auto add = [&](const Member& member, uint64_t epoch) {
    SessionReport report;
    report.rank = member.rank;
    report.pid = member.request.pid;
    report.program = member.request.program;
    report.job_id = member.request.job_id;
    report.epoch = epoch;
    report.last_ticket = member.last_ticket;
    report.last_operation = member.last_ticket == 0 ? "" : OperationKindName(member.last_kind);
    report.leases = member.LeaseCount();
    report.attached_s =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - member.attached_at).count();
    reports.push_back(std::move(report));
  };
  for (const auto& [local, member] : pending_) add(*member, 0);
  for (const auto& [local, member] : forming_) add(*member, 0);
  if (group_) {
    for (const auto& member : group_->members()) {
      if (member->state == Member::State::kActive) add(*member, group_->epoch());
    }
  }
  return reports;
}

}  // namespace zerod
