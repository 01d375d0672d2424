// Workers that die, freeze, leave early or attach as somebody they aren't.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/system/fault_trainer.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

constexpr seconds kTimeout{20};
constexpr milliseconds kSoon{1000};

int Code(ErrorCode code) { return static_cast<int>(code); }

milliseconds Since(steady_clock::time_point began) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
}

/// Fresh workers attach to the job, find it at `step`, and go on for two steps.
void ExpectGoesOn(const Daemons& daemons, int step) {
  const auto values = RunRanksOrThrow(daemons, [](SessionOptions options) {
    options.mode = AttachMode::kAttach;
    FaultTrainer trainer(options);
    std::vector<double> result = {static_cast<double>(trainer.session().info().step)};
    const auto append = [&] {
      for (double weight : trainer.Weights()) result.push_back(weight);
    };
    append();
    for (int i = 0; i < 2; ++i) trainer.Train();
    append();
    trainer.session().Detach(true);
    return result;
  });
  const double before = -step;
  for (const auto& rank : values) {
    EXPECT_EQ(rank, (std::vector<double>{-before, before, before, before - 2, before - 2}));
  }
}

bool HasLeases(const Daemons& daemons, int node) {
  const ChildResult layers = daemons.RunCtl(node, {"layers", "default"});
  if (layers.exit_code != 0) throw std::runtime_error(layers.error);
  for (size_t at = 0; (at = layers.output.find("\"leases\": ", at)) != std::string::npos; ++at) {
    if (layers.output[at + 10] != '0') return true;
  }
  return false;
}

class FaultWorkerTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  /// The last rank runs `last` until it is killed, the others run `rest`; returns what those say.
  std::vector<RankOutcome> KillLast(const Daemons& daemons, const RankBody& rest,
                                    const RankBody& last) {
    const int world = daemons.World();
    std::vector<RankProcess> others;
    for (int rank = 0; rank + 1 < world; ++rank) others.emplace_back(daemons.OptionsOf(rank), rest);
    RankProcess victim(daemons.OptionsOf(world - 1), last);
    marks_.Await("now");
    for (int rank = 0; rank + 1 < world; ++rank) marks_.Await(Concat("ready", rank));
    const auto killed = steady_clock::now();
    victim.Signal(SIGKILL);
    EXPECT_EQ(victim.Wait(kTimeout).exit_code, 128 + SIGKILL);
    std::vector<RankOutcome> outcomes;
    outcomes.reserve(others.size());
    for (RankProcess& process : others) outcomes.push_back(process.Wait(kTimeout));
    RecordProperty("ms_until_all_others_failed", static_cast<int>(Since(killed).count()));
    std::cout << "  the others ended " << Since(killed).count() << " ms after the kill\n";
    const bool freed = WaitUntil(kSoon, [&] { return !HasLeases(daemons, 0); });
    EXPECT_TRUE(freed) << daemons.Ctl(0, {"layers"});
    return outcomes;
  }

  static void ExpectLost(const std::vector<RankOutcome>& outcomes, int rank, int step) {
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error_code, Code(ErrorCode::kAborted)) << outcome.error;
      EXPECT_THAT(outcome.error,
                  AllOf(HasSubstr(Concat("rank ", rank, " (test, pid ")), HasSubstr("is gone"),
                        HasSubstr(Concat("stands at step ", step))));
    }
  }

  void Ready(const SessionOptions& options) { marks_.Set(Concat("ready", options.rank)); }

  Marks marks_;
};

TEST_P(FaultWorkerTest, AWorkerKilledInItsForwardGivesItsLeasesBackAndTheJobGoesOn) {
  const Daemons daemons(GetParam());
  const auto outcomes = KillLast(
      daemons,
      [&](const SessionOptions& options) {
        FaultTrainer trainer(options);
        trainer.Train();
        trainer.Gather();
        Ready(options);
        trainer.Train();
        return std::vector<double>{};
      },
      [&](const SessionOptions& options) -> std::vector<double> {
        FaultTrainer trainer(options);
        trainer.Train();
        trainer.Gather();
        marks_.SetAndSleep("now");
      });
  ExpectLost(outcomes, daemons.World() - 1, 1);
  ExpectGoesOn(daemons, 1);
}

TEST_P(FaultWorkerTest, AStepThatNotAllRanksSubmittedIsDroppedWithItsGradients) {
  const Daemons daemons(GetParam());
  const auto begin = [](FaultTrainer& trainer) {
    for (int i = 0; i < 2; ++i) trainer.Train();
    trainer.Gather();
    trainer.Reduce();
  };
  const auto outcomes = KillLast(
      daemons,
      [&](const SessionOptions& options) {
        FaultTrainer trainer(options);
        begin(trainer);
        trainer.SubmitStep();
        Ready(options);
        trainer.AwaitStep();
        return std::vector<double>{};
      },
      [&](const SessionOptions& options) -> std::vector<double> {
        FaultTrainer trainer(options);
        begin(trainer);
        marks_.SetAndSleep("now");
      });
  ExpectLost(outcomes, daemons.World() - 1, 2);
  for (const RankOutcome& outcome : outcomes) EXPECT_THAT(outcome.error, HasSubstr("dropped"));
  ExpectGoesOn(daemons, 2);
}

TEST_P(FaultWorkerTest, AStepThatIsDecidedIsFinishedThoughAWorkerDies) {
  const Daemons daemons(GetParam(), {"--failpoints", "update_delay_ms=300,update_delay_layer=1"});
  const auto outcomes = KillLast(
      daemons,
      [&](const SessionOptions& options) {
        FaultTrainer trainer(options);
        for (int i = 0; i < 3; ++i) trainer.Train();
        Ready(options);
        for (;;) trainer.Train();
        return std::vector<double>{};
      },
      [&](const SessionOptions& options) -> std::vector<double> {
        FaultTrainer trainer(options);
        for (int i = 0; i < 3; ++i) trainer.Train();
        marks_.SetAndSleep("now");
      });
  ExpectLost(outcomes, daemons.World() - 1, 3);
  ExpectGoesOn(daemons, 3);
}

TEST_P(FaultWorkerTest, AFrozenWorkerIsWarnedOfThenEndsTheAttachNamingIt) {
  const Daemons daemons(GetParam(), {"--late-warning-ms", "300", "--late-deadline-ms", "1500"});
  const int last = daemons.World() - 1;
  std::vector<RankProcess> others;
  others.reserve(last);
  for (int rank = 0; rank < last; ++rank) {
    others.emplace_back(daemons.OptionsOf(rank), [&](SessionOptions options) {
      options.on_warning = [this](const std::string& text) {
        if (text.find("late") != std::string::npos) marks_.Set("warned");
      };
      FaultTrainer trainer(options);
      for (;;) trainer.Train();
      return std::vector<double>{};
    });
  }
  RankProcess frozen(daemons.OptionsOf(last), [&](const SessionOptions& options) {
    FaultTrainer trainer(options);
    trainer.Train();
    marks_.Set("now");
    raise(SIGSTOP);
    for (;;) trainer.Train();
    return std::vector<double>{};
  });
  marks_.Await("now");
  const auto began = steady_clock::now();
  for (RankProcess& process : others) {
    const RankOutcome outcome = process.Wait(kTimeout);
    EXPECT_EQ(outcome.error_code, Code(ErrorCode::kDeadlineExceeded)) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr(Concat("rank ", last, " didn't submit ")),
                                     HasSubstr("stands at step 1")));
  }
  EXPECT_GE(Since(began), milliseconds(1000));
  EXPECT_LT(Since(began), milliseconds(6000));
  EXPECT_TRUE(marks_.IsSet("warned"));
  frozen.Signal(SIGCONT);
  EXPECT_THAT(frozen.Wait(kTimeout).error, HasSubstr("didn't submit"));
  ExpectGoesOn(daemons, 1);
}

TEST_P(FaultWorkerTest, ARankThatDetachesEarlyIsNamedToThoseThatGoOn) {
  const Daemons daemons(GetParam());
  const int last = daemons.World() - 1;
  const auto outcomes = RunRanks(daemons, [last](const SessionOptions& options) {
    FaultTrainer trainer(options);
    trainer.Train();
    if (options.rank == last) {
      trainer.session().Detach(false);
    } else {
      trainer.Train();
    }
    return std::vector<double>{};
  });
  EXPECT_TRUE(outcomes[last].ok) << outcomes[last].error;
  for (int rank = 0; rank < last; ++rank) {
    EXPECT_EQ(outcomes[rank].error_code, Code(ErrorCode::kAborted));
    EXPECT_THAT(outcomes[rank].error, HasSubstr(Concat("rank ", last, " has detached")));
    EXPECT_LT(outcomes[rank].took, milliseconds(8000));
  }
  ExpectGoesOn(daemons, 1);
}

INSTANTIATE_TEST_SUITE_P(Placements, FaultWorkerTest,
                         testing::Values(std::vector<int>{2}, std::vector<int>{1, 1},
                                         std::vector<int>{2, 1}),
                         [](const auto& info) {
                           return Concat(info.param.size() == 1 ? "OneDaemonOf" : "TwoDaemonsFrom",
                                         info.param[0]);
                         });

class FaultAttachTest : public testing::Test {
 protected:
  RankOutcome Attach(const SessionOptions& options) {
    RankProcess process(options, [](const SessionOptions& own) {
      FaultTrainer trainer(own);
      const SessionInfo& info = trainer.session().info();
      const std::vector<double> found = {static_cast<double>(info.step), info.created ? 1.0 : 0.0};
      trainer.session().Detach(false);
      return found;
    });
    return process.Wait(kTimeout);
  }
  Marks marks_;
};

TEST_F(FaultAttachTest, WhoIsAttachedKeepsItsRankAndItsJob) {
  const Daemons daemons({1});
  RankProcess owner(daemons.OptionsOf(0), [&](const SessionOptions& options) {
    FaultTrainer trainer(options);
    marks_.Set("attached");
    marks_.Await("others_were_refused");
    trainer.Train();
    trainer.session().Detach(false);
    return std::vector<double>{};
  });
  marks_.Await("attached");

  SessionOptions options = daemons.OptionsOf(0);
  const RankOutcome twice = Attach(options);
  EXPECT_EQ(twice.error_code, Code(ErrorCode::kAlreadyExists)) << twice.error;
  EXPECT_THAT(twice.error, HasSubstr(Concat("rank 0 is taken by pid ", owner.pid())));

  options.job_id = "other";
  const RankOutcome other = Attach(options);
  EXPECT_EQ(other.error_code, Code(ErrorCode::kAlreadyExists)) << other.error;
  EXPECT_THAT(other.error, HasSubstr("job 'default'"));

  const ChildResult drop = daemons.RunCtl(0, {"drop", "default"});
  EXPECT_EQ(drop.exit_code, 1);
  EXPECT_THAT(drop.error, AllOf(HasSubstr("default"), HasSubstr("attached")));

  marks_.Set("others_were_refused");
  const RankOutcome owned = owner.Wait(kTimeout);
  EXPECT_TRUE(owned.ok) << owned.error;
  EXPECT_EQ(daemons.RunCtl(0, {"drop", "default"}).exit_code, 0);
}

TEST_F(FaultAttachTest, AWorldOfAnotherSizeIsRefusedNamingBothSizes) {
  for (const std::vector<int>& placement : {std::vector<int>{2}, {1, 1}}) {
    const Daemons daemons(placement);
    for (const int world : {1, 3}) {
      SessionOptions options = daemons.OptionsOf(0);
      options.world_size = world;
      const RankOutcome outcome = Attach(options);
      EXPECT_EQ(outcome.error_code, Code(ErrorCode::kInvalidArgument)) << outcome.error;
      EXPECT_THAT(outcome.error,
                  AllOf(HasSubstr(Concat("WORLD_SIZE is ", world)), HasSubstr("have 2 ranks")));
    }
  }
}

TEST_F(FaultAttachTest, CreateAndAttachDoWhatTheySay) {
  const Daemons daemons({1});
  SessionOptions options = daemons.OptionsOf(0);
  options.mode = AttachMode::kAttach;
  const RankOutcome missing = Attach(options);
  EXPECT_EQ(missing.error_code, Code(ErrorCode::kInvalidArgument)) << missing.error;
  EXPECT_THAT(missing.error, HasSubstr("no job 'default'"));

  options.mode = AttachMode::kCreate;
  EXPECT_EQ(Attach(options).values, (std::vector<double>{0, 1}));
  const RankOutcome again = Attach(options);
  EXPECT_EQ(again.error_code, Code(ErrorCode::kAlreadyExists)) << again.error;
  EXPECT_THAT(again.error, HasSubstr("zeroctl drop default"));

  options.mode = AttachMode::kAttachOrCreate;
  EXPECT_EQ(Attach(options).values, (std::vector<double>{0, 0}));
  options.mode = AttachMode::kAttach;
  EXPECT_EQ(Attach(options).values, (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace zerod
