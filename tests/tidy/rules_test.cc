// Proves that each check of the style can fail: small bad inputs and their good neighbours.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tidy/lengths.h"
#include "tests/tidy/rooms.h"
#include "tests/tidy/source.h"
#include "tests/tidy/words.h"

namespace zerod::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Repeat(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(BlankOut, KeepsCodeAndLineBreaksOnly) {
  EXPECT_EQ(BlankOut("a; // b\nc;"), "a;     \nc;");
  EXPECT_EQ(BlankOut("a /* b\n c */ d"), "a     \n      d");
  EXPECT_EQ(BlankOut("f(\"g(\\\"\") h"), "f(      ) h");
  EXPECT_EQ(BlankOut("x = '\"' + y;"), "x =     + y;");
  EXPECT_EQ(BlankOut("#define A {\\\n  {\nb"), std::string(12, ' ') + "\n   \nb");
  EXPECT_EQ(BlankOut("n = 1'000'000; m"), "n = 1'000'000; m");
  EXPECT_EQ(BlankOut("R\"x(\")\" )x\" z"), "R" + std::string(10, ' ') + " z");
}

TEST(FindWord, SkipsLongerIdentifiers) {
  EXPECT_EQ(FindWord("my_exit(1); exit(2)", "exit("), 12u);
  EXPECT_EQ(FindWord("gotos", "goto"), std::string::npos);
}

TEST(Lengths, LongFilesAndLinesAreFound) {
  EXPECT_THAT(CheckLengths(MakeSource("server/a.cc", Repeat("a;\n", 400))), IsEmpty());
  EXPECT_THAT(CheckLengths(MakeSource("server/a.cc", Repeat("a;\n", 401))),
              ElementsAre(HasSubstr("server/a.cc:401: file of 401 lines")));
  EXPECT_THAT(CheckLengths(MakeSource("a.py", std::string(100, 'x'))), IsEmpty());
  EXPECT_THAT(CheckLengths(MakeSource("a.py", "\n" + std::string(101, 'x'))),
              ElementsAre(HasSubstr("a.py:2: line of more than 100")));
  EXPECT_THAT(CheckLengths(MakeSource("a.py", "# " + Repeat("é", 98))), IsEmpty());
}

TEST(Functions, LongFunctionsAreFound) {
  const auto function_of = [](int lines) {
    return MakeSource("a.cc", "namespace a {\nclass B {\n  int F(int x) {\n" +
                                  Repeat("    if (x) { g(); }\n", lines - 2) + "  }\n};\n}\n");
  };
  EXPECT_THAT(CheckFunctions(function_of(70)), IsEmpty());
  EXPECT_THAT(CheckFunctions(function_of(71)),
              ElementsAre(HasSubstr("a.cc:3: function of 71 lines")));
}

TEST(Functions, LongTestsAreFound) {
  const auto test_of = [](int lines) {
    return MakeSource("a.cc", "TEST(A, B) {\n" + Repeat("  f();\n", lines - 2) + "}\n");
  };
  EXPECT_THAT(CheckFunctions(test_of(60)), IsEmpty());
  EXPECT_THAT(CheckFunctions(test_of(61)), ElementsAre(HasSubstr("test of 61 lines")));
}

TEST(Functions, LongTypesAndTablesAreNoFunctions) {
  const std::string members = Repeat("  int x;\n", 90);
  EXPECT_THAT(CheckFunctions(MakeSource("a.h", "struct A {\n" + members + "};\n")), IsEmpty());
  EXPECT_THAT(CheckFunctions(MakeSource("a.h", "class alignas(64) A {\n" + members + "};\n")),
              IsEmpty());
  EXPECT_THAT(CheckFunctions(MakeSource("a.h", "int a[] = {\n" + Repeat("1,\n", 90) + "};\n")),
              IsEmpty());
}

TEST(Functions, LongPythonFunctionsAreFound) {
  const auto function_of = [](int lines) {
    return MakeSource("a.py", "def f():\n" + Repeat("    g()\n", lines - 1) + "\nx = 1\n");
  };
  EXPECT_THAT(CheckFunctions(function_of(70)), IsEmpty());
  EXPECT_THAT(CheckFunctions(function_of(71)), ElementsAre(HasSubstr("a.py:1: function of 71")));
}

TEST(Rooms, OrderOfIncludesIsKept) {
  const auto check = [](const char* path, const std::string& include) {
    return CheckRooms(MakeSource(path, "#include \"" + include + "\"\n"));
  };
  EXPECT_THAT(check("server/engine/lane.h", "server/store/shard.h"), IsEmpty());
  EXPECT_THAT(check("server/main.cc", "server/rpc/service.h"), IsEmpty());
  EXPECT_THAT(check("worker/layer.cc", "client/client.h"), IsEmpty());
  EXPECT_THAT(check("server/store/shard.h", "server/engine/lane.h"), SizeIs(1));
  EXPECT_THAT(check("server/layout/plan.h", "server/store/shard.h"), SizeIs(1));
  EXPECT_THAT(check("server/engine/lane.h", "client/client.h"), SizeIs(1));
  EXPECT_THAT(check("client/client.h", "worker/layer.h"), SizeIs(1));
  EXPECT_THAT(check("client/client.cc", "client/ctl/table.h"), SizeIs(1));
  EXPECT_THAT(check("proto/contract/plan.h", "client/client.h"), SizeIs(1));
  EXPECT_THAT(check("worker/layer.h", "tests/support/spawn.h"), SizeIs(1));
  EXPECT_THAT(check("worker/layer.h", "layer_state.h"), ElementsAre(HasSubstr("relative")));
  EXPECT_THAT(check("server/attic/a.h", "proto/a.h"), ElementsAre(HasSubstr("is no room")));
}

TEST(Rooms, CirclesAreFound) {
  const std::vector<Source> chain = {
      MakeSource("server/memory/a.h", "#include \"server/layout/a.h\"\n"),
      MakeSource("server/layout/a.h", "#include \"server/optimizer/a.h\"\n")};
  EXPECT_THAT(CheckCycles(chain), IsEmpty());
  std::vector<Source> circle = chain;
  circle.push_back(MakeSource("server/optimizer/a.h", "#include \"server/memory/a.h\"\n"));
  EXPECT_THAT(CheckCycles(circle), SizeIs(3));
}

TEST(Libraries, EachStaysInItsRoom) {
  const auto check = [](const char* path, const std::string& include) {
    return CheckLibraries(MakeSource(path, "#include <" + include + ">\n"));
  };
  EXPECT_THAT(check("worker/a.cc", "ATen/ATen.h"), IsEmpty());
  EXPECT_THAT(check("client/a.cc", "ATen/ATen.h"), SizeIs(1));
  EXPECT_THAT(check("server/collective/a.cc", "gloo/context.h"), IsEmpty());
  EXPECT_THAT(check("worker/a.cc", "gloo/context.h"), SizeIs(1));
  EXPECT_THAT(check("client/a.cc", "spdlog/spdlog.h"), IsEmpty());
  EXPECT_THAT(check("client/a.h", "spdlog/spdlog.h"), SizeIs(1));
  EXPECT_THAT(check("proto/contract/status.h", "grpcpp/grpcpp.h"), IsEmpty());
  EXPECT_THAT(check("proto/contract/plan.h", "grpcpp/grpcpp.h"), SizeIs(1));
}

TEST(Apart, LibTorchAndTheWireMeetNowhere) {
  const Source header = MakeSource("client/a.h", "#include \"proto/session.pb.h\"\n");
  const std::vector<Source> bad = {
      header, MakeSource("worker/a.cc", "#include <torch/torch.h>\n#include \"client/a.h\"\n")};
  EXPECT_THAT(CheckApart(bad), ElementsAre(HasSubstr("worker/a.cc:1: gets torch/torch.h")));
  const std::vector<Source> good = {header, MakeSource("worker/a.cc", "#include \"client/a.h\"\n")};
  EXPECT_THAT(CheckApart(good), IsEmpty());
}

TEST(Apart, NoTestMixesServerAndWorker) {
  const std::vector<Source> bad = {
      MakeSource("tests/a_test.cc", "#include \"worker/a.h\"\n#include \"server/engine/a.h\"\n")};
  EXPECT_THAT(CheckApart(bad), ElementsAre(HasSubstr("two processes")));
}

TEST(Built, FilesThatNobodyBuildsAreFound) {
  const std::vector<Source> tree = {
      MakeSource("server/CMakeLists.txt", "zerod_library(a SOURCES main.cc store/a.cc)\n"),
      MakeSource("server/main.cc", ""), MakeSource("server/store/a.cc", ""),
      MakeSource("server/store/dead.cc", ""), MakeSource("worker/a.cc", "")};
  EXPECT_THAT(CheckBuilt(tree),
              ElementsAre(HasSubstr("server/store/dead.cc:1"), HasSubstr("worker/a.cc:1")));
}

TEST(PragmaOnce, ComesBeforeAllCode) {
  EXPECT_THAT(CheckPragmaOnce(MakeSource("a.h", "// why\n\n#pragma once\n")), IsEmpty());
  EXPECT_THAT(CheckPragmaOnce(MakeSource("a.h", "#ifndef A\n#pragma once\n")), SizeIs(1));
  EXPECT_THAT(CheckPragmaOnce(MakeSource("a.h", "")), SizeIs(1));
}

TEST(TopLevel, StrangersAndGapsAreFound) {
  const std::vector<std::string> agreed = {"CMakeLists.txt", "LICENSE", "README.md",
                                           "client",         "deploy",  "proto",
                                           "server",         "tests",   "worker"};
  EXPECT_THAT(CheckTopLevel(agreed), IsEmpty());
  std::vector<std::string> other = agreed;
  other.front() = "docs";
  EXPECT_THAT(CheckTopLevel(other),
              ElementsAre(HasSubstr("docs: not"), HasSubstr("CMakeLists.txt: missing")));
}

TEST(BannedCalls, AreFoundInCodeOnly) {
  EXPECT_THAT(CheckBannedCalls(MakeSource("a.cc", "f();\nstd::exit(1);\n")),
              ElementsAre(HasSubstr("a.cc:2: exit( is banned; use an exception")));
  EXPECT_THAT(CheckBannedCalls(MakeSource("a.cc", "_exit(1); on_exit(2); // exit(3)\n")),
              IsEmpty());
  EXPECT_THAT(CheckBannedCalls(MakeSource("a.cc", "f(\"exit(1)\");\n")), IsEmpty());
  EXPECT_THAT(CheckBannedCalls(MakeSource("a.cc", "std::rand(); std::rand(); at::rand({2});\n")),
              SizeIs(2));
}

TEST(BannedCalls, AreAllowedInTheirPlace) {
  const std::string reads = "auto x = std::getenv(name);\n";
  EXPECT_THAT(CheckBannedCalls(MakeSource("server/engine/lane.cc", reads)), SizeIs(1));
  EXPECT_THAT(CheckBannedCalls(MakeSource("server/options.cc", reads)), IsEmpty());
  const std::string sleeps = "std::this_thread::sleep_for(delay);\n";
  EXPECT_THAT(CheckBannedCalls(MakeSource("client/session.cc", sleeps)), SizeIs(1));
  EXPECT_THAT(CheckBannedCalls(MakeSource("tests/a_test.cc", sleeps)), IsEmpty());
  const std::string injected = "std::this_thread::sleep_for(failpoints.gather_delay);\n";
  EXPECT_THAT(CheckBannedCalls(MakeSource("client/session.cc", injected)), IsEmpty());
  EXPECT_THAT(CheckBannedCalls(MakeSource("client/session.cc", sleeps + injected)), SizeIs(1));
}

TEST(AtomicNotify, IsFoundWhereNoConditionVariableIs) {
  const Source bad = MakeSource("server/a.cc", "flag_.notify_one();\n");
  EXPECT_THAT(CheckAtomicNotify(std::vector<Source>{bad}), SizeIs(1));
  const Source header = MakeSource("server/a.h", "std::condition_variable flag_;\n");
  EXPECT_THAT(CheckAtomicNotify(std::vector<Source>{bad, header}), IsEmpty());
  const Source page =
      MakeSource("proto/contract/page.cc", "std::condition_variable c;\nflag->notify_all();\n");
  EXPECT_THAT(CheckAtomicNotify(std::vector<Source>{page}), SizeIs(1));
}

TEST(Leftovers, AreFoundInCommentsToo) {
  EXPECT_THAT(CheckLeftovers(MakeSource("a.sh",
                                        "# TO"
                                        "DO: more\n")),
              SizeIs(1));
  EXPECT_THAT(CheckLeftovers(MakeSource("a.cc",
                                        "#if "
                                        "0\n#endif\n")),
              SizeIs(1));
  EXPECT_THAT(CheckLeftovers(MakeSource("a.md",
                                        "see /wo"
                                        "rk/notes\n")),
              SizeIs(1));
  EXPECT_THAT(CheckLeftovers(MakeSource("a.md",
                                        "see server/wo"
                                        "rk/notes\n")),
              IsEmpty());
  EXPECT_THAT(CheckLeftovers(MakeSource("a.sh", "mktemp /tmp/a.XXXXXX\n")), IsEmpty());
}

TEST(Blanks, AreClean) {
  EXPECT_THAT(CheckBlanks(MakeSource("a.cc", "a\n")), IsEmpty());
  EXPECT_THAT(CheckBlanks(MakeSource("a.cc", "a \n")), SizeIs(1));
  EXPECT_THAT(CheckBlanks(MakeSource("a.cc", "\ta\n")), SizeIs(1));
  EXPECT_THAT(CheckBlanks(MakeSource("a.cc", "a\r\n")), SizeIs(1));
  EXPECT_THAT(CheckBlanks(MakeSource("a.cc", "a")), SizeIs(1));
}

TEST(UsingDirectives, AreForLiteralsOnly) {
  EXPECT_THAT(CheckUsingDirectives(MakeSource("a.cc", "using namespace std::chrono_literals;\n")),
              IsEmpty());
  EXPECT_THAT(CheckUsingDirectives(MakeSource("a.cc", "using namespace std;\n")), SizeIs(1));
}

}  // namespace
}  // namespace zerod::tidy
