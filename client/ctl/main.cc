#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "client/ctl/admin_client.h"
#include "client/ctl/ctl_options.h"
#include "client/ctl/json_view.h"
#include "client/ctl/table_view.h"
#include "proto/contract/error.h"
#include "proto/contract/standard_output.h"

namespace zerod::ctl {
namespace {

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitUnhealthy = 4;

/// The daemon's refusals are plain errors here: they don't mean that the command line is wrong.
int ExitCodeOfReply(ErrorCode code) {
  const bool unreachable = code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded;
  return unreachable ? ExitCode(code) : kExitError;
}

std::string Ask(const CtlOptions& options, AdminClient& client) {
  const bool json = options.json;
  switch (options.command) {
    case Command::kPrintAndExit:
    case Command::kHealth:
      break;
    case Command::kStatus: {
      const v1::StatusReply status = client.Status();
      return json ? StatusJson(status, client.Jobs()) : StatusText(status, client.Jobs());
    }
    case Command::kJobs:
      return json ? JobsJson(client.Jobs()) : JobsText(client.Jobs());
    case Command::kDrop:
      client.Drop(options.job_id);
      return json ? "{}\n" : Concat("dropped job ", options.job_id, "\n");
    case Command::kLayers: {
      const v1::LayersReply layers = client.Layers(options.job_id);
      return json ? LayersJson(layers) : LayersText(layers);
    }
    case Command::kShards: {
      const v1::ShardsReply shards = client.Shards(options.job_id, options.checksums);
      return json ? ShardsJson(shards, options.checksums) : ShardsText(shards, options.checksums);
    }
    case Command::kMemory: {
      const v1::MemoryReply memory = client.Memory(options.job_id);
      return json ? MemoryJson(memory) : MemoryText(memory);
    }
    case Command::kSessions: {
      const v1::SessionsReply sessions = client.Sessions();
      return json ? SessionsJson(sessions) : SessionsText(sessions);
    }
    case Command::kVersion: {
      const v1::VersionReply daemon = client.Version();
      return json ? VersionJson(ZEROD_VERSION, daemon) : VersionText(ZEROD_VERSION, daemon);
    }
  }
  ZEROD_CHECK(false, "command ", static_cast<int>(options.command));
  return "";
}

int Run(const CtlOptions& options) {
  if (options.command == Command::kPrintAndExit) {
    WriteStandardOutput(options.text);
    return 0;
  }
  AdminClient client(options.address, options.timeout);
  if (options.command == Command::kHealth) {
    const v1::StatusReply status = client.Status();
    WriteStandardOutput(options.json ? HealthJson(status) : HealthText(status));
    return status.healthy() ? 0 : kExitUnhealthy;
  }
  WriteStandardOutput(Ask(options, client));
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  CtlOptions options;
  try {
    options = ReadCtlOptions(arguments, ProcessEnvironment(), ZEROD_VERSION);
  } catch (const Error& error) {
    std::cerr << "zeroctl: " << error.what() << "\n";
    return kExitUsage;
  }
  try {
    return Run(options);
  } catch (const Error& error) {
    std::cerr << "zeroctl: " << error.what() << "\n";
    return ExitCodeOfReply(error.code());
  } catch (const std::exception& error) {
    std::cerr << "zeroctl: unexpected failure: " << error.what() << "\n";
    return kExitError;
  }
}

}  // namespace
}  // namespace zerod::ctl

int main(int argc, char** argv) {
  return zerod::ctl::Main(std::vector<std::string>(argv + 1, argv + argc));
}
