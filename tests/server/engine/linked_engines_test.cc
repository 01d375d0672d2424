// Two and three nodes in one process: what is decided on one is decided on all.

#include "tests/server/engine/linked_engines.h"

#include <future>

#include <gmock/gmock.h>

#include "tests/server/engine/attached_engine.h"
#include "tests/support/wait_until.h"

namespace zerod::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class LinkedEnginesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kNumel = 5000;

  void Start(const std::vector<int>& ranks_per_node) {
    nodes_ = ranks_per_node;
    engines_ = std::make_unique<LinkedEngines>(ranks_per_node);
  }

  void Attach() {
    workers_.clear();
    int world = 0;
    for (int ranks : nodes_) world += ranks;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      for (int local = 0; local < nodes_[node]; ++local) {
        const int rank = static_cast<int>(workers_.size());
        // An engine may not have heard of all nodes yet: then it checks the request later.
        workers_.push_back(std::make_unique<TestWorker>(engines_->engine(static_cast<int>(node)),
                                                        RequestOf(rank, world, local)));
      }
    }
    for (auto& worker : workers_) ASSERT_TRUE(worker->AwaitWelcome()) << worker->events().fault();
  }

  void Prepare() {
    All([](auto& worker) { worker.Register(VectorLayer("a", kNumel)); });
    for (auto& worker : workers_) {
      ASSERT_TRUE(
          WaitUntil(std::chrono::seconds(5), [&] { return worker->events().plans().size() == 1; }));
    }
    All([](auto& worker) { worker.Write(0, 0, 1.0f); });
    All([](auto& worker) { worker.Submit(OperationKind::kSeal); });
    AwaitAll(Queue::kData);
  }

  template <typename Action>
  void All(Action action) {
    for (auto& worker : workers_) action(*worker);
  }
  void AwaitAll(Queue queue) {
    for (auto& worker : workers_) {
      ASSERT_TRUE(worker->Await(queue, worker->last_ticket())) << worker->events().fault();
    }
  }
  void StepOnce() {
    All([](auto& worker) { worker.Reduce(0, 1.0f + worker.request().rank); });
    All([](auto& worker) { worker.Step(Sgd(0.25)); });
    AwaitAll(Queue::kStep);
  }
  bool AwaitIdle() {
    return WaitUntil(std::chrono::seconds(15), [&] {
      for (size_t node = 0; node < nodes_.size(); ++node) {
        const std::string state = engines_->engine(static_cast<int>(node)).Status().state;
        if (state != "idle" && state != "joining") return false;
      }
      return true;
    });
  }
  uint64_t StepOn(int node) { return engines_->engine(node).Jobs().at(0).step; }
  TestWorker& worker(int rank) { return *workers_[rank]; }

  std::vector<int> nodes_;
  std::unique_ptr<LinkedEngines> engines_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
};

TEST_F(LinkedEnginesTest, UnevenNodesSumAllGradientsAndGatherTheSameValues) {
  Start({2, 1});
  Attach();
  Prepare();
  StepOnce();
  All([](auto& worker) { worker.Gather(0, 1); });
  AwaitAll(Queue::kGather);
  for (auto& worker : workers_) {
    EXPECT_THAT(worker->Parameters(0).first(kNumel), Each(1.0f - 0.25f * (1 + 2 + 3)));
  }
}

TEST_F(LinkedEnginesTest, NodesWhoseRanksMakeOtherModelsHearTheFirstDifference) {
  Start({1, 1});
  Attach();
  worker(0).Register(VectorLayer("a", kNumel));
  worker(1).Register(VectorLayer("a", kNumel + 1));
  for (auto& worker : workers_) {
    EXPECT_THAT(worker->AwaitFault(), ::testing::AnyOf(HasSubstr("shape [5000] and [5001])"),
                                                       HasSubstr("shape [5001] and [5000])")));
    EXPECT_THAT(worker->events().fault(), HasSubstr("(layer 'a' tensor 'a.weight': shape"));
  }
}

TEST_F(LinkedEnginesTest, NodesWhoseRanksStepOtherwiseHearTheFirstDifference) {
  Start({1, 1});
  Attach();
  Prepare();
  All([](auto& worker) { worker.Reduce(0, 1.0f); });
  worker(0).Step(Sgd(0.25));
  worker(1).Step(Sgd(0.1));
  for (auto& worker : workers_) {
    EXPECT_THAT(worker->AwaitFault(), ::testing::AnyOf(HasSubstr("(learning rate 0.25 and 0.1)"),
                                                       HasSubstr("(learning rate 0.1 and 0.25)")));
  }
}

TEST_F(LinkedEnginesTest, GathersAfterAReadKeepTheirOrder) {
  Start({1, 1});
  Attach();
  Prepare();
  Operation read;
  read.kind = OperationKind::kRead;
  read.layer = 0;
  // Node 0 runs ahead with all of it while its read waits for node 1.
  auto program = [&](TestWorker& worker) {
    worker.Reduce(0, 1.0f);
    worker.Submit(read);
    worker.Step(Sgd(0.25));
    for (int i = 0; i < 3; ++i) {
      worker.Gather(0, 1);
      worker.Submit(OperationKind::kRelease, 0);
    }
    return worker.Gather(0, 1);
  };
  const uint64_t last = program(worker(0));
  program(worker(1));
  ASSERT_TRUE(worker(0).Await(Queue::kGather, last)) << worker(0).events().fault();
  EXPECT_THAT(worker(0).Parameters(0).first(kNumel), Each(1.0f - 0.25f * 2));
}

TEST_F(LinkedEnginesTest, AStepThatOneRankHasntSubmittedIsDroppedEverywhere) {
  Start({1, 1, 1});
  Attach();
  Prepare();
  StepOnce();
  All([](auto& worker) { worker.Reduce(0, 1.0f); });
  worker(0).Step(Sgd(0.25));
  worker(1).Step(Sgd(0.25));
  engines_->engine(2).Disconnect(worker(2).attach_id(), "killed");
  EXPECT_THAT(worker(0).AwaitFault(), HasSubstr("rank 2 (test, pid 1002) is gone: killed"));
  EXPECT_THAT(worker(1).AwaitFault(), HasSubstr("stands at step 1"));
  ASSERT_TRUE(AwaitIdle());
  for (int node = 0; node < 3; ++node) EXPECT_EQ(StepOn(node), 1u);
}

TEST_F(LinkedEnginesTest, AStepThatAllRanksSubmittedIsFinishedEverywhere) {
  Start({1, 1, 1});
  Attach();
  Prepare();
  All([](auto& worker) { worker.Reduce(0, 1.0f); });
  All([](auto& worker) { worker.Step(Sgd(0.25)); });
  engines_->engine(2).Disconnect(worker(2).attach_id(), "killed");
  worker(0).AwaitFault();
  ASSERT_TRUE(AwaitIdle());
  for (int node = 0; node < 3; ++node) EXPECT_EQ(StepOn(node), 1u);
  Attach();
  EXPECT_EQ(worker(0).events().welcome()->step, 1u);
}

TEST_F(LinkedEnginesTest, DivergenceBetweenNodesEndsAllWithinASecondAndAppliesNothing) {
  Start({1, 1});
  Attach();
  Prepare();
  StepOnce();
  const auto began = std::chrono::steady_clock::now();
  worker(0).Gather(0, 1);
  worker(1).Reduce(0, 1.0f);
  All([](auto& worker) { worker.Step(Sgd(0.25)); });
  EXPECT_THAT(worker(0).AwaitFault(), HasSubstr("the ranks diverge at operation"));
  EXPECT_THAT(worker(1).AwaitFault(), HasSubstr("the ranks diverge at operation"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  ASSERT_TRUE(AwaitIdle());
  EXPECT_EQ(StepOn(0), 1u);
  EXPECT_EQ(StepOn(1), 1u);
}

TEST_F(LinkedEnginesTest, ALostNodeDropsTheStepThatItDidNotContributeTo) {
  Start({1, 1, 1});
  Attach();
  Prepare();
  StepOnce();
  // Node 0 hears of node 2's contribution, node 1 doesn't; nobody can decide before the loss.
  engines_->DropIf([](int from, int to, const PeerMessage& message) {
    const bool step = std::holds_alternative<StepContribution>(message.body);
    return step && ((from == 2 && to == 1) || (from == 1 && to == 0));
  });
  All([](auto& worker) { worker.Reduce(0, 1.0f); });
  All([](auto& worker) { worker.Step(Sgd(0.25)); });
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->Await(Queue::kReduce, worker->last_ticket() - 1));
  }
  engines_->Cut(1, 2);
  engines_->Cut(0, 2);
  worker(0).AwaitFault();
  worker(1).AwaitFault();
  ASSERT_TRUE(AwaitIdle());
  EXPECT_EQ(StepOn(0), 1u);
  EXPECT_EQ(StepOn(1), 1u);
}

TEST_F(LinkedEnginesTest, MessagesThatMakeNoSenseEndTheEpochNotTheProcess) {
  const std::vector<std::pair<decltype(PeerMessage::body), const char*>> bodies = {
      {StepContribution{.ticket = 99, .sum_squares = {1, 2}, .values = {}, .active = {}},
       "2 sums of squares of 1 ranks"},
      {StepContribution{.ticket = 99, .sum_squares = {1}, .values = {}, .active = {{7, {true}}}},
       "layer 7"},
      {StepContribution{.ticket = 99, .sum_squares = {1}, .values = {}, .active = {{0, {}}}},
       "bits of 0 tensors"},
      {ScalarContribution{.ticket = 99, .values = std::vector<double>(17)}, "17 values"},
      {Progress{.fingerprints = {{.fingerprint = {.ticket = 1000}, .rank = 1}}, .last_tickets = {}},
       "operation 1000 follows"},
      {Progress{.fingerprints = {}, .last_tickets = {1, 2}}, "tickets of 2 ranks"},
      {Progress{.fingerprints = {}, .last_tickets = {1'000'000}}, "wasn't described"},
  };
  Start({1, 1});
  for (const auto& [body, message] : bodies) {
    Attach();
    Prepare();
    engines_->Inject(1, 0, {worker(0).events().welcome()->epoch, body});
    EXPECT_THAT(worker(0).AwaitFault(), HasSubstr(message));
    EXPECT_THAT(worker(1).AwaitFault(), HasSubstr(message));
    ASSERT_TRUE(AwaitIdle());
  }
}

TEST_F(LinkedEnginesTest, AWorkerThatGoesWhileTheGroupFormsEndsItOnAllNodes) {
  Start({1, 1});
  // Node 1 never hears where node 0 listens, so both stay in the forming.
  engines_->DropIf([](int, int, const PeerMessage& message) {
    return std::holds_alternative<StoreEntry>(message.body);
  });
  TestWorker first(engines_->engine(0), RequestOf(0, 2));
  TestWorker second(engines_->engine(1), RequestOf(1, 2, 0));
  ASSERT_TRUE(
      WaitUntil(std::chrono::seconds(5), [&] { return engines_->engine(1).Status().epoch == 1; }));
  engines_->engine(1).Disconnect(second.attach_id(), "killed");
  EXPECT_THAT(first.AwaitFault(), HasSubstr("rank 1 is gone: killed"));
  EXPECT_TRUE(engines_->engine(0).Jobs().empty());
  engines_->DropIf(nullptr);
  Attach();
}

TEST_F(LinkedEnginesTest, ADecisionForAWorkerThatHasGoneIsNotTakenForItsSuccessor) {
  Start({1, 1});
  std::promise<PeerMessage> sent;
  engines_->DropIf([&sent](int from, int, const PeerMessage& message) {
    const auto* decision = std::get_if<Decision>(&message.body);
    if (from != 0 || decision == nullptr) return false;
    sent.set_value(message);
    return true;
  });
  TestWorker first(engines_->engine(0), RequestOf(0, 2));
  TestWorker gone(engines_->engine(1), RequestOf(1, 2, 0));
  const PeerMessage late = sent.get_future().get();
  engines_->DropIf(nullptr);
  engines_->engine(1).Disconnect(gone.attach_id(), "killed");
  TestWorker next(engines_->engine(1), RequestOf(1, 2, 0));
  engines_->Inject(0, 1, late);
  EXPECT_THAT(first.AwaitFault(), HasSubstr("node 1 lost a worker"));
  TestWorker again(engines_->engine(0), RequestOf(0, 2));
  EXPECT_TRUE(again.AwaitWelcome()) << again.events().fault();
  EXPECT_TRUE(next.AwaitWelcome()) << next.events().fault();
}

TEST_F(LinkedEnginesTest, OrderlyDetachKeepsTheJobOnAllNodes) {
  Start({2, 1});
  Attach();
  Prepare();
  StepOnce();
  All([this](auto& worker) {
    engines_->engine(worker.request().rank < 2 ? 0 : 1).Detach(worker.attach_id(), false);
  });
  ASSERT_TRUE(AwaitIdle());
  EXPECT_EQ(StepOn(0), 1u);
  EXPECT_EQ(StepOn(1), 1u);
}

}  // namespace
}  // namespace zerod::testing
