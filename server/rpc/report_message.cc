#include "server/rpc/report_message.h"

namespace zerod {

void ToMessage(const StatusReport& report, v1::StatusReply& message) {
  message.set_node(report.node);
  message.set_node_count(report.node_count);
  message.set_ranks(report.ranks);
  message.set_first_rank(report.first_rank);
  message.set_world_size(report.world_size);
  message.set_epoch(report.epoch);
  message.set_attached_job(report.attached_job);
  message.set_step(report.step);
  message.set_state(report.state);
  message.set_waiting_for(report.waiting_for);
  message.set_gathers(report.gathers);
  message.set_reduces(report.reduces);
  message.set_sent_bytes(report.gather_sent_bytes + report.reduce_sent_bytes);
  message.set_received_bytes(report.gather_received_bytes + report.reduce_received_bytes);
  message.set_gather_sent_bytes(report.gather_sent_bytes);
  message.set_reduce_sent_bytes(report.reduce_sent_bytes);
  message.set_cache_hits(report.cache_hits);
  message.set_resident_gathered_bytes(report.resident_gathered_bytes);
  message.set_healthy(report.world_size > 0);
}

void ToMessage(const JobReport& report, v1::JobInfo& message) {
  message.set_job_id(report.job_id);
  message.set_step(report.step);
  message.set_attached(report.attached);
  message.set_layers(report.layers);
  message.set_parameters(report.parameters_numel);
  message.set_trainable(report.trainable_numel);
  message.set_state_bytes(report.state_bytes);
  message.set_dp(report.dp);
  message.set_tp(report.tp);
  message.set_plan_hash(report.plan_hash);
}

void ToMessage(const LayerReport& report, v1::LayerInfo& message) {
  message.set_index(report.index);
  message.set_name(report.name);
  message.set_tensors(report.tensors);
  message.set_parameters(report.parameters_numel);
  message.set_trainable(report.trainable_numel);
  message.set_gathered_bytes(report.gathered_bytes);
  message.set_version(report.version);
  message.set_leases(report.leases);
  message.set_gathers(report.gathers);
  message.set_reduces(report.reduces);
}

void ToMessage(const ShardReport& report, v1::ShardInfo& message) {
  message.set_layer(report.layer);
  message.set_layer_name(report.layer_name);
  message.set_chunk(report.chunk);
  message.set_trainable(report.trainable);
  message.set_dtype(report.dtype);
  message.set_rank(report.rank);
  message.set_numel(report.numel);
  message.set_bytes(report.parameter_bytes);
  message.set_state_bytes(report.state_bytes);
  message.set_version(report.version);
  message.set_checksum(report.checksum);
}

void ToMessage(const MemoryReport& report, v1::MemoryClass& message) {
  message.set_name(report.name);
  message.set_predicted_bytes(report.predicted_bytes);
  message.set_actual_bytes(report.actual_bytes);
}

void ToMessage(const SessionReport& report, v1::SessionInfo& message) {
  message.set_rank(report.rank);
  message.set_pid(report.pid);
  message.set_program(report.program);
  message.set_job_id(report.job_id);
  message.set_epoch(report.epoch);
  message.set_last_ticket(report.last_ticket);
  message.set_last_operation(report.last_operation);
  message.set_leases(report.leases);
  message.set_attached_s(report.attached_s);
}

}  // namespace zerod
