// Groups that don't come together: workers that die while others wait for them, other models,
// other options; daemons that freeze.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/system/fault_trainer.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr seconds kTimeout{40};

int Code(ErrorCode code) { return static_cast<int>(code); }

std::vector<double> TrainTwice(const SessionOptions& options) {
  FaultTrainer trainer(options);
  for (int i = 0; i < 2; ++i) trainer.Train();
  std::vector<double> weights = trainer.Weights();
  trainer.session().Detach(true);
  return weights;
}

void ExpectTrains(const Daemons& daemons) {
  for (const auto& weights : RunRanksOrThrow(daemons, TrainTwice)) {
    EXPECT_EQ(weights, (std::vector<double>{-2, -2}));
  }
}

size_t SessionCount(const Daemons& daemons, int node) {
  const std::string sessions = daemons.Ctl(node, {"sessions"});
  size_t count = 0;
  for (size_t at = 0; (at = sessions.find("\"pid\"", at)) != std::string::npos; ++at) ++count;
  return count;
}

LayerSpec Linear(const std::string& name, std::vector<int64_t> shape) {
  return {.name = name, .tensors = {{.name = name + ".weight", .shape = std::move(shape)}}};
}

class FaultJoinTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  Marks marks_;
};

TEST_P(FaultJoinTest, AWorkerKilledWhileItWaitsForTheOthersMakesRoomForTheNext) {
  const Daemons daemons(GetParam());
  for (int i = 0; i < 3; ++i) {
    RankProcess waiting(daemons.OptionsOf(0), TrainTwice);
    ASSERT_TRUE(WaitUntil(kTimeout, [&] { return SessionCount(daemons, 0) == 1; }));
    waiting.Signal(SIGKILL);
    EXPECT_EQ(waiting.Wait(kTimeout).exit_code, 128 + SIGKILL);
    ASSERT_TRUE(WaitUntil(kTimeout, [&] { return SessionCount(daemons, 0) == 0; }));
  }
  ExpectTrains(daemons);
}

TEST_P(FaultJoinTest, AWorkerKilledWhileItRegistersLeavesNoHalfJob) {
  const Daemons daemons(GetParam());
  RankProcess first(daemons.OptionsOf(0), TrainTwice);
  RankProcess second(daemons.OptionsOf(1), [&](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    session->Register({.name = "layer0", .tensors = {{.name = "weight0", .shape = {6000}}}});
    marks_.SetAndSleep("registered");
    return std::vector<double>{};
  });
  marks_.Await("registered");
  second.Signal(SIGKILL);
  const RankOutcome outcome = first.Wait(kTimeout);
  EXPECT_EQ(outcome.error_code, Code(ErrorCode::kAborted)) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("rank 1 (test, pid "));
  ExpectTrains(daemons);
}

TEST_P(FaultJoinTest, AllWorkersKilledAtOnceLeaveTheJobForTheNext) {
  const Daemons daemons(GetParam());
  std::vector<RankProcess> workers;
  workers.reserve(daemons.World());
  for (int rank = 0; rank < daemons.World(); ++rank) {
    workers.emplace_back(daemons.OptionsOf(rank), [&](const SessionOptions& options) {
      FaultTrainer trainer(options);
      trainer.Train();
      trainer.Gather();
      trainer.Reduce();
      marks_.SetAndSleep(Concat("reduced", options.rank));
      return std::vector<double>{};
    });
  }
  for (int rank = 0; rank < daemons.World(); ++rank) marks_.Await(Concat("reduced", rank));
  for (RankProcess& worker : workers) worker.Signal(SIGKILL);
  const auto values = RunRanksOrThrow(daemons, [](SessionOptions options) {
    options.mode = AttachMode::kAttach;
    FaultTrainer trainer(options);
    trainer.Train();
    std::vector<double> result = trainer.Weights();
    trainer.session().Detach(true);
    return result;
  });
  for (const auto& rank : values) EXPECT_EQ(rank, (std::vector<double>{-2, -2}));
}

TEST_P(FaultJoinTest, RanksThatRegisterOtherModelsHearOfTheFirstDifference) {
  const Daemons daemons(GetParam());
  const auto outcomes = RunRanks(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    session->Register(Linear("same", {6, 4}));
    session->Register(Linear("differs", {6, options.rank == 0 ? 4 : 5}));
    session->Seal();
    return std::vector<double>{};
  });
  const bool one_node = daemons.OptionsOf(1).local_rank == 1;
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.ok);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 1"), HasSubstr("layer 1")));
    if (one_node) {
      EXPECT_THAT(outcome.error, HasSubstr("differs"));
    }
  }
  ExpectTrains(daemons);
}

TEST_P(FaultJoinTest, AnotherModelForAJobIsRefusedNamingBothValuesAndTheJobStands) {
  const Daemons daemons(GetParam());
  const auto first = RunRanks(daemons, [](const SessionOptions& options) {
    FaultTrainer trainer(options);
    trainer.Train();
    trainer.session().Detach(false);
    return std::vector<double>{};
  });
  for (const RankOutcome& outcome : first) ASSERT_TRUE(outcome.ok) << outcome.error;
  const auto outcomes = RunRanks(daemons, [](const SessionOptions& options) {
    const auto session = Session::Connect(options);
    session->Register({.name = "layer0", .tensors = {{.name = "weight0", .shape = {6001}}}});
    session->Seal();
    return std::vector<double>{};
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error_code, Code(ErrorCode::kFailedPrecondition)) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("6000"), HasSubstr("6001"), HasSubstr("weight0"),
                                     HasSubstr("zeroctl drop default")));
  }
  EXPECT_THAT(daemons.Ctl(0, {"jobs"}), HasSubstr("\"step\": 1,"));
}

TEST_P(FaultJoinTest, RanksWithOtherOptionsAreRefusedNamingTheOption) {
  const Daemons daemons(GetParam());
  const auto outcomes = RunRanks(daemons, [&](SessionOptions options) {
    options.window_bytes = options.rank == 0 ? 1 << 20 : 1 << 21;
    options.join_timeout = milliseconds(15'000);
    if (daemons.OptionsOf(1).local_rank == 1 && options.rank == 0) {
      // On one node who comes second is refused, and the first goes on waiting.
      SessionOptions impatient = options;
      impatient.join_timeout = milliseconds(3000);
      return TrainTwice(impatient);
    }
    if (daemons.OptionsOf(1).local_rank == 1) {
      WaitUntil(kTimeout, [&] { return SessionCount(daemons, 0) == 1; });
    }
    return TrainTwice(options);
  });
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr("window_bytes is 1048576"), HasSubstr("2097152")));
  EXPECT_FALSE(outcomes[0].ok);
  ExpectTrains(daemons);
}

INSTANTIATE_TEST_SUITE_P(Placements, FaultJoinTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}),
                         [](const auto& info) {
                           return info.param.size() == 1 ? "OneDaemon" : "TwoDaemons";
                         });

TEST(FaultFrozenDaemonTest, TheOtherNodesWorkersHearOfItAndTheNodesJoinAgain) {
  Daemons daemons({1, 1}, {"--late-deadline-ms", "1500", "--late-warning-ms", "300"});
  const Marks marks;
  std::vector<RankProcess> workers;
  workers.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back(daemons.OptionsOf(rank), [&](const SessionOptions& options) {
      FaultTrainer trainer(options);
      trainer.Train();
      marks.Set(Concat("trains", options.rank));
      for (;;) trainer.Train();
      return std::vector<double>{};
    });
  }
  for (int rank = 0; rank < 2; ++rank) marks.Await(Concat("trains", rank));
  daemons.process(1).Signal(SIGSTOP);
  const auto began = std::chrono::steady_clock::now();
  const RankOutcome outcome = workers[0].Wait(kTimeout);
  const auto waited = std::chrono::steady_clock::now() - began;
  EXPECT_FALSE(outcome.ok);
  // Late, or lost when the nodes' keepalive runs out, whichever it is found out by.
  EXPECT_THAT(outcome.error, AnyOf(HasSubstr("rank 1 didn't submit"), HasSubstr("node 1 is lost")));
  std::cout << "  ended after " << std::chrono::duration_cast<milliseconds>(waited).count()
            << " ms: " << outcome.error << "\n";
  daemons.process(1).Signal(SIGCONT);
  EXPECT_FALSE(workers[1].Wait(kTimeout).ok);
  for (int node = 0; node < 2; ++node) {
    ASSERT_TRUE(WaitUntil(kTimeout, [&] {
      return daemons.RunCtl(node, {"drop", "default"}).exit_code == 0;
    })) << daemons.log(node);
  }
  ExpectTrains(daemons);
}

}  // namespace
}  // namespace zerod
