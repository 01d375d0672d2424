#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zerod::ctl {

enum class Command {
  kPrintAndExit,  // --help and --version: `text` goes to stdout
  kStatus,
  kHealth,
  kJobs,
  kDrop,
  kLayers,
  kShards,
  kMemory,
  kSessions,
  kVersion,
};

struct CtlOptions {
  Command command = Command::kStatus;
  std::string address;  ///< as gRPC takes it: unix:PATH or HOST:PORT
  bool json = false;
  std::chrono::milliseconds timeout{5'000};
  std::string job_id;      ///< empty: the attached or only job
  bool checksums = false;  ///< of shards
  std::string text;
};

/// Looks up one environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process. The only place of zeroctl that reads it.
Environment ProcessEnvironment();

/// `arguments` without the program's name. The address comes from --address, ZEROD_ADDRESS,
/// ZEROD_SOCKET or the default socket, in this order. Throws Error (kInvalidArgument) in one line.
CtlOptions ReadCtlOptions(const std::vector<std::string>& arguments, const Environment& environment,
                          const std::string& version);

}  // namespace zerod::ctl
