#include "client/ctl/json_view.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "client/ctl/units.h"

namespace zerod::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kIndent = 2;

/// Names come from other processes: bytes that aren't UTF-8 are replaced instead of thrown about.
std::string Dump(const Json& json) {
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json PeerList(const v1::StatusReply& status) {
  Json peers = Json::array();
  for (const v1::PeerStatus& peer : status.peers()) {
    peers.push_back({{"node", peer.node()},
                     {"address", peer.address()},
                     {"connected", peer.connected()},
                     {"ranks", peer.ranks()},
                     {"note", peer.note()}});
  }
  return peers;
}

}  // namespace

std::string StatusJson(const v1::StatusReply& status, const v1::JobsReply& jobs) {
  Json json = {{"node", status.node()},
               {"node_count", status.node_count()},
               {"healthy", status.healthy()},
               {"state", status.state()},
               {"waiting_for", status.waiting_for()},
               {"ranks", status.ranks()},
               {"first_rank", status.first_rank()},
               {"world_size", status.world_size()},
               {"dp", 0},
               {"tp", 0},
               {"epoch", status.epoch()},
               {"attached_job", status.attached_job()},
               {"step", status.step()},
               {"uptime_s", status.uptime_s()},
               {"gathers", status.gathers()},
               {"reduces", status.reduces()},
               {"cache_hits", status.cache_hits()},
               {"resident_gathered_bytes", status.resident_gathered_bytes()},
               {"sent_bytes", status.sent_bytes()},
               {"received_bytes", status.received_bytes()},
               {"gather_sent_bytes", status.gather_sent_bytes()},
               {"reduce_sent_bytes", status.reduce_sent_bytes()},
               {"peers", PeerList(status)}};
  for (const v1::JobInfo& job : jobs.jobs()) {
    if (!job.attached() || job.job_id() != status.attached_job()) continue;
    json["dp"] = job.dp();
    json["tp"] = job.tp();
  }
  return Dump(json);
}

std::string JobsJson(const v1::JobsReply& jobs) {
  Json list = Json::array();
  for (const v1::JobInfo& job : jobs.jobs()) {
    list.push_back({{"job_id", job.job_id()},
                    {"step", job.step()},
                    {"attached", job.attached()},
                    {"layers", job.layers()},
                    {"parameters", job.parameters()},
                    {"trainable", job.trainable()},
                    {"state_bytes", job.state_bytes()},
                    {"dp", job.dp()},
                    {"tp", job.tp()},
                    {"plan_hash", Hex(job.plan_hash())}});
  }
  Json json;
  json["jobs"] = std::move(list);
  return Dump(json);
}

std::string LayersJson(const v1::LayersReply& layers) {
  Json list = Json::array();
  for (const v1::LayerInfo& layer : layers.layers()) {
    list.push_back({{"index", layer.index()},
                    {"name", layer.name()},
                    {"tensors", layer.tensors()},
                    {"parameters", layer.parameters()},
                    {"trainable", layer.trainable()},
                    {"gathered_bytes", layer.gathered_bytes()},
                    {"version", layer.version()},
                    {"leases", layer.leases()},
                    {"gathers", layer.gathers()},
                    {"reduces", layer.reduces()}});
  }
  return Dump(Json{{"job_id", layers.job_id()}, {"layers", list}});
}

std::string ShardsJson(const v1::ShardsReply& shards, bool checksums) {
  Json list = Json::array();
  for (const v1::ShardInfo& shard : shards.shards()) {
    Json entry = {
        {"rank", shard.rank()},      {"layer", shard.layer()}, {"layer_name", shard.layer_name()},
        {"chunk", shard.chunk()},    {"dtype", shard.dtype()}, {"trainable", shard.trainable()},
        {"numel", shard.numel()},    {"bytes", shard.bytes()}, {"state_bytes", shard.state_bytes()},
        {"version", shard.version()}};
    if (checksums) entry["checksum"] = Hex(shard.checksum());
    list.push_back(entry);
  }
  return Dump(Json{{"job_id", shards.job_id()}, {"shards", list}});
}

std::string MemoryJson(const v1::MemoryReply& memory) {
  Json list = Json::array();
  for (const v1::MemoryClass& memory_class : memory.classes()) {
    list.push_back({{"name", memory_class.name()},
                    {"predicted_bytes", memory_class.predicted_bytes()},
                    {"actual_bytes", memory_class.actual_bytes()}});
  }
  return Dump(Json{{"job_id", memory.job_id()},
                   {"classes", list},
                   {"process_pss_bytes", memory.process_pss_bytes()}});
}

std::string SessionsJson(const v1::SessionsReply& sessions) {
  Json list = Json::array();
  for (const v1::SessionInfo& session : sessions.sessions()) {
    list.push_back({{"rank", session.rank()},
                    {"pid", session.pid()},
                    {"program", session.program()},
                    {"job_id", session.job_id()},
                    {"epoch", session.epoch()},
                    {"last_ticket", session.last_ticket()},
                    {"last_operation", session.last_operation()},
                    {"leases", session.leases()},
                    {"attached_s", session.attached_s()}});
  }
  Json json;
  json["sessions"] = std::move(list);
  return Dump(json);
}

std::string HealthJson(const v1::StatusReply& status) {
  return Dump(Json{{"healthy", status.healthy()},
                   {"state", status.state()},
                   {"waiting_for", status.waiting_for()}});
}

std::string VersionJson(const std::string& own_version, const v1::VersionReply& daemon) {
  return Dump(Json{{"zeroctl", own_version},
                   {"zerod", daemon.version()},
                   {"protocol_version", daemon.protocol_version()},
                   {"backend", daemon.backend()},
                   {"instruction_set", daemon.instruction_set()}});
}

}  // namespace zerod::ctl
