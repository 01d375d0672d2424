#pragma once

#include <string>

#include "proto/admin.pb.h"

namespace zerod::ctl {

/// Answers of the daemon as JSON for programs: stable key order, raw numbers (bytes, elements,
/// seconds), hashes and checksums as 16 hexadecimal digits. Newline at the end.
std::string StatusJson(const v1::StatusReply& status, const v1::JobsReply& jobs);
std::string JobsJson(const v1::JobsReply& jobs);
std::string LayersJson(const v1::LayersReply& layers);
std::string ShardsJson(const v1::ShardsReply& shards, bool checksums);
std::string MemoryJson(const v1::MemoryReply& memory);
std::string SessionsJson(const v1::SessionsReply& sessions);
std::string HealthJson(const v1::StatusReply& status);
std::string VersionJson(const std::string& own_version, const v1::VersionReply& daemon);

}  // namespace zerod::ctl
