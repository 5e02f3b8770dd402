#include "base/shown.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include "base/console.h"
#include "base/log.h"

namespace temper {
namespace {

using std::string_literals::operator""s;

TEST(Shown, ControlsAreSpelledOutAndTextStaysAsItIs) {
  for (const char* text : {"", "plain\n\ttext", "größe 数 😀 \u200f", "\\x1b"}) EXPECT_EQ(shown(text), text);
  EXPECT_EQ(shown("\x1b]0;title\a\x1b[2J"), "\\x1b]0;title\\x07\\x1b[2J");
  EXPECT_EQ(shown("a\rb\0c\x7f"s), "a\\rb\\x00c\\x7f");
  EXPECT_EQ(shown("\u0080\u009b31m\u00a0"), "\\u0080\\u009b31m\u00a0");
  EXPECT_EQ(shown("\u202egpj.exe\u2066\u2069"), "\\u202egpj.exe\\u2066\\u2069");
  EXPECT_EQ(shown("\xff\xe2\x82 \xc3"), "\\xff\\xe2\\x82 \\xc3");
  EXPECT_EQ(shown(shown("\x1b\u009b\xff")), shown("\x1b\u009b\xff"));
}

TEST(Shown, OfALongMessageTheMiddleIsLeftOut) {
  const std::string message = "begin " + std::string(100'000, 'x') + " end";
  const std::string said = shown_message(message);
  EXPECT_LT(said.size(), 20'000u);
  EXPECT_TRUE(said.starts_with("begin x") && said.ends_with("x end"));
  EXPECT_NE(said.find(" bytes are left out"), std::string::npos);
}

// What `print` writes where standard output is a terminal or, else, a file.
template <class Print>
std::string written(bool terminal, Print&& print) {
  int ends[2] = {-1, -1};
  if (terminal)
    EXPECT_EQ(::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr), 0);
  else
    EXPECT_EQ(::pipe(ends), 0);
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(ends[1], STDOUT_FILENO);
  print();
  std::fflush(stdout);
  ::dup2(before, STDOUT_FILENO);
  char buffer[256];
  const ssize_t size = ::read(ends[0], buffer, sizeof buffer);
  for (const int file : {before, ends[0], ends[1]}) ::close(file);
  return {buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

TEST(Console, AnswersAreExactInPipesAndShownOnTerminals) {
  const auto answer = [] { print_answer("a\x1b[2J\u009b1m"); };
  EXPECT_EQ(written(false, answer), "a\x1b[2J\u009b1m");
  EXPECT_EQ(written(true, answer), "a\\x1b[2J\\u009b1m");
}

TEST(Console, ReportsAreShownEverywhere) {
  EXPECT_EQ(written(false, [] { print_line("{}: {}", "a\x1b[2J", 3); }), "a\\x1b[2J: 3\n");
}

TEST(Log, LinesAndTheirCopiesAreShown) {
  std::string copy;
  set_log_copy([&](std::string_view line) { copy += line; });
  testing::internal::CaptureStderr();
  log_info("file \x1b]0;x\a");
  log_warning("\u202e");
  log_quietly("\r");
  set_log_copy(nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "file \\x1b]0;x\\x07\nwarning: \\u202e\n");
  EXPECT_EQ(copy, "file \\x1b]0;x\\x07\nwarning: \\u202e\n\\r\n");
}

}  // namespace
}  // namespace temper
