#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <stdlib.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "server/collective/communicator.h"

namespace zerod::testing {

using std::chrono::milliseconds;

/// A rendezvous store in a folder, so that threads and processes can share it.
class FolderStore final : public RendezvousStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void Set(const std::string& key, const std::string& value) override {
    const std::filesystem::path fresh = PathOf(key).string() + ".fresh";
    std::ofstream(fresh, std::ios::binary) << value;
    std::filesystem::rename(fresh, PathOf(key));
  }

  std::string Get(const std::string& key, milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(PathOf(key))) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw Error(ErrorCode::kDeadlineExceeded, Concat("no entry ", key));
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::ostringstream value;
    value << std::ifstream(PathOf(key), std::ios::binary).rdbuf();
    return value.str();
  }

 private:
  std::filesystem::path PathOf(std::string key) const {
    for (char& c : key) {
      if (c == '/') c = '-';
    }
    return folder_ / key;
  }

  const std::filesystem::path folder_;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = std::filesystem::temp_directory_path() / "zerod-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = path;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::unique_ptr<Communicator> Connect(const std::filesystem::path& folder, int node,
                                             int node_count,
                                             milliseconds timeout = milliseconds(10'000)) {
  FolderStore store(folder);
  return MakeGlooCommunicator({.node = node,
                               .node_count = node_count,
                               .name = "test",
                               .host = "127.0.0.1",
                               .timeout = timeout},
                              store);
}

/// Runs `body` for every node in a thread of its own, each with its own communicator. Rethrows the
/// first exception.
inline void RunNodes(int node_count,
                     const std::function<void(int node, Communicator& communicator)>& body) {
  TemporaryFolder folder;
  std::vector<std::future<void>> nodes;
  nodes.reserve(static_cast<size_t>(node_count));
  for (int node = 0; node < node_count; ++node) {
    nodes.push_back(std::async(std::launch::async, [&, node] {
      const std::unique_ptr<Communicator> communicator = Connect(folder.path(), node, node_count);
      body(node, *communicator);
    }));
  }
  for (auto& node : nodes) node.get();
}

/// Byte `index` of the segment that `sender` sends to `receiver`.
inline std::byte Expected(int sender, int receiver, uint64_t ticket, size_t index) {
  return static_cast<std::byte>(sender * 7 + receiver * 31 + ticket * 13 + index + index / 251);
}

inline std::vector<std::byte> Filled(int sender, int receiver, uint64_t ticket, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = Expected(sender, receiver, ticket, i);
  return data;
}

/// Tag of the one segment that `sender` sends for a ticket.
inline SegmentTag Tag(uint64_t ticket, int sender) {
  return {
      .ticket = ticket, .layer = 3, .chunk = 1, .kind = 3, .rank = static_cast<uint16_t>(sender)};
}

/// The code of the Error that `action` throws; nothing if it throws none.
template <typename Action>
std::string FailureOf(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return ErrorCodeName(error.code());
  }
  return "none";
}

}  // namespace zerod::testing
