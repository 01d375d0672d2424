#include "server/rpc/outbox.h"

#include <chrono>
#include <future>
#include <memory>

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "proto/session.grpc.pb.h"
#include "tests/server/rpc/served_engine.h"

namespace zerod {
namespace {

using ::testing::HasSubstr;

/// A stream that reads nothing and writes what its outbox is given.
class WritingStream : public Outbox::Stream {
 public:
  WritingStream(grpc::CallbackServerContext* context, std::promise<std::shared_ptr<Outbox>>& out,
                std::promise<void>& done)
      : outbox_(std::make_shared<Outbox>(this, context)), done_(done) {
    out.set_value(outbox_);
  }
  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }
  void OnDone() override {
    done_.set_value();
    delete this;
  }

 private:
  std::shared_ptr<Outbox> outbox_;
  std::promise<void>& done_;
};

class WritingService : public v1::Worker::CallbackService {
 public:
  Outbox::Stream* Session(grpc::CallbackServerContext* context) override {
    return new WritingStream(context, outbox, done);
  }
  std::promise<std::shared_ptr<Outbox>> outbox;
  std::promise<void> done;
};

class OutboxTest : public ::testing::Test {
 protected:
  OutboxTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder_.path() + "/o", grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    worker_ = std::make_unique<RawWorker>(
        grpc::CreateChannel("unix:" + folder_.path() + "/o", grpc::InsecureChannelCredentials()));
    outbox_ = service_.outbox.get_future().get();
  }
  ~OutboxTest() override {
    worker_.reset();
    server_->Shutdown();
  }

  TemporaryFolder folder_;
  WritingService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<RawWorker> worker_;
  std::shared_ptr<Outbox> outbox_;
};

TEST_F(OutboxTest, DeliversInOrderAndThenFinishes) {
  constexpr int kCount = 5000;
  for (int i = 0; i < kCount; ++i) outbox_->OnWarning(std::to_string(i));
  outbox_->OnFault(Error(ErrorCode::kAborted, "the end"));
  outbox_->OnWarning("too late");
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(worker_->Receive().warning().message(), std::to_string(i));
  }
  EXPECT_EQ(worker_->ReceiveFault(), "the end");
  EXPECT_EQ(worker_->Receive().body_case(), v1::DaemonMessage::BODY_NOT_SET);
  EXPECT_TRUE(worker_->Finish().ok());
}

TEST_F(OutboxTest, GivesUpAWorkerThatDoesNotRead) {
  const std::string text(1000, 'w');
  // What fits the connection's own buffers leaves the queue, so more than the bound is needed.
  for (size_t i = 0; i < 2 * Outbox::kMessagesMax && !outbox_->closed(); ++i) {
    outbox_->OnWarning(text);
  }
  EXPECT_TRUE(outbox_->closed());
  EXPECT_THAT(outbox_->overflow(), HasSubstr("it didn't read its stream: 10000 messages"));
  EXPECT_EQ(service_.done.get_future().wait_for(std::chrono::seconds(5)),
            std::future_status::ready);
}

TEST_F(OutboxTest, BoundsBytesToo) {
  const std::string text(size_t{1} << 20, 'w');
  for (int i = 0; i < 80 && !outbox_->closed(); ++i) outbox_->OnWarning(text);
  EXPECT_TRUE(outbox_->closed());
  EXPECT_THAT(outbox_->overflow(), HasSubstr("bytes are waiting"));
}

TEST_F(OutboxTest, MayOutliveItsStream) {
  std::future<void> done = service_.done.get_future();
  worker_->Cancel();
  // A write succeeds until the cancellation has arrived; the first that fails ends the stream.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (done.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    outbox_->OnWarning("into the void");
  }
  outbox_->OnWarning("nobody");
  outbox_->OnDetached();
  EXPECT_TRUE(outbox_->closed());
}

}  // namespace
}  // namespace zerod
