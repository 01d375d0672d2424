#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "proto/contract/error.h"

namespace zerod::neox {

/// A file of its own with the given content; removed at the end.
class ScratchFile {
 public:
  explicit ScratchFile(std::string_view content);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Content of a .safetensors file with this header and data.
std::string SafetensorsContent(const std::string& header, std::string_view data);

/// What the call complains about: the message of its Error, after checking that a program would end
/// with the exit code for a bad model or bad data. Fails the test if it doesn't complain.
std::string ComplaintOf(const std::function<void()>& call);

}  // namespace zerod::neox
