#pragma once

#include <span>

#include "tests/tidy/source.h"

namespace zerod::tidy {

/// One #include of a C++ file.
struct Include {
  std::string name;  // without quotes or brackets
  bool quoted;       // "name" rather than <name>
  int line;
};

/// All includes of a C++ file in their order; those in comments aren't told apart.
std::vector<Include> IncludesOf(const Source& source);

/// The room that a path belongs to: its first folder, and under server/ and client/ its second one,
/// e.g. "server/engine"; files that lie directly in server/ are in the room "server".
std::string RoomOf(std::string_view path);

/// Each file includes only what its room may: proto <- client <- client/ctl, client <- worker, and
/// proto <- server/{layout,memory,collective,optimizer} <- store <- engine <- {config,rpc,cluster}
/// <- server. Quoted includes are relative to the root (and Abseil's, as is its custom).
Findings CheckRooms(const Source& source);

/// No two folders include each other, directly or around a corner.
Findings CheckCycles(std::span<const Source> sources);

/// Which room may include which library: LibTorch only the worker, Gloo only the server, gRPC in
/// the contract only its two translations, spdlog and fmt only the server and the client's .cc
/// files.
Findings CheckLibraries(const Source& source);

/// No file gets LibTorch together with gRPC, protobuf, spdlog or fmt, nor the worker or LibTorch
/// together with the server, also not through headers of ours.
Findings CheckApart(std::span<const Source> sources);

/// Every .cc and .cu file is named in a CMakeLists.txt of its folder or one above.
Findings CheckBuilt(std::span<const Source> sources);

/// Headers start with #pragma once, after comments at most.
Findings CheckPragmaOnce(const Source& source);

/// Compares the visible names at the top level with those the project agreed on.
Findings CheckTopLevel(std::span<const std::string> names);

}  // namespace zerod::tidy
