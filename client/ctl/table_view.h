#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace zerod::ctl {

/// Answers of the daemon as text for people: aligned, human units, newline at the end.
std::string StatusText(const v1::StatusReply& status, const v1::JobsReply& jobs);
std::string JobsText(const v1::JobsReply& jobs);
std::string LayersText(const v1::LayersReply& layers);
std::string ShardsText(const v1::ShardsReply& shards, bool checksums);
std::string MemoryText(const v1::MemoryReply& memory);
std::string SessionsText(const v1::SessionsReply& sessions);
std::string VersionText(const std::string& own_version, const v1::VersionReply& daemon);

/// One line: "healthy" or "unhealthy: " and why.
std::string HealthText(const v1::StatusReply& status);

}  // namespace zerod::ctl
