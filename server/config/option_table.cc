#include "server/config/option_table.h"

#include <chrono>
#include <utility>

#include "server/config/values.h"

namespace zerod {
namespace {

constexpr int64_t kNodesMax = 1024;
constexpr int64_t kRanksMax = 1024;
constexpr int64_t kDayMs = 24LL * 3600 * 1000;

void AppendPlacement(std::vector<OptionEntry>& table, const std::string& default_socket_path) {
  table.push_back({"node", "I", "Index of this node in --peers", "0", false,
                   [](const std::string& text, ServerOptions& options) {
                     options.engine.node = static_cast<int>(ReadInteger(text, 0, kNodesMax - 1));
                   }});
  table.push_back({"peers", "H:P,...",
                   "Addresses of all nodes in node order, this one included; "
                   "empty: a single node",
                   "", true, [](const std::string& text, ServerOptions& options) {
                     options.peers = ReadAddressList(text);
                     options.engine.node_count =
                         options.peers.empty() ? 1 : static_cast<int>(options.peers.size());
                   }});
  table.push_back({"ranks", "N", "Ranks (device slots) of this node", "1", false,
                   [](const std::string& text, ServerOptions& options) {
                     options.engine.ranks = static_cast<int>(ReadInteger(text, 1, kRanksMax));
                   }});
  table.push_back(
      {"socket", "PATH", "Control socket for the workers of this node", default_socket_path, true,
       [](const std::string& text, ServerOptions& options) { options.socket_path = text; }});
  table.push_back({"listen", "H:P",
                   "Address for peers, zeroctl and health checks; port 0 picks a "
                   "free one; empty: this node's entry of --peers, or 127.0.0.1:0",
                   "", true, [](const std::string& text, ServerOptions& options) {
                     options.listen = text.empty() ? text : ReadAddress(text, 0);
                   }});
}

/// An option that holds milliseconds.
OptionEntry Duration(const std::string& name, const std::string& help, int64_t default_ms,
                     std::chrono::milliseconds EngineOptions::*member) {
  return {name,
          "MS",
          help,
          std::to_string(default_ms),
          false,
          [member](const std::string& text, ServerOptions& options) {
            options.engine.*member = std::chrono::milliseconds(ReadInteger(text, 1, kDayMs));
          }};
}

void AppendDeadlines(std::vector<OptionEntry>& table) {
  table.push_back(Duration("late-warning-ms", "A rank this late is reported", 5'000,
                           &EngineOptions::late_warning));
  table.push_back(Duration("late-deadline-ms", "A rank this late ends the attach of all", 120'000,
                           &EngineOptions::late_deadline));
  table.push_back(Duration("join-deadline-ms", "Until all ranks of the world are attached", 120'000,
                           &EngineOptions::join_deadline));
}

void AppendImport(std::vector<OptionEntry>& table) {
  table.push_back(
      {"model-root", "DIR,...",
       "Absolute folders, which must exist, from which workers may have weights imported; "
       "empty: nothing is imported",
       "", true, [](const std::string& text, ServerOptions& options) {
         options.engine.model_roots = ReadFolderList(text);
       }});
}

void AppendTuning(std::vector<OptionEntry>& table) {
  table.push_back({"cache-bytes", "BYTES",
                   "Bound on released, still resident layers of other "
                   "nodes; takes KiB, MiB, GiB",
                   "0", true, [](const std::string& text, ServerOptions& options) {
                     options.engine.cache_bytes = ReadBytes(text);
                   }});
  table.push_back({"huge-pages", "BOOL", "Advise transparent huge pages for shards and slots",
                   "true", false, [](const std::string& text, ServerOptions& options) {
                     options.engine.huge_pages = ReadBool(text);
                   }});
  table.push_back(
      {"log-level", "LEVEL", "trace, debug, info, warn, error or off", "info", true,
       [](const std::string& text, ServerOptions& options) {
         options.log_level = ReadWord(text, {"trace", "debug", "info", "warn", "error", "off"});
       }});
}

}  // namespace

std::vector<OptionEntry> OptionTable(const std::string& default_socket_path) {
  std::vector<OptionEntry> table;
  AppendPlacement(table, default_socket_path);
  AppendDeadlines(table);
  AppendImport(table);
  AppendTuning(table);
  AppendFailpointOption(table);
  return table;
}

}  // namespace zerod
