#include "server/rpc/rpc_server.h"

#include <fstream>
#include <future>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/admin.grpc.pb.h"
#include "tests/server/rpc/served_engine.h"

namespace zerod {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Calls a method by name and returns the raw bytes of its answer.
std::string CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  const grpc::Slice nothing("");
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &reply,
                 [&](const grpc::Status& status) { done.set_value(status); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return "status " + std::to_string(status.error_code());
  grpc::Slice slice;
  if (!reply.DumpToSingleSlice(&slice).ok()) return "unreadable";
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

/// The raw bytes of the answer to one message on a stream that is called by name.
std::string CallRawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                          const std::string& message) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, method, &queue);
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  if (!done()) return "not started";
  const grpc::Slice bytes(message);
  stream->Write(grpc::ByteBuffer(&bytes, 1), nullptr);
  if (!done()) return "not written";
  grpc::ByteBuffer reply;
  stream->Read(&reply, nullptr);
  if (!done()) return "no answer";
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  done();
  grpc::Slice slice;
  if (!reply.DumpToSingleSlice(&slice).ok()) return "unreadable";
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

std::string StartFailure(Engine& engine, const RpcServerOptions& options, ErrorCode expected) {
  try {
    const RpcServer server(engine, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  return "(started)";
}

TEST(RpcServer, TellsItsHealthAtBothAddresses) {
  ServedEngine served(1);
  const std::string method = "/grpc.health.v1.Health/Check";
  const std::string serving("\x08\x01", 2), not_serving("\x08\x02", 2);  // field 1, enum value
  for (const auto& channel : {served.UnixChannel(), served.TcpChannel()}) {
    served.server().SetServing(false);
    EXPECT_EQ(CallRaw(channel, method), not_serving);
    served.server().SetServing(true);
    EXPECT_EQ(CallRaw(channel, method), serving);
  }
}

TEST(RpcServer, ListsItsServicesToWhoeverAsks) {
  ServedEngine served(1);
  const std::string list_services("\x3a\x00", 2);  // field 7, an empty string
  for (const auto& channel : {served.UnixChannel(), served.TcpChannel()}) {
    EXPECT_THAT(
        CallRawStream(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                      list_services),
        AllOf(HasSubstr("zerod.v1.Admin"), HasSubstr("grpc.health.v1.Health")));
  }
}

TEST(RpcServer, AnswersAdminRequestsAtBothAddresses) {
  ServedEngine served(2);
  for (const auto& channel : {served.UnixChannel(), served.TcpChannel()}) {
    const auto stub = v1::Admin::NewStub(channel);
    grpc::ClientContext context;
    v1::StatusReply status;
    ASSERT_TRUE(stub->GetStatus(&context, {}, &status).ok());
    EXPECT_EQ(status.ranks(), 2);
    EXPECT_TRUE(status.healthy());
    EXPECT_EQ(status.peers(0).address(), served.server().address());
    grpc::ClientContext version_context;
    v1::VersionReply version;
    ASSERT_TRUE(stub->GetVersion(&version_context, {}, &version).ok());
    EXPECT_EQ(version.version(), "1.2.3");
    EXPECT_EQ(version.protocol_version(), kProtocolVersion);
  }
}

TEST(RpcServer, TurnsErrorsOfTheEngineIntoStatus) {
  ServedEngine served(1);
  const auto stub = v1::Admin::NewStub(served.UnixChannel());
  grpc::ClientContext context;
  v1::DropJobRequest request;
  request.set_job_id("missing");
  v1::DropJobReply reply;
  const grpc::Status status = stub->DropJob(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("'missing'"));
}

TEST(RpcServer, RefusesAPortInUseNamingIt) {
  ServedEngine served(1);
  RpcServerOptions options = served.MakeOptions(served.folder() + "/other");
  options.listen = served.server().address();
  EXPECT_THAT(StartFailure(served.engine(), options, ErrorCode::kAlreadyExists),
              AllOf(HasSubstr(options.listen), HasSubstr("in use"), HasSubstr("--listen")));
  options.listen = "192.0.2.1:7000";  // reserved for documents: nobody's own
  EXPECT_THAT(StartFailure(served.engine(), options, ErrorCode::kInvalidArgument),
              HasSubstr("192.0.2.1:7000"));
}

TEST(RpcServer, RefusesTheSocketOfALivingDaemonAndOfOtherFiles) {
  ServedEngine served(1);
  EXPECT_THAT(StartFailure(served.engine(), served.MakeOptions(served.socket_path()),
                           ErrorCode::kAlreadyExists),
              AllOf(HasSubstr(served.socket_path()), HasSubstr("another zerod")));
  const std::string file = served.folder() + "/file";
  std::ofstream(file) << "precious";
  EXPECT_THAT(StartFailure(served.engine(), served.MakeOptions(file), ErrorCode::kAlreadyExists),
              HasSubstr("not a socket"));
  RawWorker worker(served.UnixChannel());  // the living daemon lost nothing
  EXPECT_TRUE(worker.Attach(0, 1).has_welcome());
}

TEST(RpcServer, TakesOverAStaleSocketAndRemovesItsOwn) {
  ServedEngine served(1);
  const std::string path = served.folder() + "/new/folder/z";
  for (int round = 0; round < 2; ++round) {
    {
      const RpcServer server(served.engine(), served.MakeOptions(path));
      EXPECT_EQ(access(path.c_str(), F_OK), 0);
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
    EXPECT_NE(access(DescriptorSocketPath(path).c_str(), F_OK), 0);
    ListenUnix(path);  // closed at once: a file that nobody serves, as after a crash
    ListenUnix(DescriptorSocketPath(path));
  }
}

TEST(RpcServer, EndsWithinItsDeadlineBesideAWorkerThatStays) {
  ServedEngine served(1);
  RawWorker worker(served.UnixChannel());
  ASSERT_TRUE(worker.Attach(0, 1).has_welcome());
  const auto start = std::chrono::steady_clock::now();
  served.server().Shutdown(std::chrono::milliseconds(300));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_TRUE(served.AwaitSessions(0));
}

}  // namespace
}  // namespace zerod
