#include "client/ctl/ctl_options.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <unistd.h>

#include "client/ctl/units.h"
#include "proto/contract/default_socket.h"
#include "proto/contract/descriptor.h"
#include "proto/contract/error.h"

namespace zerod::ctl {
namespace {

[[noreturn]] void Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

/// The address of a Unix socket. gRPC itself says too little about a path that is too long.
std::string UnixTarget(const std::string& path, const std::string& source) {
  if (path.size() > kSocketPathBytesMax) {
    Refuse(Concat(source, ": the socket path ", path, " has ", path.size(), " bytes; at most ",
                  kSocketPathBytesMax, " are possible"));
  }
  return "unix:" + path;
}

/// Accepts unix:PATH, an absolute PATH and HOST:PORT.
std::string ReadTarget(const std::string& text, const std::string& source) {
  constexpr std::string_view kScheme = "unix:";
  if (text.starts_with(kScheme) && text.size() > kScheme.size()) {
    return UnixTarget(text.substr(kScheme.size()), source);
  }
  if (text.starts_with("/")) return UnixTarget(text, source);
  const size_t colon = text.rfind(':');
  const bool has_port = colon != std::string::npos && colon > 0 && colon + 1 < text.size() &&
                        text.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (has_port && text.find('/') == std::string::npos) return text;
  Refuse(Concat(source, ": '", text, "' is not allowed; give unix:PATH or HOST:PORT"));
}

std::string FindAddress(const std::string& given, const Environment& environment) {
  if (!given.empty()) return ReadTarget(given, "--address");
  if (const auto address = environment("ZEROD_ADDRESS"); address && !address->empty()) {
    return ReadTarget(*address, "environment ZEROD_ADDRESS");
  }
  if (const auto socket = environment("ZEROD_SOCKET"); socket && !socket->empty()) {
    return UnixTarget(*socket, "environment ZEROD_SOCKET");
  }
  return "unix:" + DefaultSocketPath(environment("XDG_RUNTIME_DIR").value_or(""), getuid());
}

std::string FaultOfEmpty(const std::string& text) {
  return text.empty() ? "an empty text is not allowed" : "";
}

/// The parser and the places that it fills.
class Parser {
 public:
  explicit Parser(const std::string& version)
      : app_("zeroctl: looks at the state that a zerod holds", "zeroctl") {
    app_.set_version_flag("--version", "zeroctl " + version);
    app_.require_subcommand(0, 1);
    app_.fallthrough();
    app_.add_option("--address", address_, "unix:PATH or HOST:PORT of the daemon")
        ->type_name("ADDRESS")
        ->check(FaultOfEmpty);
    app_.add_option("-o,--output", output_, "table or json [table]")->type_name("FORMAT");
    app_.add_option("--timeout", timeout_, "How long to wait for the daemon [5s]")
        ->type_name("TIME");
    Add(Command::kStatus, "status", "The node, its peers and what it does");
    Add(Command::kHealth, "health", "Whether the node is ready: exit code 0 or 4");
    Add(Command::kJobs, "jobs", "Jobs whose state the node holds");
    AddJob(Add(Command::kDrop, "drop", "Give up the state of a job"), true);
    AddJob(Add(Command::kLayers, "layers", "Layers of a job"), false);
    CLI::App* shards = Add(Command::kShards, "shards", "Shards that the node holds");
    AddJob(shards, false);
    shards->add_flag("--checksums", options_.checksums, "Also compute a checksum of each shard");
    AddJob(Add(Command::kMemory, "memory", "Memory by class, predicted beside actual"), false);
    Add(Command::kSessions, "sessions", "Attached workers");
    Add(Command::kVersion, "version", "Versions of zeroctl and the daemon");
  }

  CtlOptions Parse(const std::vector<std::string>& arguments, const Environment& environment) {
    try {
      app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    } catch (const CLI::CallForHelp&) {
      return Print(app_.help());
    } catch (const CLI::CallForVersion& call) {
      return Print(std::string(call.what()) + "\n");
    } catch (const CLI::ParseError& error) {
      Refuse(Concat(error.what(), "; zeroctl --help lists the commands"));
    }
    if (app_.get_subcommands().empty()) Refuse("name a command; zeroctl --help lists them");
    for (const auto& [command, subcommand] : commands_) {
      if (subcommand->parsed()) options_.command = command;
    }
    if (output_ != "table" && output_ != "json") {
      Refuse(Concat("--output: '", output_, "' is not allowed; give table or json"));
    }
    options_.json = output_ == "json";
    options_.timeout = ReadTimeout(timeout_);
    options_.address = FindAddress(address_, environment);
    return options_;
  }

 private:
  CLI::App* Add(Command command, const std::string& name, const std::string& help) {
    CLI::App* subcommand = app_.add_subcommand(name, help);
    commands_.emplace_back(command, subcommand);
    return subcommand;
  }

  void AddJob(CLI::App* subcommand, bool required) {
    const char* help = required ? "Job id" : "Job id; without it the attached or only job";
    subcommand->add_option("job", options_.job_id, help)
        ->type_name("JOB")
        ->required(required)
        ->check(FaultOfEmpty);
  }

  static CtlOptions Print(std::string text) {
    CtlOptions options;
    options.command = Command::kPrintAndExit;
    options.text = std::move(text);
    return options;
  }

  CLI::App app_;
  CtlOptions options_;
  std::string address_;
  std::string output_ = "table";
  std::string timeout_ = "5s";
  std::vector<std::pair<Command, CLI::App*>> commands_;
};

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

CtlOptions ReadCtlOptions(const std::vector<std::string>& arguments, const Environment& environment,
                          const std::string& version) {
  return Parser(version).Parse(arguments, environment);
}

}  // namespace zerod::ctl
