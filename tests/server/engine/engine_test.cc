// One node, through the engine's public interface: what workers see of a training.

#include "server/engine/engine.h"

#include <gmock/gmock.h>

#include "tests/server/engine/attached_engine.h"
#include "tests/support/wait_until.h"

namespace zerod::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class EngineTest : public ::testing::Test {
 protected:
  static constexpr int64_t kNumel = 3000;  // padded, and cut between the ranks

  explicit EngineTest(int ranks = 2) {
    EngineOptions options;
    options.ranks = ranks;
    engine_ = std::make_unique<Engine>(options);
  }
  ~EngineTest() override { engine_->Stop("the test is over"); }

  void Attach(const std::string& job = "job") {
    workers_.clear();
    for (int rank = 0; rank < 2; ++rank) {
      AttachRequest request = RequestOf(rank, 2);
      request.job_id = job;
      workers_.push_back(std::make_unique<TestWorker>(*engine_, request));
    }
    for (auto& worker : workers_) ASSERT_TRUE(worker->AwaitWelcome());
  }

  /// Two layers, of which the second gets no gradient; values 1 and 2.
  void Train() {
    for (const char* name : {"a", "b"})
      Both([&](auto& w) { w.Register(VectorLayer(name, kNumel)); });
    Both([](auto& worker) { worker.Write(0, 0, 1.0f); });
    Both([](auto& worker) { worker.Write(1, 1, 2.0f); });
    Both([](auto& worker) { worker.Submit(OperationKind::kSeal); });
    AwaitBoth(Queue::kData);
  }

  template <typename Action>
  void Both(Action action) {
    for (auto& worker : workers_) action(*worker);
  }
  void AwaitBoth(Queue queue) {
    for (auto& worker : workers_) ASSERT_TRUE(worker->Await(queue, worker->last_ticket()));
  }
  bool AwaitIdle() {
    return WaitUntil(std::chrono::seconds(10), [&] { return engine_->Status().state == "idle"; });
  }
  void StepOnce() {
    Both([](auto& worker) { worker.Reduce(0, 1.0f + worker.request().rank); });
    Both([](auto& worker) { worker.Step(Sgd(0.5), {10.0 + worker.request().rank}); });
    AwaitBoth(Queue::kStep);
  }
  TestWorker& worker(int rank) { return *workers_[rank]; }

  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
};

TEST_F(EngineTest, AStepAppliesTheSumOfTheGradientsOfAllRanks) {
  Attach();
  Train();
  StepOnce();
  EXPECT_EQ(worker(1).page().step.step, 1u);
  EXPECT_DOUBLE_EQ(worker(0).page().step.values[0], 21.0);
  EXPECT_NEAR(worker(0).page().step.grad_norm, 3.0 * std::sqrt(kNumel), 1e-9);
  Both([](auto& worker) { worker.Gather(0, 1); });
  AwaitBoth(Queue::kGather);
  EXPECT_THAT(worker(0).Parameters(0).first(kNumel), Each(1.0f - 0.5f * 3.0f));
  EXPECT_THAT(worker(1).Parameters(0).subspan(kNumel), Each(0.0f));
  EXPECT_THAT(worker(1).Parameters(1).first(kNumel), Each(2.0f));
}

TEST_F(EngineTest, AGatherIsPublishedAfterTheWriteItFollows) {
  Attach();
  Train();
  // Rank 1 runs ahead: it must not see layer 0 before rank 0 has written it.
  worker(1).Write(0, 0, 0);
  const uint64_t gather = worker(1).Gather(0, 0);
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  EXPECT_EQ(WaitFor(worker(1).page(), Queue::kGather, gather, soon), WaitResult::kTimedOut);
  worker(0).Write(0, 0, 7.0f);
  ASSERT_TRUE(worker(1).Await(Queue::kGather, gather));
  EXPECT_THAT(worker(1).Parameters(0).first(kNumel), Each(7.0f));
}

TEST_F(EngineTest, AStepEndsLeasesAndGathersThatWereSubmittedBeforeIt) {
  Attach();
  Train();
  Both([](auto& worker) { worker.Gather(0, 0); });
  StepOnce();
  EXPECT_EQ(engine_->Sessions()[0].leases, 0);
  worker(0).Submit(OperationKind::kRelease, 0);
  EXPECT_THAT(worker(0).AwaitFault(), HasSubstr("layer 'a' isn't leased"));
}

TEST_F(EngineTest, ManyScalarsInOneMessageAreSummedInOrder) {
  Attach();
  Train();
  Operation scalar;
  scalar.kind = OperationKind::kScalar;
  scalar.values = {1.5, -2.0};
  Both([&](auto& worker) { worker.SubmitTogether(std::vector<Operation>(20'000, scalar)); });
  AwaitBoth(Queue::kScalar);
  EXPECT_DOUBLE_EQ(worker(0).page().scalar_values[0], 3.0);
  EXPECT_DOUBLE_EQ(worker(0).page().scalar_values[1], -4.0);
}

TEST_F(EngineTest, AGradientThatIsNotFiniteSkipsTheStepOnAllRanks) {
  Attach();
  Train();
  worker(0).Reduce(0, 1.0f);
  worker(1).Reduce(0, std::numeric_limits<float>::quiet_NaN());
  Both([](auto& worker) { worker.Step(Sgd(0.5)); });
  AwaitBoth(Queue::kStep);
  EXPECT_EQ(worker(0).page().step.skipped, 1u);
  Both([](auto& worker) { worker.Gather(0, 1); });
  AwaitBoth(Queue::kGather);
  EXPECT_THAT(worker(1).Parameters(0).first(kNumel), Each(1.0f));
}

TEST_F(EngineTest, AKeptJobComesBackWithItsStepAndPrivateState) {
  Attach();
  Train();
  StepOnce();
  Both([&](auto& worker) { engine_->Detach(worker.attach_id(), false); });
  ASSERT_TRUE(AwaitIdle());
  ASSERT_EQ(engine_->Jobs().size(), 1u);
  EXPECT_EQ(engine_->Jobs()[0].step, 1u);
  Attach();
  EXPECT_FALSE(worker(1).events().welcome()->created);
  EXPECT_EQ(worker(1).events().welcome()->step, 1u);
  EXPECT_EQ(worker(1).events().welcome()->private_state, "state of rank 1");
}

TEST_F(EngineTest, ADroppedJobIsGone) {
  Attach();
  Train();
  engine_->Detach(worker(0).attach_id(), false);
  engine_->Detach(worker(1).attach_id(), true);
  ASSERT_TRUE(AwaitIdle());
  EXPECT_TRUE(worker(0).events().detached());
  EXPECT_TRUE(engine_->Jobs().empty());
}

TEST_F(EngineTest, AnUnfinishedStepIsDroppedWhenARankDies) {
  Attach();
  Train();
  StepOnce();
  Both([](auto& worker) { worker.Reduce(0, 5.0f); });
  worker(0).Step(Sgd(0.5));
  engine_->Disconnect(worker(1).attach_id(), "killed");
  EXPECT_THAT(worker(0).AwaitFault(), HasSubstr("rank 1 (test, pid 1001) is gone: killed"));
  EXPECT_THAT(worker(0).AwaitFault(), HasSubstr("stands at step 1"));
  ASSERT_TRUE(AwaitIdle());
  EXPECT_EQ(engine_->Jobs()[0].step, 1u);
  EXPECT_EQ(engine_->Layers("job")[0].version, 1u);
}

TEST_F(EngineTest, AStepThatAllRanksSubmittedIsFinishedThoughOneDies) {
  Attach();
  Train();
  Both([](auto& worker) { worker.Reduce(0, 1.0f); });
  Both([](auto& worker) { worker.Step(Sgd(0.5)); });
  engine_->Disconnect(worker(1).attach_id(), "killed");
  worker(0).AwaitFault();
  ASSERT_TRUE(AwaitIdle());
  ASSERT_EQ(engine_->Jobs().size(), 1u);
  EXPECT_EQ(engine_->Jobs()[0].step, 1u);
}

TEST_F(EngineTest, AJobCutOffBeforeItsFirstStepIsDroppedALaterOneIsNot) {
  Attach();
  Train();
  engine_->Disconnect(worker(1).attach_id(), "killed");
  EXPECT_THAT(worker(0).AwaitFault(), HasSubstr("had taken no step and is dropped"));
  ASSERT_TRUE(AwaitIdle());
  EXPECT_TRUE(engine_->Jobs().empty());
  Attach();
  Train();
  StepOnce();
  Both([&](auto& worker) { engine_->Detach(worker.attach_id(), false); });
  ASSERT_TRUE(AwaitIdle());
  Attach();
  engine_->Disconnect(worker(1).attach_id(), "killed before its seal");
  worker(0).AwaitFault();
  ASSERT_TRUE(AwaitIdle());
  EXPECT_EQ(engine_->Jobs().size(), 1u);
}

TEST_F(EngineTest, MemoryIsAsPredictedOnceItIsWritten) {
  Attach();
  Train();
  StepOnce();
  const int64_t padded_bytes = worker(0).events().plans()[0].gathered_bytes;
  for (const MemoryReport& report : engine_->Memory("job")) {
    if (report.name == "parameters") {
      EXPECT_EQ(report.predicted_bytes, 2 * padded_bytes);
      EXPECT_EQ(report.actual_bytes, report.predicted_bytes);
    } else if (report.name == "slots") {
      EXPECT_EQ(report.predicted_bytes, 2 * 2 * padded_bytes);
    } else if (report.name == "optimizer") {
      EXPECT_EQ(report.predicted_bytes, 2 * 2 * padded_bytes);
    }
  }
}

TEST_F(EngineTest, ShardsHaveTheSameChecksumForTheSameValues) {
  Attach();
  Train();
  const std::vector<ShardReport> before = engine_->Shards("job", true);
  ASSERT_EQ(before.size(), 4u);
  StepOnce();
  Both([](auto& worker) { worker.Gather(0, 1); });
  AwaitBoth(Queue::kGather);
  const std::vector<ShardReport> after = engine_->Shards("job", true);
  EXPECT_NE(after[0].checksum, before[0].checksum);
  EXPECT_EQ(after[2].checksum, before[2].checksum);
}

}  // namespace
}  // namespace zerod::testing
