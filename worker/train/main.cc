#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "proto/contract/error.h"
#include "proto/contract/printable_text.h"
#include "proto/contract/standard_output.h"
#include "worker/train/run.h"
#include "worker/train/train_options.h"

namespace zerod::train {
namespace {

constexpr int kExitError = 1;

/// LibTorch appends a stack trace to its messages.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

void Report(const TrainEnvironment& environment, const std::string& message) {
  std::string who = "zerod-train";
  if (environment.session.world_size > 1) who += Concat(" rank ", environment.session.rank);
  std::cerr << who + ": " + OneLineText(message) + "\n" << std::flush;
}

int Main(const std::vector<std::string>& arguments) {
  TrainEnvironment environment;
  try {
    environment = TrainEnvironment::FromProcess();
    const TrainRequest request = ReadTrainOptions(arguments, environment, ZEROD_VERSION);
    if (request.text_to_print) {
      WriteStandardOutput(*request.text_to_print);
      return 0;
    }
    return Run(request.options);
  } catch (const Error& error) {
    Report(environment, error.what());
    return ExitCode(error.code());
  } catch (const std::exception& error) {
    Report(environment, "unexpected failure: " + FirstLine(error.what()));
    return kExitError;
  }
}

}  // namespace
}  // namespace zerod::train

int main(int argc, char** argv) {
  return zerod::train::Main(std::vector<std::string>(argv + 1, argv + argc));
}
