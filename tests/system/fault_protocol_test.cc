// Clients that speak the protocol badly, against a real daemon: it refuses, and serves the next.

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/contract/control_page.h"
#include "proto/contract/convert.h"
#include "proto/contract/descriptor.h"
#include "proto/session.grpc.pb.h"
#include "tests/support/daemons.h"

namespace zerod {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kTimeoutMs = 5000;

/// A worker made of the generated code only.
class BareWorker {
 public:
  explicit BareWorker(const std::string& socket_path) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Worker::NewStub(grpc::CreateCustomChannel(
        "unix:" + socket_path, grpc::InsecureChannelCredentials(), arguments));
    context_.set_deadline(std::chrono::system_clock::now() + seconds(20));
    stream_ = stub_->Session(&context_);
  }
  ~BareWorker() {
    context_.TryCancel();
    for (v1::DaemonMessage ignored; stream_->Read(&ignored);) {
    }
  }

  void Send(const v1::WorkerMessage& message) { stream_->Write(message); }
  /// Empty when the stream has ended.
  v1::DaemonMessage Receive() {
    v1::DaemonMessage message;
    if (!stream_->Read(&message)) message.Clear();
    return message;
  }
  std::string ReceiveFault() {
    for (;;) {
      const v1::DaemonMessage message = Receive();
      if (message.has_fault()) return message.fault().message();
      if (message.body_case() == v1::DaemonMessage::BODY_NOT_SET) return "the stream ended";
    }
  }

  void SendHello(uint32_t protocol_version) {
    v1::WorkerMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_version(protocol_version);
    hello.set_job_id("job");
    hello.set_mode(v1::ATTACH_MODE_ATTACH_OR_CREATE);
    hello.set_world_size(1);
    hello.set_tensor_parallel(1);
    hello.set_pid(getpid());
    hello.set_program("bare");
    hello.set_cache_bytes(-1);
    hello.set_gradient_slots(1);
    Send(message);
  }
  bool TryAttach() {
    SendHello(kProtocolVersion);
    const v1::DaemonMessage answer = Receive();
    epoch_ = answer.epoch();
    welcome_ = answer.welcome();
    return answer.has_welcome();
  }
  /// Attaches and returns the token for the descriptor socket.
  uint64_t Attach() {
    EXPECT_TRUE(TryAttach());
    return welcome_.token();
  }

  /// Registers one layer of `numel` weights and seals; returns once the slots exist.
  void RegisterAndSeal(ControlPage& page, int64_t numel) {
    Operation layer;
    layer.kind = OperationKind::kRegister;
    layer.layer = 0;
    layer.layer_spec = {.name = "linear", .tensors = {{.name = "w", .shape = {numel}}}};
    Submit(layer);
    ASSERT_TRUE(Receive().has_plan());
    Operation seal;
    seal.kind = OperationKind::kSeal;
    Submit(seal);
    const auto deadline = std::chrono::steady_clock::now() + seconds(10);
    ASSERT_EQ(WaitFor(page, Queue::kData, ticket_, deadline), WaitResult::kDone);
  }

  void Submit(Operation operation) {
    operation.ticket = ++ticket_;
    v1::WorkerMessage message;
    message.set_epoch(epoch_);
    ToMessage(operation, *message.mutable_submit()->add_operations());
    Send(message);
  }

  uint64_t ticket() const { return ticket_; }

 private:
  std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::DaemonMessage>> stream_;
  v1::Welcome welcome_;
  uint64_t epoch_ = 0;
  uint64_t ticket_ = 0;
};

struct Given {
  FileDescriptor fd;
  int64_t size_bytes = 0;
};

Given Ask(const std::string& socket_path, const DescriptorRequest& request) {
  const FileDescriptor socket = ConnectUnix(DescriptorSocketPath(socket_path));
  SendRequest(socket.get(), request, kTimeoutMs);
  Given given;
  const DescriptorReply reply = ReceiveReply(socket.get(), given.fd, kTimeoutMs);
  EXPECT_EQ(reply.error, "");
  given.size_bytes = reply.size_bytes;
  return given;
}

/// Attaches and leaves as it should: the daemon serves the next worker. The former one may still
/// be on its way out.
void ExpectServes(const Daemons& daemons) {
  EXPECT_TRUE(WaitUntil(seconds(10), [&] { return BareWorker(daemons.socket(0)).TryAttach(); }))
      << daemons.log(0);
  EXPECT_EQ(daemons.RunCtl(0, {"health"}).exit_code, 0);
}

TEST(FaultProtocolTest, AnotherProtocolVersionIsRefusedNamingBoth) {
  const Daemons daemons({1});
  {
    BareWorker worker(daemons.socket(0));
    worker.SendHello(kProtocolVersion + 1);
    EXPECT_THAT(worker.ReceiveFault(), AllOf(HasSubstr(Concat("version ", kProtocolVersion)),
                                             HasSubstr(Concat("version ", kProtocolVersion + 1))));
  }
  ExpectServes(daemons);
}

TEST(FaultProtocolTest, AWorkerCanNeitherShrinkNorGrowWhatItWasGivenNorWriteShards) {
  const Daemons daemons({1});
  {
    BareWorker worker(daemons.socket(0));
    const uint64_t token = worker.Attach();
    const Given control = Ask(daemons.socket(0), {.token = token});
    const Mapping page = MapShared(control.fd, control.size_bytes, Access::kReadWrite);
    worker.RegisterAndSeal(*reinterpret_cast<ControlPage*>(page.data()), 5000);
    const std::vector<Given> given = [&] {
      std::vector<Given> all;
      for (const MemoryKind kind : {MemoryKind::kRegion, MemoryKind::kSlot, MemoryKind::kStage}) {
        all.push_back(Ask(daemons.socket(0), {.token = token, .kind = kind}));
      }
      return all;
    }();
    for (const Given* memory : {&control, &given[0], &given[1], &given[2]}) {
      EXPECT_NE(ftruncate(memory->fd.get(), 0), 0);
      EXPECT_NE(ftruncate(memory->fd.get(), memory->size_bytes - 4096), 0);
      EXPECT_NE(ftruncate(memory->fd.get(), memory->size_bytes * 2), 0);
    }
    EXPECT_EQ(mmap(nullptr, given[0].size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                   given[0].fd.get(), 0),
              MAP_FAILED);
    EXPECT_LT(write(given[0].fd.get(), "x", 1), 0);
  }
  ExpectServes(daemons);
}

TEST(FaultProtocolTest, AWorkerThatFloodsItsPagesHarmsOnlyItself) {
  const Daemons daemons({1});
  {
    BareWorker worker(daemons.socket(0));
    const uint64_t token = worker.Attach();
    const Given control = Ask(daemons.socket(0), {.token = token});
    const Mapping page = MapShared(control.fd, control.size_bytes, Access::kReadWrite);
    worker.RegisterAndSeal(*reinterpret_cast<ControlPage*>(page.data()), 5000);
    const Given slot = Ask(daemons.socket(0), {.token = token, .kind = MemoryKind::kSlot});
    const Mapping gradient = MapShared(slot.fd, slot.size_bytes, Access::kReadWrite);
    std::memset(page.data(), 0xff, control.size_bytes);
    std::memset(gradient.data(), 0xff, slot.size_bytes);
    Operation reduce;
    reduce.kind = OperationKind::kReduce;
    reduce.layer = 0;
    reduce.slot = 0;
    reduce.has_gradient = {true};
    worker.Submit(reduce);
    Operation step;
    step.kind = OperationKind::kStep;
    step.step.gradient_divisor = 1;
    worker.Submit(step);
    // 0xff bytes are NaNs: the step is taken, and skipped.
    EXPECT_TRUE(WaitUntil(seconds(10), [&] {
      return daemons.Ctl(0, {"jobs"}).find("\"step\": 1,") != std::string::npos;
    })) << daemons.Ctl(0, {"jobs"});
  }
  ExpectServes(daemons);
}

TEST(FaultProtocolTest, AWorkerThatFloodsItsStreamIsRefusedOrServedButNeverHarmsTheDaemon) {
  const Daemons daemons({1});
  {
    BareWorker worker(daemons.socket(0));
    worker.Attach();
    v1::WorkerMessage message;
    for (int i = 0; i < 100'000; ++i) {
      v1::Operation& operation = *message.mutable_submit()->add_operations();
      operation.set_ticket(1);
      operation.set_kind(250);
    }
    worker.Send(message);
    EXPECT_THAT(worker.ReceiveFault(), testing::Not(HasSubstr("the stream ended")));
  }
  {
    BareWorker worker(daemons.socket(0));
    v1::WorkerMessage message;
    message.mutable_hello()->set_job_id(std::string(64 << 20, 'j'));
    worker.Send(message);
    worker.ReceiveFault();
  }
  ExpectServes(daemons);
}

std::string Noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string noise(bytes, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  return noise;
}

TEST(FaultProtocolTest, GarbageOnEitherSocketClosesThatConnectionOnly) {
  const Daemons daemons({1});
  for (const std::string& path : {daemons.socket(0), DescriptorSocketPath(daemons.socket(0))}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      const FileDescriptor socket = ConnectUnix(path);
      const std::string noise = Noise(seed == 0 ? 7 : 100'000, seed);
      for (size_t sent = 0; sent < noise.size();) {
        const ssize_t done =
            send(socket.get(), noise.data() + sent, noise.size() - sent, MSG_NOSIGNAL);
        if (done <= 0) break;
        sent += done;
      }
      shutdown(socket.get(), SHUT_WR);
      timeval limit{5, 0};
      setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      char answer[4096];
      ssize_t got = 0;
      while ((got = recv(socket.get(), answer, sizeof(answer), 0)) > 0) {
      }
      EXPECT_TRUE(got == 0 || errno == ECONNRESET || errno == EPIPE)
          << path << " stays open: " << ErrnoText(errno);
    }
  }
  ExpectServes(daemons);
}

}  // namespace
}  // namespace zerod
