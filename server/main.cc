#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "proto/contract/error.h"
#include "proto/contract/printable_text.h"
#include "proto/contract/standard_output.h"
#include "server/cluster/cluster.h"
#include "server/config/command_line.h"
#include "server/engine/engine.h"
#include "server/optimizer/factory.h"
#include "server/rpc/rpc_server.h"

namespace zerod {
namespace {

constexpr std::chrono::milliseconds kHealthPeriod{200};
constexpr std::chrono::milliseconds kShutdownDeadline{2'000};

void LogOfGrpc(gpr_log_func_args* arguments) {
  spdlog::debug(Concat("grpc ", arguments->file, ":", arguments->line, ": ", arguments->message));
}

/// While stopping, an error of gRPC may be the last word before it aborts the process.
void LogOfGrpcWhileStopping(gpr_log_func_args* arguments) {
  if (arguments->severity != GPR_LOG_SEVERITY_ERROR) return;
  spdlog::warn(Concat("grpc ", arguments->file, ":", arguments->line, ": ", arguments->message));
}

/// The message of a log line; a job's or a layer's name in it may hold anything.
class OneLineFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& out) override {
    const std::string text = OneLineText({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineFlag>();
  }
};

void SetUpLog(const ServerOptions& options) {
  const auto logger = spdlog::stderr_color_mt("zerod");
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLineFlag>('*').set_pattern(
      Concat("%Y-%m-%d %H:%M:%S.%e %^%l%$ node ", options.engine.node, ": %*"));
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(options.log_level));
  spdlog::set_default_logger(logger);
  gpr_set_log_function(LogOfGrpc);
}

/// Every chunk of a layer is a descriptor, and its optimizer state one for each rank: the customary
/// soft limit of 1024 is too few for a hundred layers on eight ranks.
void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// SIGTERM and SIGINT as something to read. Made before any thread, so that all inherit the mask.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, nullptr);
    fd_ = FileDescriptor(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_.valid()) {
      throw Error(ErrorCode::kInternal, "cannot create a signalfd: " + ErrnoText(errno));
    }
  }

  /// The signal that came within the time, else 0.
  int Wait(std::chrono::milliseconds time) const {
    pollfd polled{fd_.get(), POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(time.count())) <= 0) return 0;
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

  /// From now on a signal ends the process at once: for who doesn't want to wait for a clean end.
  void LetThrough() const { pthread_sigmask(SIG_UNBLOCK, &set_, nullptr); }

 private:
  sigset_t set_;
  FileDescriptor fd_;
};

std::unique_ptr<Cluster> MakeCluster(const ServerOptions& options, Engine& engine) {
  if (options.peers.size() < 2) return nullptr;
  ClusterOptions cluster_options;
  cluster_options.node = options.engine.node;
  cluster_options.peers = options.peers;
  cluster_options.ranks = options.engine.ranks;
  cluster_options.version = ZEROD_VERSION;
  return std::make_unique<Cluster>(std::move(cluster_options), engine);
}

/// What `zeroctl status` lists. A lone node has no cluster and lists itself.
std::vector<PeerView> Peers(const ServerOptions& options, const Cluster* cluster,
                            const std::string& address) {
  if (cluster == nullptr) return {{0, address, true, options.engine.ranks, ""}};
  std::vector<PeerView> views;
  for (const PeerState& peer : cluster->States()) {
    views.push_back({peer.node, peer.address, peer.connected, peer.ranks, peer.note});
  }
  return views;
}

RpcServerOptions MakeRpcOptions(const ServerOptions& options, Cluster* cluster) {
  RpcServerOptions rpc;
  rpc.socket_path = options.socket_path;
  rpc.listen = options.listen;
  rpc.peer_service = cluster == nullptr ? nullptr : cluster->service();
  rpc.facts.version = ZEROD_VERSION;
  rpc.facts.backend = "host";
  rpc.facts.instruction_set = SelectKernels(DetectInstructionSet()).name();
  rpc.facts.peers = [options, cluster](const std::string& address) {
    return Peers(options, cluster, address);
  };
  return rpc;
}

int Serve(const ServerOptions& options) {
  const StopSignals signals;
  SetUpLog(options);
  RaiseOpenFileLimit();
  // Never undone: where a worker left something unread, gRPC's own shutdown waits ten seconds.
  grpc_init();
  Engine engine(options.engine);
  const std::unique_ptr<Cluster> cluster = MakeCluster(options, engine);
  engine.SetPeerLink(cluster.get());
  RpcServer server(engine, MakeRpcOptions(options, cluster.get()));
  if (cluster) cluster->Start();
  std::cout << "zerod node " << options.engine.node << ": listening on " << server.address()
            << ", socket " << options.socket_path << ", " << options.engine.ranks
            << (options.engine.ranks == 1 ? " rank" : " ranks") << "\n"
            << std::flush;

  int signal = 0;
  while (signal == 0) {
    server.SetServing(engine.Status().world_size > 0);
    signal = signals.Wait(kHealthPeriod);
  }
  signals.LetThrough();
  gpr_set_log_function(LogOfGrpcWhileStopping);
  const std::string reason =
      Concat("zerod of node ", options.engine.node, " was told to stop (", strsignal(signal), ")");
  spdlog::info(reason);
  server.SetServing(false);
  engine.Stop(reason);
  if (cluster) cluster->Stop();
  server.Shutdown(kShutdownDeadline);
  return 128 + signal;
}

int Main(const std::vector<std::string>& arguments) {
  try {
    const StartRequest request = ReadCommandLine(arguments, ProcessEnvironment(), ZEROD_VERSION);
    if (request.mode == StartMode::kPrintAndExit) {
      WriteStandardOutput(request.text);
      return 0;
    }
    return Serve(request.options);
  } catch (const Error& error) {
    std::cerr << "zerod: " << error.what() << "\n" << std::flush;
    return ExitCode(error.code());
  } catch (const std::exception& error) {
    std::cerr << "zerod: unexpected failure: " << error.what() << "\n" << std::flush;
    return 1;
  }
}

}  // namespace
}  // namespace zerod

int main(int argc, char** argv) {
  const int code = zerod::Main(std::vector<std::string>(argv + 1, argv + argc));
  // Everything of ours is destroyed. gRPC stays initialised and its threads run on: they must not
  // meet static objects that are gone.
  std::cout << std::flush;
  spdlog::default_logger()->flush();
  std::_Exit(code);
}
