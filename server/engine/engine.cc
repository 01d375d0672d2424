#include "server/engine/engine.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/time/time.h"
#include "proto/contract/error.h"
#include "server/engine/engine_impl.h"

namespace zerod {
namespace {

constexpr size_t kJobIdBytesMax = 120;
constexpr int kGradientSlotsMax = 64;
constexpr int kWorldMax = 4096;  // what a SegmentTag can name
/// How long a taken rank may still turn out to be free: the daemon reads the broken stream of a
/// killed worker a little later than its successor's first message, on a busy machine much later.
constexpr std::chrono::seconds kTakenGrace{2};

}  // namespace

Engine::Impl::Impl(const EngineOptions& options) : options_(options) {
  {
    absl::MutexLock lock(&mutex_);
    topology_.node = options_.node;
    if (options_.node_count == 1) topology_.ranks_per_node = {options_.ranks};
  }
  control_ = std::thread([this] { ControlLoop(); });
}

Engine::Impl::~Impl() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    const Error error(ErrorCode::kUnavailable, "zerod is stopping");
    SpoilForming(error);
    if (group_) group_->Abort(error);
  }
  control_.join();
}

void Engine::Impl::SetPeerLink(PeerLink* link) {
  absl::MutexLock lock(&mutex_);
  link_ = link;
}

bool Engine::Impl::HasActiveGroup() const {
  return group_ != nullptr && !group_->over() && !group_->aborting();
}

void Engine::Impl::CheckRequest(const AttachRequest& request) const {
  auto refuse = [](const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (request.job_id.empty() || request.job_id.size() > kJobIdBytesMax) {
    refuse(Concat("a job id has 1 to ", kJobIdBytesMax, " bytes, this one has ",
                  request.job_id.size()));
  }
  if (request.mode < 1 || request.mode > 3) refuse(Concat("unknown attach mode ", request.mode));
  if (request.world_size > kWorldMax) {
    refuse(Concat("WORLD_SIZE is ", request.world_size, ", at most ", kWorldMax, " are possible"));
  }
  if (request.tensor_parallel != 1) {
    refuse(Concat("tensor_parallel is ", request.tensor_parallel,
                  "; this version of zerod runs meshes with tensor_parallel 1"));
  }
  if (request.gradient_slots < 1 || request.gradient_slots > kGradientSlotsMax) {
    refuse(Concat("gradient_slots is ", request.gradient_slots, ", allowed are 1 to ",
                  kGradientSlotsMax));
  }
  if (request.window_bytes < 0 || request.cache_bytes < -1) {
    refuse("window_bytes and cache_bytes can't be negative");
  }
  if (request.local_rank < 0 || request.local_rank >= options_.ranks) {
    refuse(Concat("LOCAL_RANK is ", request.local_rank, ", but node ", options_.node, " has ",
                  options_.ranks, options_.ranks == 1 ? " rank" : " ranks", " (zerod --ranks)"));
  }
}

void Engine::Impl::CheckPlace(const AttachRequest& request) const {
  if (topology_.ranks_per_node.empty()) return;  // checked again when the nodes are connected
  if (request.world_size != topology_.World()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        Concat("WORLD_SIZE is ", request.world_size, ", but the daemons have ", topology_.World(),
               topology_.World() == 1 ? " rank" : " ranks", " together; start that many workers"));
  }
  const int expected = topology_.FirstRank(topology_.node) + request.local_rank;
  if (request.rank != expected) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat("RANK is ", request.rank, ", but LOCAL_RANK ", request.local_rank,
                       " on node ", topology_.node, " is rank ", expected));
  }
}

const Member* Engine::Impl::HolderOf(int local_rank) const {
  if (const auto found = pending_.find(local_rank); found != pending_.end()) {
    return found->second.get();
  }
  if (const auto found = forming_.find(local_rank); found != forming_.end()) {
    return found->second.get();
  }
  if (!HasActiveGroup()) return nullptr;
  const Member& member = *group_->members()[local_rank];
  return member.state == Member::State::kActive ? &member : nullptr;
}

void Engine::Impl::CheckLikeOthers(const AttachRequest& request) const {
  if (pending_.empty()) return;
  const AttachRequest& first = pending_.begin()->second->request;
  auto compare = [&](const char* what, const auto& here, const auto& there) {
    if (here == there) return;
    throw Error(ErrorCode::kInvalidArgument,
                Concat(what, " is ", there, " on rank ", first.rank, " and ", here, " on rank ",
                       request.rank, "; start all workers with the same options"));
  };
  compare("the job", request.job_id, first.job_id);
  compare("the attach mode", request.mode, first.mode);
  compare("WORLD_SIZE", request.world_size, first.world_size);
  compare("window_bytes", request.window_bytes, first.window_bytes);
  compare("cache_bytes", request.cache_bytes, first.cache_bytes);
  compare("gradient_slots", request.gradient_slots, first.gradient_slots);
}

uint64_t Engine::Impl::Attach(const AttachRequest& request, std::shared_ptr<WorkerEvents> events) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) throw Error(ErrorCode::kUnavailable, "zerod is stopping");
  CheckRequest(request);
  CheckPlace(request);
  auto member = std::make_unique<Member>();
  member->attach_id = next_attach_id_++;
  member->token = tokens_();
  member->local_rank = request.local_rank;
  member->rank = request.rank;
  member->request = request;
  member->events = std::move(events);
  member->attached_at = Clock::now();
  const uint64_t attach_id = member->attach_id;
  if (HolderOf(request.local_rank) != nullptr) {
    successors_.push_back(std::move(member));
  } else {
    Admit(std::move(member));
  }
  return attach_id;
}

void Engine::Impl::Admit(std::unique_ptr<Member> member) {
  CheckPlace(member->request);  // of a successor, the nodes may have changed meanwhile
  CheckLikeOthers(member->request);
  if (pending_.empty()) pending_warned_ = Clock::now();
  const int local_rank = member->local_rank;
  pending_[local_rank] = std::move(member);
  ProposeIfComplete();
}

void Engine::Impl::AdmitSuccessors(Clock::time_point now) {
  for (auto& successor : std::exchange(successors_, {})) {
    const std::shared_ptr<WorkerEvents> events = successor->events;
    const Member* holder = HolderOf(successor->local_rank);
    if (holder == nullptr) {
      try {
        Admit(std::move(successor));
      } catch (const Error& error) {
        events->OnFault(error);
      }
    } else if (now - successor->attached_at < kTakenGrace) {
      successors_.push_back(std::move(successor));
    } else {
      events->OnFault(
          Error(ErrorCode::kAlreadyExists,
                Concat("rank ", successor->rank, " is taken by pid ", holder->request.pid, " (",
                       holder->request.program, ", job '", holder->request.job_id,
                       "'); stop that process or use another rank")));
    }
  }
}

Member* Engine::Impl::Find(uint64_t attach_id) const {
  const auto found = attached_.find(attach_id);
  return found == attached_.end() ? nullptr : found->second;
}

void Engine::Impl::Submit(uint64_t attach_id, uint64_t epoch, std::vector<Operation> operations) {
  absl::MutexLock lock(&mutex_);
  Member* member = Find(attach_id);
  if (member == nullptr) return;  // the attach has ended, its worker was told
  if (epoch != group_->epoch()) {
    group_->Lose(*member,
                 Concat("it sent operations of epoch ", epoch, " in epoch ", group_->epoch()));
    return;
  }
  group_->Submit(*member, std::move(operations));
}

void Engine::Impl::Detach(uint64_t attach_id, bool drop) {
  absl::MutexLock lock(&mutex_);
  if (Member* member = Find(attach_id)) group_->Leave(*member, drop);
}

void Engine::Impl::Disconnect(uint64_t attach_id, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (Member* member = Find(attach_id)) {
    group_->Lose(*member, reason);
    return;
  }
  for (const auto& [local, member] : forming_) {
    if (member->attach_id != attach_id) continue;
    SpoilForming(Error(ErrorCode::kAborted, Concat("rank ", member->rank, " is gone: ", reason)));
    return;
  }
  std::erase_if(successors_, [&](const auto& member) { return member->attach_id == attach_id; });
  const auto found = std::ranges::find_if(
      pending_, [&](const auto& entry) { return entry.second->attach_id == attach_id; });
  if (found == pending_.end()) return;
  spdlog::info(
      Concat("rank ", found->second->rank, " left before all ranks were attached: ", reason));
  pending_.erase(found);
  Withdraw(reason);
}

FileDescriptor Engine::Impl::OpenMemory(const DescriptorRequest& request, int64_t& size_bytes) {
  absl::MutexLock lock(&mutex_);
  const auto found = std::ranges::find_if(
      attached_, [&](const auto& entry) { return entry.second->token == request.token; });
  if (found == attached_.end()) {
    throw Error(ErrorCode::kNotFound, "the attach has ended or its token is wrong");
  }
  Member& member = *found->second;
  auto give = [&](const SharedMemory& memory, Access access) {
    size_bytes = memory.size_bytes();
    return memory.Share(access);
  };
  auto check = [&](const char* what, int index, size_t count) {
    if (index >= 0 && static_cast<size_t>(index) < count) return;
    throw Error(ErrorCode::kInvalidArgument, Concat("no ", what, " ", index, " among ", count));
  };
  switch (request.kind) {
    case MemoryKind::kControlPage:
      return give(member.page_memory, Access::kReadWrite);
    case MemoryKind::kRegion: {
      check("layer", request.index, member.registered);
      const LayerStore& layer = group_->job().layer(request.index);
      check("chunk", request.chunk, layer.plan().chunks.size());
      return give(layer.Region(request.chunk), Access::kReadOnly);
    }
    case MemoryKind::kSlot:
      check("gradient slot", request.index, member.slots.size());
      return give(member.slots[request.index], Access::kReadWrite);
    case MemoryKind::kStage:
      return give(group_->MakeStage(member, request.index), Access::kReadWrite);
  }
  throw Error(ErrorCode::kInvalidArgument,
              Concat("unknown kind of memory ", static_cast<uint32_t>(request.kind)));
}

void Engine::Impl::Stop(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  const Error error(ErrorCode::kUnavailable, reason);
  Withdraw(reason);
  FaultPending(error);
  for (auto& member : std::exchange(successors_, {})) member->events->OnFault(error);
  SpoilForming(error);
  if (group_) group_->Abort(error);
  auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return group_ == nullptr && forming_events_.empty();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&idle), absl::Seconds(5));
}

Engine::Engine(const EngineOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Engine::~Engine() = default;
void Engine::SetPeerLink(PeerLink* link) { impl_->SetPeerLink(link); }
uint64_t Engine::Attach(const AttachRequest& request, std::shared_ptr<WorkerEvents> events) {
  return impl_->Attach(request, std::move(events));
}
void Engine::Submit(uint64_t attach_id, uint64_t epoch, std::vector<Operation> operations) {
  impl_->Submit(attach_id, epoch, std::move(operations));
}
void Engine::Detach(uint64_t attach_id, bool drop) { impl_->Detach(attach_id, drop); }
void Engine::Disconnect(uint64_t attach_id, const std::string& reason) {
  impl_->Disconnect(attach_id, reason);
}
FileDescriptor Engine::OpenMemory(const DescriptorRequest& request, int64_t& size_bytes) {
  return impl_->OpenMemory(request, size_bytes);
}
void Engine::Stop(const std::string& reason) { impl_->Stop(reason); }
StatusReport Engine::Status() const { return impl_->Status(); }
std::vector<JobReport> Engine::Jobs() const { return impl_->Jobs(); }
void Engine::DropJob(const std::string& job_id) { impl_->DropJob(job_id); }
std::vector<LayerReport> Engine::Layers(const std::string& job_id) const {
  return impl_->Layers(job_id);
}
std::vector<ShardReport> Engine::Shards(const std::string& job_id, bool checksums) const {
  return impl_->Shards(job_id, checksums);
}
std::vector<MemoryReport> Engine::Memory(const std::string& job_id) const {
  return impl_->Memory(job_id);
}
std::vector<SessionReport> Engine::Sessions() const { return impl_->Sessions(); }
std::string Engine::ResolveJob(const std::string& job_id) const {
  return impl_->ResolveJob(job_id);
}
void Engine::OnPeerMessage(int node, const PeerMessage& message) {
  impl_->OnPeerMessage(node, message);
}
void Engine::OnPeerLost(int node, const std::string& reason) { impl_->OnPeerLost(node, reason); }
void Engine::OnMembership(const std::vector<int>& ranks) { impl_->OnMembership(ranks); }

}  // namespace zerod
