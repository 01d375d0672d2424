// One node: what the engine refuses, and what it says.

#include <functional>
#include <limits>
#include <memory>

#include <gmock/gmock.h>

#include "server/engine/engine.h"
#include "tests/server/engine/attached_engine.h"
#include "tests/support/wait_until.h"

namespace zerod::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

EngineOptions OptionsFor(int ranks) {
  EngineOptions options;
  options.ranks = ranks;
  return options;
}

/// One attached rank with a sealed layer 'a' of 10 elements.
class OneRank {
 public:
  OneRank() : worker(engine, RequestOf(0, 1)) {
    EXPECT_TRUE(worker.AwaitWelcome());
    worker.Register(VectorLayer("a", 10));
    EXPECT_TRUE(worker.Await(Queue::kData, worker.Submit(OperationKind::kSeal)));
  }
  ~OneRank() { engine.Stop("the test is over"); }
  std::string FaultOf(Operation operation) {
    worker.Submit(std::move(operation));
    return worker.AwaitFault();
  }
  Engine engine{OptionsFor(1)};
  TestWorker worker;
};

struct Refusal {
  const char* name;
  OperationKind kind;
  int layer;
  std::function<void(Operation&)> change;
  const char* message;
};

std::vector<Refusal> Refusals() {
  using enum OperationKind;
  const auto as_is = [](Operation&) {};
  return {
      {"GatherOfNoLayer", kGather, 1, as_is, "no layer 1 among 1"},
      {"GatherOfANegativeLayer", kGather, -5, as_is, "no layer -5 among 1"},
      {"GatherOfALaterVersion", kGather, 0, [](Operation& o) { o.version = 9; }, "so far it is 0"},
      {"ReleaseWithoutALease", kRelease, 0, as_is, "isn't leased"},
      {"ReduceOfNoSlot", kReduce, 0, [](Operation& o) { o.slot = 2; }, "no gradient slot 2"},
      {"ReduceWithTooManyBits", kReduce, 0,
       [](Operation& o) {
         o.slot = 0;
         o.has_gradient = {true, true};
       },
       "2 gradient bits for 1 tensors"},
      {"StepByNaN", kStep, -1,
       [](Operation& o) { o.step.gradient_divisor = std::numeric_limits<double>::quiet_NaN(); },
       "gradient_divisor is nan"},
      {"StepWithTooManyValues", kStep, -1, [](Operation& o) { o.values.resize(17); }, "17 values"},
      {"WriteFromNoRank", kWrite, 0, [](Operation& o) { o.source_rank = 1; }, "no rank 1"},
      {"WriteWithoutAStage", kWrite, 0, as_is, "no staging buffer for layer 0"},
      {"ReadWithoutAStage", kRead, 0, [](Operation& o) { o.wants_data = true; },
       "no staging buffer"},
      {"SecondSeal", kSeal, -1, as_is, "sealed already"},
  };
}

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, EndsTheAttachAndSaysWhy) {
  OneRank rank;
  Operation operation;
  operation.kind = GetParam().kind;
  operation.layer = GetParam().layer;
  GetParam().change(operation);
  EXPECT_THAT(rank.FaultOf(operation), HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(Engine, RefusalTest, ::testing::ValuesIn(Refusals()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(EngineRefusalTest, ATicketOutOfOrderEndsTheAttach) {
  OneRank rank;
  Operation operation;
  operation.kind = OperationKind::kScalar;
  operation.ticket = 100;
  rank.engine.Submit(rank.worker.attach_id(), 1, {operation});
  EXPECT_THAT(rank.worker.AwaitFault(), HasSubstr("expected operation 3"));
}

TEST(EngineRefusalTest, ALayerLargerThanTheMachineIsRefused) {
  Engine engine(OptionsFor(1));
  TestWorker worker(engine, RequestOf(0, 1));
  ASSERT_TRUE(worker.AwaitWelcome());
  worker.Register(VectorLayer("huge", int64_t{1} << 39));
  EXPECT_THAT(worker.AwaitFault(), HasSubstr("more than the machine's"));
  EXPECT_EQ(worker.events().fault_code(), ErrorCode::kResourceExhausted);
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, AFloat16LayerIsRefused) {
  Engine engine(OptionsFor(1));
  TestWorker worker(engine, RequestOf(0, 1));
  ASSERT_TRUE(worker.AwaitWelcome());
  LayerSpec spec = VectorLayer("half", 10);
  spec.tensors[0].dtype = DType::kFloat16;
  worker.Register(spec);
  EXPECT_THAT(worker.AwaitFault(), HasSubstr("'half.weight' is float16"));
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, RanksThatDivergeAreNamedWithTheirOperations) {
  Engine engine(OptionsFor(2));
  TestWorker first(engine, RequestOf(0, 2));
  TestWorker second(engine, RequestOf(1, 2));
  ASSERT_TRUE(first.AwaitWelcome() && second.AwaitWelcome());
  first.Register(VectorLayer("a", 10));
  second.Submit(OperationKind::kSeal);
  EXPECT_THAT(second.AwaitFault(), HasSubstr("the ranks diverge at operation 1: rank 0 submitted "
                                             "register, rank 1 submitted seal"));
  EXPECT_EQ(first.AwaitFault(), second.AwaitFault());
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, ALateRankIsReportedThenEndsTheEpoch) {
  EngineOptions options = OptionsFor(2);
  options.late_warning = milliseconds(100);
  options.late_deadline = milliseconds(600);
  Engine engine(options);
  TestWorker first(engine, RequestOf(0, 2));
  TestWorker second(engine, RequestOf(1, 2));
  ASSERT_TRUE(first.AwaitWelcome() && second.AwaitWelcome());
  first.Register(VectorLayer("a", 10));
  EXPECT_THAT(first.AwaitFault(), HasSubstr("rank 1 didn't submit register (operation 1) within"));
  EXPECT_EQ(first.events().fault_code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(second.events().warning(), HasSubstr("rank 1 is late: rank 0 submitted register"));
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, AttachesThatDontFitAreRefused) {
  Engine engine(OptionsFor(2));
  TestWorker first(engine, RequestOf(0, 2));
  auto refusal = [&](AttachRequest request) -> std::string {
    try {
      engine.Attach(request, std::make_shared<RecordedEvents>());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(RequestOf(1, 3)), HasSubstr("WORLD_SIZE is 3, but the daemons have 2"));
  EXPECT_THAT(refusal(RequestOf(0, 2, 1)), HasSubstr("RANK is 0, but LOCAL_RANK 1"));
  EXPECT_THAT(refusal(RequestOf(1, 5000)), HasSubstr("WORLD_SIZE is 5000, at most 4096"));
  AttachRequest other = RequestOf(1, 2);
  other.gradient_slots = 3;
  EXPECT_THAT(refusal(other), HasSubstr("gradient_slots is 2 on rank 0 and 3 on rank 1"));
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, ATakenRankIsRefusedNamingItsHolder) {
  Engine engine(OptionsFor(2));
  TestWorker holder(engine, RequestOf(0, 2));
  TestWorker second(engine, RequestOf(0, 2));
  EXPECT_THAT(second.AwaitFault(), HasSubstr("rank 0 is taken by pid 1000 (test, job 'job')"));
  EXPECT_EQ(second.events().fault_code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(holder.events().fault(), "");
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, AnAttachBesideADyingHolderTakesItsPlace) {
  Engine engine(OptionsFor(1));
  auto holder = std::make_unique<TestWorker>(engine, RequestOf(0, 1));
  ASSERT_TRUE(holder->AwaitWelcome());
  TestWorker next(engine, RequestOf(0, 1));
  TestWorker given_up(engine, RequestOf(0, 1));
  engine.Disconnect(given_up.attach_id(), "it was killed, too");
  EXPECT_FALSE(next.events().welcome());
  engine.Disconnect(holder->attach_id(), "its connection broke");
  EXPECT_TRUE(next.AwaitWelcome()) << next.events().fault();
  EXPECT_FALSE(given_up.events().welcome());
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, AnAttachThatStaysAloneEndsAtTheDeadline) {
  EngineOptions options = OptionsFor(2);
  options.join_deadline = milliseconds(200);
  Engine engine(options);
  TestWorker first(engine, RequestOf(0, 2));
  EXPECT_THAT(first.AwaitFault(), HasSubstr("within 0.2 s: waiting for rank 1"));
  engine.Stop("the test is over");
}

TEST(EngineRefusalTest, AnAttachedJobCantBeDropped) {
  OneRank rank;
  EXPECT_THROW(rank.engine.DropJob("job"), Error);
  EXPECT_THROW(rank.engine.DropJob("other"), Error);
}

TEST(EngineRefusalTest, MemoryIsGivenForATokenAndKnownIndexesOnly) {
  OneRank rank;
  int64_t size_bytes = 0;
  const uint64_t token = rank.worker.events().welcome()->token;
  auto open = [&](DescriptorRequest request) { rank.engine.OpenMemory(request, size_bytes); };
  EXPECT_THROW(open({.token = token + 1}), Error);
  EXPECT_THROW(open({.token = token, .kind = MemoryKind::kRegion, .index = 1}), Error);
  EXPECT_THROW(open({.token = token, .kind = MemoryKind::kRegion, .chunk = -1}), Error);
  EXPECT_THROW(open({.token = token, .kind = MemoryKind::kSlot, .index = 2}), Error);
  EXPECT_THROW(open({.token = token, .kind = MemoryKind::kStage, .index = 7}), Error);
  EXPECT_NO_THROW(open({.token = token, .kind = MemoryKind::kSlot, .index = 1}));
}

}  // namespace
}  // namespace zerod::testing
