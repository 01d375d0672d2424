#include "server/config/command_line.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <unistd.h>

#include "proto/contract/default_socket.h"
#include "proto/contract/descriptor.h"
#include "proto/contract/error.h"
#include "server/config/config_file.h"
#include "server/config/option_table.h"

namespace zerod {
namespace {

/// The text of one option and where it came from, e.g. "environment ZEROD_RANKS".
struct SourcedValue {
  std::string text;
  std::string source;
};

struct CommandLine {
  std::map<std::string, std::string> values;  // of the options that were given
  std::optional<std::string> config_path;
  bool check = false;
  bool print = false;
  std::optional<std::string> message;  // of --help and --version
};

std::string VariableName(const std::string& option) {
  std::string name = "ZEROD_";
  for (char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

CommandLine ParseArguments(const std::vector<std::string>& arguments,
                           const std::vector<OptionEntry>& table, const std::string& version) {
  CommandLine result;
  CLI::App app("zerod: holds this node's part of the training state and runs its collectives",
               "zerod");
  app.set_version_flag("--version", "zerod " + version);
  std::deque<std::string> texts;
  std::vector<CLI::Option*> options;
  for (const OptionEntry& entry : table) {
    const std::string suffix = entry.default_value.empty() ? "" : " [" + entry.default_value + "]";
    options.push_back(app.add_option("--" + entry.name, texts.emplace_back(), entry.help + suffix)
                          ->type_name(entry.placeholder));
  }
  std::string config_path;
  const CLI::Option* config =
      app.add_option("--config", config_path, "TOML file with any of these options")
          ->type_name("FILE");
  app.add_flag("--check-config", result.check, "Check the options and exit with 0 or 2");
  app.add_flag("--print-config", result.print, "Print each value with its source and exit");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    result.message = app.help();
  } catch (const CLI::CallForVersion& call) {
    result.message = std::string(call.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kInvalidArgument,
                Concat(error.what(), "; zerod --help lists the options"));
  }
  for (size_t i = 0; i < table.size(); ++i) {
    if (options[i]->count() > 0) result.values[table[i].name] = texts[i];
  }
  if (config->count() > 0) result.config_path = config_path;
  return result;
}

/// A variable that is set to nothing counts as not set.
std::optional<std::string> Lookup(const Environment& environment, const std::string& option) {
  std::optional<std::string> value = environment(VariableName(option));
  if (value && value->empty()) return std::nullopt;
  return value;
}

std::map<std::string, SourcedValue> Merge(const CommandLine& command_line,
                                          const Environment& environment,
                                          const std::vector<OptionEntry>& table) {
  std::map<std::string, std::string> from_file;
  const std::optional<std::string> path =
      command_line.config_path ? command_line.config_path : Lookup(environment, "config");
  if (path) {
    std::vector<std::string> names;
    names.reserve(table.size());
    for (const OptionEntry& entry : table) names.push_back(entry.name);
    from_file = ReadConfigFile(*path, names);
  }
  std::map<std::string, SourcedValue> merged;
  for (const OptionEntry& entry : table) {
    SourcedValue& value = merged[entry.name];
    if (const auto given = command_line.values.find(entry.name);
        given != command_line.values.end()) {
      value = {given->second, "command line"};
    } else if (const auto variable = Lookup(environment, entry.name)) {
      value = {*variable, "environment " + VariableName(entry.name)};
    } else if (const auto item = from_file.find(entry.name); item != from_file.end()) {
      value = {item->second, "file " + *path};
    } else {
      value = {entry.default_value, "default"};
    }
  }
  return merged;
}

ServerOptions Apply(const std::vector<OptionEntry>& table,
                    const std::map<std::string, SourcedValue>& merged) {
  ServerOptions options;
  for (const OptionEntry& entry : table) {
    const SourcedValue& value = merged.at(entry.name);
    try {
      entry.apply(value.text, options);
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalidArgument,
                  Concat("--", entry.name, ": '", value.text, "' (from ", value.source,
                         ") is not allowed; give ", error.what()));
    }
  }
  return options;
}

/// What no option can check alone.
void CheckTogether(ServerOptions& options, const std::map<std::string, SourcedValue>& merged) {
  const EngineOptions& engine = options.engine;
  const auto refuse = [&](const std::string& name, const std::string& rule) {
    const SourcedValue& value = merged.at(name);
    throw Error(ErrorCode::kInvalidArgument, Concat("--", name, ": '", value.text, "' (from ",
                                                    value.source, ") is not allowed; ", rule));
  };
  if (engine.node >= engine.node_count) {
    refuse("node", Concat("--peers names ", engine.node_count,
                          engine.node_count == 1 ? " node (this one)" : " nodes",
                          ", so give a number below ", engine.node_count));
  }
  if (engine.late_warning > engine.late_deadline) {
    refuse("late-warning-ms",
           Concat("it must not be above --late-deadline-ms (", engine.late_deadline.count(), ")"));
  }
  const size_t longest = kSocketPathBytesMax - DescriptorSocketPath("").size();
  if (options.socket_path.empty() || options.socket_path.size() > longest) {
    refuse("socket", Concat("give a path of 1 to ", longest, " bytes (this one has ",
                            options.socket_path.size(), ")"));
  }
  for (const std::string& root : engine.model_roots) {
    std::error_code fault;
    if (std::filesystem::is_directory(root, fault)) continue;
    refuse("model-root", Concat(root, " isn't a folder that can be read: ",
                                fault ? fault.message() : ErrnoText(ENOTDIR)));
  }
  if (options.listen.empty()) {
    options.listen = options.peers.empty() ? "127.0.0.1:0" : options.peers[engine.node];
  }
}

std::string PrintedConfig(const std::vector<OptionEntry>& table,
                          const std::map<std::string, SourcedValue>& merged) {
  std::string text;
  for (const OptionEntry& entry : table) {
    const SourcedValue& value = merged.at(entry.name);
    const std::string quote = entry.quoted ? "\"" : "";
    text += Concat(entry.name, " = ", quote, value.text, quote, "  # ", value.source, "\n");
  }
  return text;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

StartRequest ReadCommandLine(const std::vector<std::string>& arguments,
                             const Environment& environment, const std::string& version) {
  const std::vector<OptionEntry> table =
      OptionTable(DefaultSocketPath(environment("XDG_RUNTIME_DIR").value_or(""), getuid()));
  const CommandLine command_line = ParseArguments(arguments, table, version);
  StartRequest request;
  if (command_line.message) {
    request.mode = StartMode::kPrintAndExit;
    request.text = *command_line.message;
    return request;
  }
  const std::map<std::string, SourcedValue> merged = Merge(command_line, environment, table);
  request.options = Apply(table, merged);
  CheckTogether(request.options, merged);
  if (command_line.print || command_line.check) {
    request.mode = StartMode::kPrintAndExit;
    request.text = command_line.print ? PrintedConfig(table, merged) : "the options are valid\n";
  }
  return request;
}

}  // namespace zerod
