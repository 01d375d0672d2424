#include "tests/worker/neox/scratch_file.h"

#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace zerod::neox {

ScratchFile::ScratchFile(std::string_view content) {
  path_ = testing::TempDir() + "zerod_neox_XXXXXX";
  const int descriptor = mkstemp(path_.data());
  EXPECT_GE(descriptor, 0) << path_;
  close(descriptor);
  std::ofstream(path_, std::ios::binary) << content;
}

ScratchFile::~ScratchFile() { unlink(path_.c_str()); }

std::string SafetensorsContent(const std::string& header, std::string_view data) {
  std::string content;
  for (int byte = 0; byte < 8; ++byte) {
    content += static_cast<char>(header.size() >> (8 * byte) & 0xFF);
  }
  return content.append(header).append(data);
}

std::string ComplaintOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(ExitCode(error.code()), 5) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace zerod::neox
