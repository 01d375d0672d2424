#pragma once

#include <string>
#include <vector>

#include "proto/admin.pb.h"
#include "server/engine/report.h"

namespace zerod {

/// The engine's reports as messages for zeroctl.
void ToMessage(const StatusReport& report, v1::StatusReply& message);
void ToMessage(const JobReport& report, v1::JobInfo& message);
void ToMessage(const LayerReport& report, v1::LayerInfo& message);
void ToMessage(const ShardReport& report, v1::ShardInfo& message);
void ToMessage(const MemoryReport& report, v1::MemoryClass& message);
void ToMessage(const SessionReport& report, v1::SessionInfo& message);

}  // namespace zerod
