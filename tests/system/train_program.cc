#include "tests/system/train_program.h"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace zerod {

TrainProgram::TrainProgram(const Daemons& daemons, const std::vector<std::string>& arguments) {
  for (int rank = 0; rank < daemons.World(); ++rank) {
    const SessionOptions place = daemons.OptionsOf(rank);
    ChildOptions options;
    options.arguments = {ZEROD_PROGRAM_ZEROD_TRAIN};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(place.world_size)},
                           {"LOCAL_RANK", std::to_string(place.local_rank)},
                           {"ZEROD_SOCKET", place.socket_path},
                           {"OMP_NUM_THREADS", "1"}};
    options.output_path = folder_.File(Name("out", rank));
    options.error_path = folder_.File(Name("err", rank));
    processes_.push_back(std::make_unique<ChildProcess>(options));
  }
}

void TrainProgram::ExpectEnd(int exit_code, std::chrono::seconds timeout) {
  for (int index = 0; index < world(); ++index) {
    EXPECT_EQ(rank(index).Wait(timeout), exit_code)
        << "rank " << index << ": " << output(index) << error(index);
  }
}

std::vector<std::string> ReadLosses(const std::string& log_path) {
  std::vector<std::string> losses;
  std::istringstream lines(ReadWholeFile(log_path));
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    losses.push_back(entry.contains("loss")
                         ? entry.at("loss").dump() + " " + entry.at("grad_norm").dump()
                         : "eval " + entry.at("eval_loss").dump());
  }
  return losses;
}

}  // namespace zerod
