#include "tests/tidy/words.h"

#include <array>
#include <set>

namespace zerod::tidy {
namespace {

enum class Allowed { kNowhere, kInTests, kInOptions, kInFailpoints, kInMain };

struct Banned {
  std::string_view word;
  std::string_view instead;
  Allowed allowed = Allowed::kNowhere;
};

constexpr std::array kBanned = {
    Banned{"getenv(", "an option; only the options code reads the environment",
           Allowed::kInOptions},
    Banned{"setenv(", "the environment that a process is started with", Allowed::kInTests},
    Banned{"sleep_for(", "a wait on a condition with a deadline", Allowed::kInFailpoints},
    Banned{"sleep_until(", "a wait on a condition with a deadline", Allowed::kInFailpoints},
    Banned{"sleep(", "a wait on a condition with a deadline"},
    Banned{"usleep(", "a wait on a condition with a deadline"},
    Banned{"nanosleep(", "a wait on a condition with a deadline"},
    Banned{"strcpy(", "std::string"},
    Banned{"strncpy(", "std::string"},
    Banned{"strcat(", "std::string"},
    Banned{"sprintf(", "std::snprintf or Concat"},
    Banned{"strtok(", "std::string_view"},
    Banned{"atoi(", "std::from_chars"},
    Banned{"atol(", "std::from_chars"},
    Banned{"atof(", "std::from_chars"},
    Banned{"std::rand(", "an engine of <random> with a seed"},
    Banned{"srand(", "an engine of <random> with a seed"},
    Banned{"system(", "posix_spawn or fork and exec"},
    Banned{"popen(", "posix_spawn or fork and exec", Allowed::kInTests},
    Banned{"signal(", "sigaction"},
    Banned{"shm_open(", "a memfd that is passed as a descriptor"},
    Banned{"exit(", "an exception, or a return from main", Allowed::kInMain},
    Banned{"assert(", "ZEROD_CHECK"},
    Banned{"std::async(", "std::jthread or the lane", Allowed::kInTests},
    Banned{"std::views", "a loop; clang 14 can't compile the views of libstdc++ 12"},
    Banned{"std::ranges::views", "a loop; clang 14 can't compile the views of libstdc++ 12"},
    Banned{"std::format(", "fmt::format in server/, Concat elsewhere; g++ 12 has no <format>"},
    Banned{"std::endl", "'\\n', and std::flush where it matters"},
    Banned{"goto", "a function or a destructor"},
    Banned{"typedef", "using"},
    Banned{"NULL", "nullptr"},
};

bool IsAllowed(Allowed allowed, std::string_view path) {
  const bool tests = path.starts_with("tests/");
  switch (allowed) {
    case Allowed::kNowhere:
      return false;
    case Allowed::kInTests:
      return tests;
    case Allowed::kInOptions:
      return tests || path.starts_with("server/config/") || path.find("options") != path.npos;
    case Allowed::kInFailpoints:
      return tests || path.find("failpoint") != path.npos;
    case Allowed::kInMain:
      return tests || path.ends_with("main.cc");
  }
  return false;
}

// In pieces, so that this file passes its own check.
constexpr std::array<std::string_view, 6> kLeftovers = {
    "TO"
    "DO",
    "FIX"
    "ME",
    "XX"
    "X",
    "HA"
    "CK",
    "WI"
    "P",
    "TB"
    "D"};
constexpr std::array<std::string_view, 4> kPlaces = {
    "/wo"
    "rk/",
    "/ro"
    "ot/",
    "/tmp/"
    "team",
    "/dev/"
    "shm"};

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string_view Stem(std::string_view path) { return path.substr(0, path.rfind('.')); }

// True if a path in this line starts with `place`; inside a longer path it means something else.
bool HasPlace(std::string_view line, std::string_view place) {
  for (size_t at = line.find(place); at != line.npos; at = line.find(place, at + 1)) {
    if (at == 0 || (!IsWordCharacter(line[at - 1]) && line[at - 1] != '}')) return true;
  }
  return false;
}

// True if the line of this position does what a failpoint asks for.
bool MentionsFailpoint(std::string_view code, size_t at) {
  const std::string_view line = code.substr(0, code.find('\n', at));
  return line.find("failpoint", line.rfind('\n') + 1) != line.npos;
}

}  // namespace

Findings CheckBannedCalls(const Source& source) {
  Findings findings;
  for (const Banned& banned : kBanned) {
    if (IsAllowed(banned.allowed, source.path)) continue;
    for (size_t at = FindWord(source.code, banned.word); at != std::string::npos;
         at = FindWord(source.code, banned.word, at + 1)) {
      if (banned.allowed == Allowed::kInFailpoints && MentionsFailpoint(source.code, at)) continue;
      findings.push_back(
          Finding(source, LineOf(source.code, at),
                  std::string(banned.word) + " is banned; use " + std::string(banned.instead)));
    }
  }
  return findings;
}

Findings CheckAtomicNotify(std::span<const Source> sources) {
  // A condition variable is often declared in the header and notified in the .cc file beside it.
  std::set<std::string_view> with_condition;
  for (const Source& source : sources) {
    if (source.code.find("condition_variable") != std::string::npos ||
        source.code.find("CondVar") != std::string::npos) {
      with_condition.insert(Stem(source.path));
    }
  }
  Findings findings;
  for (const Source& source : sources) {
    const bool shared_pages = source.path.starts_with("proto/contract/");
    if (with_condition.contains(Stem(source.path)) && !shared_pages) continue;
    for (std::string_view word : {"notify_one(", "notify_all("}) {
      for (size_t at = FindWord(source.code, word); at != std::string::npos;
           at = FindWord(source.code, word, at + 1)) {
        findings.push_back(Finding(source, LineOf(source.code, at),
                                   "an atomic's notify never wakes another process; use the "
                                   "doorbell of the control page, or a condition variable"));
      }
    }
  }
  return findings;
}

Findings CheckLeftovers(const Source& source) {
  Findings findings;
  int number = 0;
  for (std::string_view line : Lines(source.text)) {
    ++number;
    for (std::string_view word : kLeftovers) {
      if (FindWord(line, word) != line.npos) {
        findings.push_back(
            Finding(source, number, std::string(word) + " left over; do it or drop it"));
      }
    }
    for (std::string_view place : kPlaces) {
      if (HasPlace(line, place)) {
        findings.push_back(Finding(source, number, std::string(place) + " belongs to one machine"));
      }
    }
    if (line.starts_with("#if "
                         "0")) {
      findings.push_back(Finding(source, number, "switched-off code; delete it"));
    }
  }
  return findings;
}

Findings CheckBlanks(const Source& source) {
  Findings findings;
  int number = 0;
  for (std::string_view line : Lines(source.text)) {
    ++number;
    if (line.find('\t') != line.npos)
      findings.push_back(Finding(source, number, "a tab; use blanks"));
    if (line.ends_with(' ')) findings.push_back(Finding(source, number, "blanks at the end"));
    if (line.ends_with('\r')) findings.push_back(Finding(source, number, "a carriage return"));
  }
  if (!source.text.empty() && !source.text.ends_with('\n')) {
    findings.push_back(Finding(source, number, "no line break at the end"));
  }
  return findings;
}

Findings CheckUsingDirectives(const Source& source) {
  Findings findings;
  for (size_t at = source.code.find("using namespace"); at != std::string::npos;
       at = source.code.find("using namespace", at + 1)) {
    const std::string_view rest = std::string_view(source.code).substr(at);
    const bool literals = rest.substr(0, rest.find(';')).ends_with("literals");
    if (!literals) {
      findings.push_back(
          Finding(source, LineOf(source.code, at), "using namespace; name what you use"));
    }
  }
  return findings;
}

}  // namespace zerod::tidy
