// Engine: a group is formed of the workers that all nodes have agreed on.

#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/contract/error.h"
#include "server/engine/engine_impl.h"
#include "server/engine/group_guard.h"

namespace zerod {

Job& Engine::Impl::PrepareJob(const Decision& decision) {
  const auto found = jobs_.find(decision.job_id);
  if (decision.created != (found == jobs_.end())) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("the job was ", decision.created ? "created" : "dropped", " on node ",
                       options_.node, " meanwhile"));
  }
  if (decision.created) {
    Placement placement;
    placement.job_id = decision.job_id;
    placement.topology = topology_;
    placement.mesh = {topology_.World(), 1};
    placement.huge_pages = options_.huge_pages;
    placement.poison = options_.failpoints.poison_fresh_memory;
    return *(jobs_[decision.job_id] = std::make_shared<Job>(std::move(placement)));
  }
  Job& job = *found->second;
  if (job.placement().topology != topology_) {
    throw Error(ErrorCode::kFailedPrecondition,
                Concat("the job is stored for ", job.mesh().World(), " ranks on ",
                       job.placement().topology.NodeCount(), " nodes, now there are ",
                       topology_.World(), " ranks on ", topology_.NodeCount(),
                       " nodes or they are placed differently; start the daemons as before or drop "
                       "the job (zeroctl drop ",
                       decision.job_id, ")"));
  }
  return job;
}

Group::Setup Engine::Impl::PrepareGroup(const Decision& decision) {
  if (forming_failure_) throw Error(*forming_failure_);
  const AttachRequest& request = forming_.begin()->second->request;
  Group::Setup setup;
  setup.options = &options_;
  setup.mutex = &mutex_;
  setup.topology = topology_;
  setup.epoch = decision.new_epoch;
  setup.created = decision.created;
  setup.link = link_;
  setup.cache_bytes = request.cache_bytes < 0 ? options_.cache_bytes : request.cache_bytes;
  setup.gradient_slots = request.gradient_slots;
  setup.job = &PrepareJob(decision);
  setup.job->epoch = decision.new_epoch;
  for (const auto& [local, member] : forming_) {
    member->page_memory = SharedMemory::Create("zerod:control", kControlPageBytes);
    ControlPage& page = *new (member->page_memory.data()) ControlPage();
    page.epoch = decision.new_epoch;
  }
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
    absl::MutexLock lock(&mutex_);
    if (forming_failure_) throw Error(*forming_failure_);
    StartGroup(std::move(setup));
  } catch (const std::exception& error) {
    GiveUpForming(decision, AsError(error));
  }
}

void Engine::Impl::StartGroup(Group::Setup setup) {
  const bool created = setup.created;
  for (auto& [local, member] : forming_) setup.members.push_back(std::move(member));
  forming_.clear();
  group_ = std::make_unique<Group>(std::move(setup));
  for (const auto& member : group_->members()) attached_[member->attach_id] = member.get();
  forming_events_.clear();
  decision_.reset();
  store_.reset();
  spdlog::info(Concat("epoch ", group_->epoch(), ": job '", group_->job().id(), "' ",
                      created ? "created" : "attached", " at step ", group_->job().step));
  group_->Welcome();
  for (const auto& [node, message] : std::exchange(early_, {})) {
    if (message.epoch == group_->epoch()) group_->OnPeerMessage(node, message);
  }
}

void Engine::Impl::GiveUpForming(const Decision& decision, const Error& cause) {
  absl::MutexLock lock(&mutex_);
  const Error error(cause.code(),
                    Concat("forming the group of job '", decision.job_id, "': ", cause.what()));
  spdlog::warn(error.what());
  for (const auto& events : forming_events_) events->OnFault(error);
  forming_events_.clear();
  forming_.clear();
  const auto found = jobs_.find(decision.job_id);
  const bool made = found != jobs_.end() && found->second->epoch == decision.new_epoch;
  if (decision.created && made) jobs_.erase(found);
  if (link_ != nullptr) {
    link_->Broadcast({decision.new_epoch, AbortNotice{0, error.code(), error.what()}});
  }
  early_.clear();
  forming_failure_.reset();
  decision_.reset();
  store_.reset();
  ProposeIfComplete();
}

}  // namespace zerod
