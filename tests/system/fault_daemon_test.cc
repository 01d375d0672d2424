// Daemons that are stopped, killed, or can't start.

#include <algorithm>

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include "proto/contract/descriptor.h"
#include "tests/system/fault_trainer.h"

namespace zerod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

constexpr seconds kTimeout{20};

int Code(ErrorCode code) { return static_cast<int>(code); }

milliseconds Since(steady_clock::time_point began) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
}

std::vector<double> TrainForEver(const SessionOptions& options, const Marks& marks) {
  FaultTrainer trainer(options);
  trainer.Train();
  marks.Set(Concat("trains", options.rank));
  for (;;) trainer.Train();
}

/// Workers that train until the end of the world, and have begun.
std::vector<RankProcess> StartTraining(const Daemons& daemons, const Marks& marks) {
  std::vector<RankProcess> workers;
  workers.reserve(daemons.World());
  for (int rank = 0; rank < daemons.World(); ++rank) {
    workers.emplace_back(daemons.OptionsOf(rank), [&marks](const SessionOptions& options) {
      return TrainForEver(options, marks);
    });
  }
  for (int rank = 0; rank < daemons.World(); ++rank) marks.Await(Concat("trains", rank));
  return workers;
}

TEST(FaultDaemonTest, ToldToStopWhileItServesItTellsItsWorkersAndLeavesNothingBehind) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Daemons daemons({2});
    const Marks marks;
    std::vector<RankProcess> workers = StartTraining(daemons, marks);
    const auto began = steady_clock::now();
    daemons.process(0).Signal(signal);
    for (RankProcess& worker : workers) {
      const RankOutcome outcome = worker.Wait(kTimeout);
      EXPECT_EQ(outcome.error_code, Code(ErrorCode::kUnavailable)) << outcome.error;
      EXPECT_THAT(outcome.error, HasSubstr("zerod of node 0 was told to stop"));
    }
    EXPECT_EQ(daemons.process(0).Wait(kTimeout), 128 + signal) << daemons.log(0);
    EXPECT_LT(Since(began), seconds(6));
    std::cout << "  stopped with its workers within " << Since(began).count() << " ms\n";
    EXPECT_FALSE(std::filesystem::exists(daemons.socket(0)));
    EXPECT_FALSE(std::filesystem::exists(DescriptorSocketPath(daemons.socket(0))));
  }
}

TEST(FaultDaemonTest, WorkersOfAKilledDaemonDoNotHang) {
  Daemons daemons({2}, {"--failpoints", "gather_delay_ms=50"});
  const Marks marks;
  std::vector<RankProcess> workers = StartTraining(daemons, marks);
  const auto began = steady_clock::now();
  daemons.process(0).Signal(SIGKILL);
  for (RankProcess& worker : workers) {
    const RankOutcome outcome = worker.Wait(kTimeout);
    EXPECT_EQ(outcome.error_code, Code(ErrorCode::kUnavailable)) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr(daemons.socket(0)));
  }
  EXPECT_LT(Since(began), seconds(6));
  std::cout << "  workers ended " << Since(began).count() << " ms after the kill\n";
}

TEST(FaultDaemonTest, TheWorkersOfTheOtherNodeHearWhichNodeDied) {
  for (const std::vector<int>& placement : {std::vector<int>{1, 1}, {2, 1}}) {
    Daemons daemons(placement);
    const Marks marks;
    std::vector<RankProcess> workers = StartTraining(daemons, marks);
    const auto began = steady_clock::now();
    daemons.process(1).Signal(SIGKILL);
    for (int rank = 0; rank < placement[0]; ++rank) {
      const RankOutcome outcome = workers[rank].Wait(kTimeout);
      // The link between the daemons or the data connection may notice it first.
      EXPECT_EQ(ExitCode(static_cast<ErrorCode>(outcome.error_code)), 4) << outcome.error;
      EXPECT_THAT(outcome.error, AllOf(HasSubstr("node 1 is "), HasSubstr("stands at step")));
    }
    EXPECT_LT(Since(began), seconds(8));
    std::cout << "  the other node's workers ended " << Since(began).count() << " ms after\n";
    EXPECT_TRUE(daemons.RunCtl(0, {"status"}).exit_code == 0);
  }
}

ChildResult StartZerod(const std::vector<std::string>& arguments) {
  ChildOptions options;
  options.arguments = {ZEROD_PROGRAM_ZEROD};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  return RunChild(options, kTimeout);
}

void ExpectOneLine(const ChildResult& result, ErrorCode code, const std::string& part) {
  EXPECT_EQ(result.exit_code, ExitCode(code)) << result.error;
  EXPECT_THAT(result.error, HasSubstr(part));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
}

TEST(FaultDaemonTest, APortInUseIsNamed) {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(taken, generic, length), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, generic, &length), 0);
  const FileDescriptor closer(taken);
  const std::string listen_address = Concat("127.0.0.1:", ntohs(address.sin_port));
  const ScratchFolder folder;
  const ChildResult result = StartZerod({"--socket", folder.File("s"), "--listen", listen_address});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.error, HasSubstr(listen_address));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  EXPECT_FALSE(std::filesystem::exists(folder.File("s")));
}

TEST(FaultDaemonTest, ASocketPathThatIsTooLongIsRefusedNamingBothLengths) {
  const std::string path = "/tmp/" + std::string(120, 'x');
  const ChildResult result = StartZerod({"--socket", path});
  ExpectOneLine(result, ErrorCode::kInvalidArgument, path);
  EXPECT_THAT(result.error, HasSubstr(std::to_string(path.size())));
}

TEST(FaultDaemonTest, TheSocketOfALivingDaemonIsNotTaken) {
  Daemons daemons({1});
  const ChildResult second = StartZerod({"--socket", daemons.socket(0)});
  EXPECT_NE(second.exit_code, 0);
  EXPECT_THAT(second.error, HasSubstr(daemons.socket(0)));
  EXPECT_EQ(daemons.RunCtl(0, {"health"}).exit_code, 0);

  // One that was killed leaves its socket files; they don't keep the next from starting.
  daemons.process(0).Signal(SIGKILL);
  ASSERT_EQ(daemons.process(0).Wait(kTimeout), 128 + SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(daemons.socket(0)));
  const ScratchFolder folder;
  ChildOptions options;
  options.arguments = {ZEROD_PROGRAM_ZEROD, "--socket", daemons.socket(0)};
  options.output_path = folder.File("out");
  options.error_path = folder.File("err");
  ChildProcess third(options);
  EXPECT_TRUE(WaitUntil(kTimeout, [&] {
    return ReadWholeFile(options.output_path).find("listening") != std::string::npos;
  })) << ReadWholeFile(options.error_path);
  third.Signal(SIGTERM);
  EXPECT_EQ(third.Wait(kTimeout), 128 + SIGTERM);
}

TEST(FaultDaemonTest, APeerWhoseNameDoesNotResolveIsTriedUntilTheJoinDeadline) {
  const ScratchFolder folder;
  const int port = FreePorts(1)[0];
  ChildOptions options;
  options.arguments = {ZEROD_PROGRAM_ZEROD,
                       "--peers",
                       Concat("127.0.0.1:", port, ",no-such-node.invalid:", port),
                       "--socket",
                       folder.File("s"),
                       "--late-warning-ms",
                       "300",
                       "--join-deadline-ms",
                       "1500"};
  options.output_path = folder.File("out");
  options.error_path = folder.File("err");
  ChildProcess daemon(options);
  ASSERT_TRUE(WaitUntil(kTimeout, [&] {
    return ReadWholeFile(options.output_path).find("listening") != std::string::npos;
  })) << ReadWholeFile(options.error_path);
  SessionOptions worker;
  worker.socket_path = folder.File("s");
  worker.world_size = 2;
  worker.on_warning = [](const std::string&) {};
  RankProcess process(worker, [](const SessionOptions& own) {
    FaultTrainer trainer(own);
    return std::vector<double>{};
  });
  const RankOutcome outcome = process.Wait(kTimeout);
  EXPECT_EQ(outcome.error_code, Code(ErrorCode::kDeadlineExceeded)) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("no-such-node.invalid"));
  const std::string log = ReadWholeFile(options.error_path);
  size_t lines = 0;
  for (size_t at = 0; (at = log.find("no-such-node.invalid", at)) != std::string::npos; ++at) {
    ++lines;
  }
  EXPECT_GE(lines, 3u) << log;
  EXPECT_LE(lines, 12u) << log;
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(kTimeout), 128 + SIGTERM);
}

TEST(FaultDaemonTest, AWorkerWithoutADaemonIsToldWhereItLooked) {
  const ScratchFolder folder;
  SessionOptions options;
  options.socket_path = folder.File("nobody");
  options.connect_timeout = milliseconds(500);
  RankProcess process(options, [](const SessionOptions& own) {
    FaultTrainer trainer(own);
    return std::vector<double>{};
  });
  const RankOutcome outcome = process.Wait(kTimeout);
  EXPECT_EQ(outcome.error_code, Code(ErrorCode::kUnavailable)) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr(folder.File("nobody")));
}

}  // namespace
}  // namespace zerod
