#include "client/ctl/table_view.h"

#include "client/ctl/table.h"
#include "client/ctl/units.h"
#include "proto/contract/error.h"

namespace zerod::ctl {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;

const char* YesNo(bool value) { return value ? "yes" : "no"; }

/// "0-3", "2" or "-" when the node doesn't know its place yet.
std::string RankRange(const v1::StatusReply& status) {
  if (status.world_size() == 0) return Concat(status.ranks(), " local");
  const int last = status.first_rank() + status.ranks() - 1;
  std::string range = Concat(status.first_rank());
  if (last != status.first_rank()) range += Concat("-", last);
  return Concat(range, " of ", status.world_size());
}

/// Both axes of the mesh that the attached job uses.
std::string Axes(const v1::StatusReply& status, const v1::JobsReply& jobs) {
  for (const v1::JobInfo& job : jobs.jobs()) {
    if (job.attached() && job.job_id() == status.attached_job()) {
      return Concat("dp ", job.dp(), " x tp ", job.tp());
    }
  }
  return "set by the job that attaches";
}

std::string JobLine(const v1::StatusReply& status) {
  if (status.attached_job().empty()) return "none attached";
  return Concat(status.attached_job(), ", step ", status.step(), ", epoch ", status.epoch());
}

std::string Traffic(const v1::StatusReply& status) {
  return Concat("sent ", HumanBytes(static_cast<int64_t>(status.sent_bytes())), " (gathers ",
                HumanBytes(static_cast<int64_t>(status.gather_sent_bytes())), ", reduces ",
                HumanBytes(static_cast<int64_t>(status.reduce_sent_bytes())), "), received ",
                HumanBytes(static_cast<int64_t>(status.received_bytes())));
}

}  // namespace

std::string StatusText(const v1::StatusReply& status, const v1::JobsReply& jobs) {
  std::string state = status.state();
  if (!status.waiting_for().empty()) state += ", waits for " + status.waiting_for();
  Table facts({{Concat("node ", status.node(), " of ", status.node_count())},
               {status.healthy() ? "healthy" : "unhealthy"}});
  facts.AddRow({"state", state});
  facts.AddRow({"ranks", RankRange(status)});
  facts.AddRow({"axes", Axes(status, jobs)});
  facts.AddRow({"job", JobLine(status)});
  facts.AddRow({"uptime", HumanSeconds(status.uptime_s())});
  facts.AddRow({"gathers",
                Concat(status.gathers(), " (", status.cache_hits(), " cache hits, ",
                       HumanBytes(status.resident_gathered_bytes()), " of other nodes resident)")});
  facts.AddRow({"reduces", Concat(status.reduces())});
  facts.AddRow({"traffic", Traffic(status)});

  Table peers({{"NODE", kRight}, {"ADDRESS"}, {"CONNECTED"}, {"RANKS", kRight}, {"NOTE"}});
  for (const v1::PeerStatus& peer : status.peers()) {
    peers.AddRow({Concat(peer.node()), peer.address(), YesNo(peer.connected()),
                  peer.ranks() > 0 ? Concat(peer.ranks()) : "?", peer.note()});
  }
  return facts.Render() + "\n" + peers.Render();
}

std::string JobsText(const v1::JobsReply& jobs) {
  if (jobs.jobs().empty()) return "no jobs on this node\n";
  Table table({{"JOB"},
               {"STEP", kRight},
               {"ATTACHED"},
               {"LAYERS", kRight},
               {"PARAMETERS", kRight},
               {"TRAINABLE", kRight},
               {"STATE", kRight},
               {"DP", kRight},
               {"TP", kRight},
               {"PLAN"}});
  for (const v1::JobInfo& job : jobs.jobs()) {
    table.AddRow({job.job_id(), Concat(job.step()), YesNo(job.attached()), Concat(job.layers()),
                  HumanCount(job.parameters()), HumanCount(job.trainable()),
                  HumanBytes(job.state_bytes()), Concat(job.dp()), Concat(job.tp()),
                  Hex(job.plan_hash())});
  }
  return table.Render();
}

std::string LayersText(const v1::LayersReply& layers) {
  Table table({{"LAYER", kRight},
               {"NAME"},
               {"TENSORS", kRight},
               {"PARAMETERS", kRight},
               {"TRAINABLE", kRight},
               {"GATHERED", kRight},
               {"VERSION", kRight},
               {"LEASES", kRight},
               {"GATHERS", kRight},
               {"REDUCES", kRight}});
  for (const v1::LayerInfo& layer : layers.layers()) {
    table.AddRow({Concat(layer.index()), layer.name(), Concat(layer.tensors()),
                  HumanCount(layer.parameters()), HumanCount(layer.trainable()),
                  HumanBytes(layer.gathered_bytes()), Concat(layer.version()),
                  Concat(layer.leases()), Concat(layer.gathers()), Concat(layer.reduces())});
  }
  return Concat("job ", Printable(layers.job_id()), "\n\n", table.Render());
}

std::string ShardsText(const v1::ShardsReply& shards, bool checksums) {
  Table table({{"RANK", kRight},
               {"LAYER", kRight},
               {"NAME"},
               {"CHUNK", kRight},
               {"DTYPE"},
               {"TRAINABLE"},
               {"ELEMENTS", kRight},
               {"PARAMETERS", kRight},
               {"STATE", kRight},
               {"VERSION", kRight},
               {checksums ? "CHECKSUM" : ""}});
  for (const v1::ShardInfo& shard : shards.shards()) {
    table.AddRow({Concat(shard.rank()), Concat(shard.layer()), shard.layer_name(),
                  Concat(shard.chunk()), shard.dtype(), YesNo(shard.trainable()),
                  HumanCount(shard.numel()), HumanBytes(shard.bytes()),
                  HumanBytes(shard.state_bytes()), Concat(shard.version()),
                  checksums ? Hex(shard.checksum()) : ""});
  }
  return Concat("job ", Printable(shards.job_id()), "\n\n", table.Render());
}

std::string MemoryText(const v1::MemoryReply& memory) {
  Table table({{"CLASS"}, {"PREDICTED", kRight}, {"ACTUAL", kRight}});
  int64_t predicted_bytes = 0;
  int64_t actual_bytes = 0;
  for (const v1::MemoryClass& memory_class : memory.classes()) {
    table.AddRow({memory_class.name(), HumanBytes(memory_class.predicted_bytes()),
                  HumanBytes(memory_class.actual_bytes())});
    predicted_bytes += memory_class.predicted_bytes();
    actual_bytes += memory_class.actual_bytes();
  }
  table.AddRow({"total", HumanBytes(predicted_bytes), HumanBytes(actual_bytes)});
  const std::string pss =
      memory.process_pss_bytes() < 0 ? "unknown" : HumanBytes(memory.process_pss_bytes());
  return Concat("job ", Printable(memory.job_id()), "\n\n", table.Render(),
                "\nthe daemon's proportional set size: ", pss, "\n");
}

std::string SessionsText(const v1::SessionsReply& sessions) {
  if (sessions.sessions().empty()) return "no worker is attached to this node\n";
  Table table({{"RANK", kRight},
               {"PID", kRight},
               {"PROGRAM"},
               {"JOB"},
               {"EPOCH", kRight},
               {"TICKET", kRight},
               {"OPERATION"},
               {"LEASES", kRight},
               {"ATTACHED", kRight}});
  for (const v1::SessionInfo& session : sessions.sessions()) {
    table.AddRow({Concat(session.rank()), Concat(session.pid()), session.program(),
                  session.job_id(), Concat(session.epoch()), Concat(session.last_ticket()),
                  session.last_operation(), Concat(session.leases()),
                  HumanSeconds(session.attached_s())});
  }
  return table.Render();
}

std::string VersionText(const std::string& own_version, const v1::VersionReply& daemon) {
  return Concat("zeroctl ", own_version, "\nzerod   ", Printable(daemon.version()), " (protocol ",
                daemon.protocol_version(), ", ", Printable(daemon.backend()), " backend, ",
                Printable(daemon.instruction_set()), ")\n");
}

std::string HealthText(const v1::StatusReply& status) {
  if (status.healthy()) return "healthy\n";
  const std::string why = status.waiting_for().empty() ? status.state() : status.waiting_for();
  return Concat("unhealthy: waits for ", Printable(why), "\n");
}

}  // namespace zerod::ctl
