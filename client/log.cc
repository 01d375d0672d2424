#include "client/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "proto/contract/printable_text.h"

namespace zerod {
namespace {

spdlog::logger& Logger() {
  static const auto logger = [] {
    // Not registered by name: an application may have an spdlog of its own.
    auto made = std::make_shared<spdlog::logger>("zerod",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

}  // namespace

void LogInfo(const std::string& message) { Logger().info(OneLineText(message)); }
void LogWarning(const std::string& message) { Logger().warn(OneLineText(message)); }
void LogError(const std::string& message) { Logger().error(OneLineText(message)); }

}  // namespace zerod
