#include "tests/tidy/rooms.h"

#include <algorithm>
#include <map>
#include <set>

namespace zerod::tidy {
namespace {

// A room and those below it that it may include; each may include itself. Rooms on one line of the
// architecture's picture may include each other as long as no cycle arises (CheckCycles).
const std::map<std::string, std::set<std::string>, std::less<>>& Below() {
  static const std::set<std::string> base = {"proto", "server/layout", "server/memory",
                                             "server/collective", "server/optimizer"};
  static const auto plus = [](std::set<std::string> rooms, std::set<std::string> more) {
    rooms.merge(more);
    return rooms;
  };
  static const auto store = plus(base, {"server/store"});
  static const auto engine = plus(store, {"server/engine"});
  static const auto edge = plus(engine, {"server/rpc", "server/cluster", "server/config"});
  static const std::map<std::string, std::set<std::string>, std::less<>> below = {
      {"proto", {"proto"}},
      {"client", {"proto", "client"}},
      {"client/ctl", {"proto", "client", "client/ctl"}},
      {"worker", {"proto", "client", "worker"}},
      {"server/config", edge},
      {"server/layout", base},
      {"server/memory", base},
      {"server/collective", base},
      {"server/optimizer", base},
      {"server/store", store},
      {"server/engine", engine},
      {"server/rpc", edge},
      {"server/cluster", edge},
      {"server", plus(edge, {"server"})},
  };
  return below;
}

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

bool IsTorch(std::string_view include) {
  return StartsWithAny(include, {"torch/", "ATen/", "c10/", "caffe2/"});
}
bool IsGrpc(std::string_view include) {
  return StartsWithAny(include, {"grpc", "google/protobuf/"}) || include.ends_with(".pb.h");
}
bool IsLog(std::string_view include) { return StartsWithAny(include, {"spdlog/", "fmt/"}); }
bool IsGloo(std::string_view include) { return StartsWithAny(include, {"gloo/", "nccl"}); }
// The two halves of the contract that translate: gRPC codes and protobuf messages.
bool IsTranslation(std::string_view path) {
  return StartsWithAny(path, {"proto/contract/status", "proto/contract/convert"});
}
bool IsServer(std::string_view include) { return include.starts_with("server/"); }
bool IsWorker(std::string_view include) { return include.starts_with("worker/"); }

std::string Folder(std::string_view path) { return std::string(path.substr(0, path.rfind('/'))); }

// Everything a file includes, also through headers of ours.
void Collect(const std::map<std::string, std::vector<Include>>& includes, const std::string& path,
             std::set<std::string>& reached) {
  const auto it = includes.find(path);
  if (it == includes.end()) return;
  for (const Include& include : it->second) {
    if (reached.insert(include.name).second) Collect(includes, include.name, reached);
  }
}

std::map<std::string, std::vector<Include>> IncludesByPath(std::span<const Source> sources) {
  std::map<std::string, std::vector<Include>> includes;
  for (const Source& source : sources) {
    if (IsCpp(source.path)) includes[source.path] = IncludesOf(source);
  }
  return includes;
}

}  // namespace

std::vector<Include> IncludesOf(const Source& source) {
  std::vector<Include> includes;
  if (!IsCpp(source.path)) return includes;
  int number = 0;
  for (std::string_view line : Lines(source.text)) {
    ++number;
    if (!line.starts_with("#include ")) continue;
    line.remove_prefix(9);
    const bool quoted = line.starts_with('"');
    const size_t end = line.find(quoted ? '"' : '>', 1);
    if (end == line.npos) continue;
    includes.push_back({std::string(line.substr(1, end - 1)), quoted, number});
  }
  return includes;
}

std::string RoomOf(std::string_view path) {
  const size_t first = path.find('/');
  const std::string_view top = path.substr(0, first);
  if (top == "client") return path.starts_with("client/ctl/") ? "client/ctl" : "client";
  const size_t second = first == path.npos ? path.npos : path.find('/', first + 1);
  if (top == "server" && second != path.npos) return std::string(path.substr(0, second));
  return std::string(top);
}

Findings CheckRooms(const Source& source) {
  Findings findings;
  const std::string room = RoomOf(source.path);
  const auto below = Below().find(room);
  if (below == Below().end() && room != "tests" && IsCpp(source.path)) {
    findings.push_back(
        Finding(source, 1, room + " is no room; give it a place in the order first"));
    return findings;
  }
  for (const Include& include : IncludesOf(source)) {
    if (!include.quoted || include.name.starts_with("absl/")) continue;
    const std::string target = RoomOf(include.name);
    const bool known = target == "tests" || Below().contains(target);
    if (!known) {
      findings.push_back(Finding(
          source, include.line,
          include.name + " isn't relative to the root; write room/file.h, or <> if it isn't ours"));
    } else if (room != "tests" && !below->second.contains(target)) {
      findings.push_back(Finding(
          source, include.line,
          room + " may not include " + target + "; move what is shared to a room below both"));
    }
  }
  return findings;
}

Findings CheckCycles(std::span<const Source> sources) {
  std::map<std::string, std::set<std::string>> reach;
  for (const Source& source : sources) {
    if (source.path.starts_with("tests/")) continue;
    for (const Include& include : IncludesOf(source)) {
      const std::string from = RoomOf(source.path), to = RoomOf(include.name);
      if (include.quoted && from != to) reach[from].insert(to);
    }
  }
  for (const auto& [middle, unused] : reach) {
    for (auto& [from, targets] : reach) {
      if (targets.contains(middle)) targets.insert(reach[middle].begin(), reach[middle].end());
    }
  }
  Findings findings;
  for (const auto& [room, targets] : reach) {
    if (targets.contains(room)) {
      findings.push_back(room + ": includes itself around a corner; cut one of the arrows");
    }
  }
  return findings;
}

Findings CheckLibraries(const Source& source) {
  Findings findings;
  const std::string_view path = source.path;
  if (path.starts_with("tests/")) return findings;
  const bool server = path.starts_with("server/");
  const bool client_source = path.starts_with("client/") && path.ends_with(".cc");
  const bool contract = path.starts_with("proto/contract/");
  for (const Include& include : IncludesOf(source)) {
    std::string_view rule;
    if (IsTorch(include.name) && !path.starts_with("worker/"))
      rule = "LibTorch is for worker/ only";
    if (IsGloo(include.name) && !server) rule = "Gloo and NCCL are for server/ only";
    if (IsLog(include.name) && !server && !client_source) {
      rule = "spdlog and fmt are for server/ and the .cc files of client/ only";
    }
    if (contract && IsGrpc(include.name) && !IsTranslation(path)) {
      rule = "in proto/contract only status and convert may know gRPC and protobuf";
    }
    if (!rule.empty()) {
      findings.push_back(Finding(source, include.line, include.name + ": " + std::string(rule)));
    }
  }
  return findings;
}

Findings CheckApart(std::span<const Source> sources) {
  Findings findings;
  const auto includes = IncludesByPath(sources);
  for (const Source& source : sources) {
    std::set<std::string> reached;
    Collect(includes, source.path, reached);
    std::string torch, wire, server, worker;
    for (const std::string& name : reached) {
      if (IsTorch(name)) torch = name;
      if (IsGrpc(name) || IsLog(name)) wire = name;
      if (IsServer(name)) server = name;
      if (IsWorker(name) || IsTorch(name)) worker = name;
    }
    if (!torch.empty() && !wire.empty()) {
      findings.push_back(Finding(
          source, 1,
          "gets " + torch + " together with " + wire + "; hide one behind a header of plain C++"));
    }
    if (!server.empty() && !worker.empty()) {
      findings.push_back(
          Finding(source, 1,
                  "gets " + worker + " together with " + server + "; test them as two processes"));
    }
  }
  return findings;
}

Findings CheckBuilt(std::span<const Source> sources) {
  std::map<std::string, std::string_view> lists;
  for (const Source& source : sources) {
    if (source.path.ends_with("CMakeLists.txt")) lists[source.path] = source.text;
  }
  Findings findings;
  for (const Source& source : sources) {
    if (!IsKind(source.path, {".cc", ".cu"})) continue;
    bool named = false;
    for (std::string folder = Folder(source.path); !named; folder = Folder(folder)) {
      const auto list = lists.find(folder + "/CMakeLists.txt");
      const std::string name = source.path.substr(folder.size() + 1);
      named = list != lists.end() && FindWord(list->second, name) != std::string_view::npos;
      if (folder.find('/') == folder.npos) break;
    }
    if (!named) {
      findings.push_back(
          Finding(source, 1, "no CMakeLists.txt names this file; build or delete it"));
    }
  }
  return findings;
}

Findings CheckPragmaOnce(const Source& source) {
  if (!source.path.ends_with(".h")) return {};
  int number = 0;
  for (std::string_view line : Lines(source.text)) {
    ++number;
    if (line.empty() || line.starts_with("//")) continue;
    if (line == "#pragma once") return {};
    return {Finding(source, number, "code before #pragma once; start the header with it")};
  }
  return {Finding(source, 1, "no #pragma once; start the header with it")};
}

Findings CheckTopLevel(std::span<const std::string> names) {
  const std::set<std::string> agreed = {"CMakeLists.txt", "LICENSE", "README.md",
                                        "client",         "deploy",  "proto",
                                        "server",         "tests",   "worker"};
  const std::set<std::string> found(names.begin(), names.end());
  Findings findings;
  for (const std::string& name : found) {
    if (!agreed.contains(name))
      findings.push_back(name + ": not one of the agreed top-level names");
  }
  for (const std::string& name : agreed) {
    if (!found.contains(name)) findings.push_back(name + ": missing at the top level");
  }
  return findings;
}

}  // namespace zerod::tidy
