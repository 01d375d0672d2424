#include "server/engine/formation.h"

#include <functional>

#include <gmock/gmock.h>

namespace zerod {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Proposal Basic() {
  Proposal proposal;
  proposal.job_id = "job";
  return proposal;
}

Proposal Existing(uint64_t step) {
  Proposal proposal = Basic();
  proposal.exists = true;
  proposal.plan_hash = 11;
  proposal.step = step;
  return proposal;
}

TEST(FormationTest, ANewJobIsCreatedOneEpochAboveAllThatAnyNodeHasSeen) {
  Proposal other = Basic();
  other.epoch_seen = 7;
  const Decision decision = DecideFormation({{0, Basic()}, {1, other}});
  EXPECT_TRUE(decision.accepted);
  EXPECT_TRUE(decision.created);
  EXPECT_EQ(decision.new_epoch, 8u);
  EXPECT_EQ(decision.job_id, "job");
}

TEST(FormationTest, ADecisionSaysWhichProposalsItAnswers) {
  Proposal first = Basic();
  first.number = 3;
  Proposal second = Basic();
  second.number = 8;
  EXPECT_THAT(DecideFormation({{0, first}, {1, second}}).numbers, ElementsAre(3, 8));
  second.mode = 2;
  const Decision refused = DecideFormation({{0, first}, {1, second}});
  EXPECT_FALSE(refused.accepted);
  EXPECT_THAT(refused.numbers, ElementsAre(3, 8));
}

TEST(FormationTest, AnExistingJobIsAttached) {
  const Decision decision = DecideFormation({{0, Existing(5)}, {1, Existing(5)}});
  EXPECT_TRUE(decision.accepted);
  EXPECT_FALSE(decision.created);
}

struct Difference {
  const char* name;
  std::function<void(Proposal&)> change;  // of node 1
  const char* message;
};

class DifferenceTest : public ::testing::TestWithParam<Difference> {};

TEST_P(DifferenceTest, IsRefusedWithBothValues) {
  Proposal other = Existing(5);
  GetParam().change(other);
  const Decision decision = DecideFormation({{0, Existing(5)}, {1, other}});
  EXPECT_FALSE(decision.accepted);
  EXPECT_THAT(decision.message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Formation, DifferenceTest,
    ::testing::Values(Difference{"Job", [](Proposal& p) { p.job_id = "x"; },
                                 "the job is job on node 0 and x on node 1"},
                      Difference{"Mode", [](Proposal& p) { p.mode = 1; },
                                 "mode is 3 on node 0 and 1 on node 1"},
                      Difference{"Tp", [](Proposal& p) { p.tensor_parallel = 2; },
                                 "tensor_parallel is 1 on node 0 and 2 on node 1"},
                      Difference{"Window", [](Proposal& p) { p.window_bytes = 9; },
                                 "window_bytes is 0 on node 0 and 9 on node 1"},
                      Difference{"Cache", [](Proposal& p) { p.cache_bytes = 9; },
                                 "cache_bytes is 0 on node 0 and 9 on node 1"},
                      Difference{"Slots", [](Proposal& p) { p.gradient_slots = 3; },
                                 "gradient_slots is 2 on node 0 and 3 on node 1"},
                      Difference{"Exists", [](Proposal& p) { p.exists = false; },
                                 "exists on node 0 but not on node 1"},
                      Difference{"Plan", [](Proposal& p) { p.plan_hash = 12; },
                                 "different layers on nodes 0 and 1"},
                      Difference{"Step", [](Proposal& p) { p.step = 6; },
                                 "is at step 5 on node 0 and 6 on node 1"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(FormationTest, CreatingWhatExistsAndAttachingToWhatDoesntAreRefused) {
  Proposal create = Existing(5);
  create.mode = 1;
  EXPECT_EQ(DecideFormation({{0, create}}).code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(DecideFormation({{0, create}}).message, HasSubstr("exists already, at step 5"));
  Proposal attach = Basic();
  attach.mode = 2;
  EXPECT_EQ(DecideFormation({{0, attach}}).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace zerod
