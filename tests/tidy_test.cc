// The style of this tree, checked as a test. Each finding names the place and what to do instead.

#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tidy/lengths.h"
#include "tests/tidy/rooms.h"
#include "tests/tidy/source.h"
#include "tests/tidy/words.h"

namespace zerod::tidy {
namespace {

const std::vector<Source>& Tree() {
  static const std::vector<Source> tree = ReadTree(ZEROD_SOURCE_DIR);
  return tree;
}

std::string Joined(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += "\n  " + finding;
  return text;
}

void ExpectEachPasses(Findings (*check)(const Source&)) {
  Findings all;
  for (const Source& source : Tree()) {
    const Findings findings = check(source);
    all.insert(all.end(), findings.begin(), findings.end());
  }
  EXPECT_TRUE(all.empty()) << Joined(all);
}

void ExpectTreePasses(Findings (*check)(std::span<const Source>)) {
  const Findings findings = check(Tree());
  EXPECT_TRUE(findings.empty()) << Joined(findings);
}

TEST(Tidy, ReadsTheWholeTree) {
  size_t cpp_count = 0;
  for (const Source& source : Tree()) cpp_count += IsCpp(source.path);
  EXPECT_GT(cpp_count, 50u);
}

TEST(Tidy, TopLevelHoldsExactlyTheAgreedNames) {
  const Findings findings = CheckTopLevel(TopLevelEntries(ZEROD_SOURCE_DIR));
  EXPECT_TRUE(findings.empty()) << Joined(findings);
}

TEST(Tidy, FilesAndLinesAreShort) { ExpectEachPasses(CheckLengths); }
TEST(Tidy, FunctionsAreShort) { ExpectEachPasses(CheckFunctions); }
TEST(Tidy, RoomsIncludeOnlyWhatLiesBelowThem) { ExpectEachPasses(CheckRooms); }
TEST(Tidy, RoomsDoNotIncludeEachOtherInCircles) { ExpectTreePasses(CheckCycles); }
TEST(Tidy, LibrariesStayInTheirRooms) { ExpectEachPasses(CheckLibraries); }
TEST(Tidy, LibTorchStaysApartFromTheWireAndTheServer) { ExpectTreePasses(CheckApart); }
TEST(Tidy, EveryFileIsBuilt) { ExpectTreePasses(CheckBuilt); }
TEST(Tidy, HeadersStartWithPragmaOnce) { ExpectEachPasses(CheckPragmaOnce); }
TEST(Tidy, BannedCallsAreNotMade) { ExpectEachPasses(CheckBannedCalls); }
TEST(Tidy, NobodyWaitsOnAnAtomic) { ExpectTreePasses(CheckAtomicNotify); }
TEST(Tidy, NothingIsLeftOver) { ExpectEachPasses(CheckLeftovers); }
TEST(Tidy, BlanksAreClean) { ExpectEachPasses(CheckBlanks); }
TEST(Tidy, NamespacesAreNamed) { ExpectEachPasses(CheckUsingDirectives); }

}  // namespace
}  // namespace zerod::tidy
