// Imports through the engine's public interface, on one node and on two.

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "tests/server/engine/attached_engine.h"
#include "tests/server/engine/linked_engines.h"
#include "tests/support/wait_until.h"

namespace zerod::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kNumel = 5000;

/// Two nodes with 1 and 2 ranks, of which some may read `folder_`, which holds "weights": 3.5 in
/// every element.
class EngineImportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "zerod-import-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    const std::vector<float> values(kNumel, 3.5f);
    std::ofstream(folder_ / "weights")
        .write(reinterpret_cast<const char*>(values.data()), kNumel * sizeof(float));
  }
  void TearDown() override {
    workers_.clear();
    engines_.reset();
    fs::remove_all(folder_);
  }

  void Start(const std::vector<std::string>& roots0, const std::vector<std::string>& roots1) {
    engines_ = std::make_unique<LinkedEngines>(std::vector<int>{1, 2}, EngineOptions(),
                                               std::vector{roots0, roots1});
    for (int rank = 0; rank < 3; ++rank) {
      workers_.push_back(std::make_unique<TestWorker>(engines_->engine(rank == 0 ? 0 : 1),
                                                      RequestOf(rank, 3, rank == 2 ? 1 : 0)));
    }
    for (auto& worker : workers_) ASSERT_TRUE(worker->AwaitWelcome()) << worker->events().fault();
    for (auto& worker : workers_) worker->Register(VectorLayer("a", kNumel));
    for (auto& worker : workers_) {
      ASSERT_TRUE(
          WaitUntil(std::chrono::seconds(5), [&] { return worker->events().plans().size() == 1; }));
    }
  }

  Operation Import(int64_t offset_bytes = 0) const {
    Operation operation;
    operation.kind = OperationKind::kImport;
    operation.layer = 0;
    operation.import_from = {{folder_ / "weights", offset_bytes, DType::kFloat32}};
    return operation;
  }

  void ExpectFault(ErrorCode code, const ::testing::Matcher<std::string>& message) {
    for (auto& worker : workers_) {
      EXPECT_THAT(worker->AwaitFault(), message);
      EXPECT_EQ(worker->events().fault_code(), code);
    }
  }

  fs::path folder_;
  std::unique_ptr<LinkedEngines> engines_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
};

TEST_F(EngineImportTest, AllRanksGatherWhatTheirNodesRead) {
  Start({folder_}, {folder_});
  for (auto& worker : workers_) worker->Submit(Import());
  for (auto& worker : workers_) worker->Submit(OperationKind::kSeal);
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->Await(Queue::kData, worker->last_ticket())) << worker->events().fault();
  }
  for (auto& worker : workers_) worker->Gather(0, 0);
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->Await(Queue::kGather, worker->last_ticket()));
    EXPECT_THAT(worker->Parameters(0).first(kNumel), Each(3.5f));
    EXPECT_THAT(worker->Parameters(0).subspan(kNumel), Each(0.0f));
  }
}

TEST_F(EngineImportTest, WhatOneNodeMayNotReadEndsTheAttachOfAllRanks) {
  Start({folder_}, {folder_ / "elsewhere"});
  for (auto& worker : workers_) worker->Submit(Import());
  ExpectFault(ErrorCode::kFailedPrecondition,
              AllOf(HasSubstr("node 1 can't import tensor 'a.weight' of layer 'a' from " +
                              (folder_ / "weights").string()),
                    HasSubstr("outside of zerod's --model-root"), HasSubstr("is dropped")));
}

TEST_F(EngineImportTest, WithoutAModelRootItSaysHowToStartTheDaemon) {
  Start({}, {});
  for (auto& worker : workers_) worker->Submit(Import());
  ExpectFault(ErrorCode::kFailedPrecondition, HasSubstr("started without --model-root"));
}

TEST_F(EngineImportTest, RanksThatNameOtherRangesDivergeByName) {
  Start({folder_}, {folder_});
  for (auto& worker : workers_) worker->Submit(Import(worker == workers_[2] ? 4 : 0));
  ExpectFault(ErrorCode::kAborted, AllOf(HasSubstr("import of layer 0 'a'"), HasSubstr("rank 2"),
                                         HasSubstr("(tensor 0: first byte 0 and 4)")));
}

TEST_F(EngineImportTest, AnotherNumberOfRangesThanTensorsIsRefused) {
  Start({folder_}, {folder_});
  Operation operation = Import();
  operation.import_from.push_back(operation.import_from.front());
  for (auto& worker : workers_) worker->Submit(operation);
  ExpectFault(ErrorCode::kInvalidArgument, HasSubstr("2 places in files for 1 tensors"));
}

TEST_F(EngineImportTest, OnlyANewJobImports) {
  Start({folder_}, {folder_});
  for (auto& worker : workers_) worker->Submit(OperationKind::kSeal);
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->Await(Queue::kData, worker->last_ticket()));
  }
  for (auto& worker : workers_) worker->Submit(Import());
  ExpectFault(ErrorCode::kInvalidArgument, HasSubstr("only a new job imports its values"));
}

}  // namespace
}  // namespace zerod::testing
