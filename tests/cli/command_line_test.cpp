// What is typed: prompts from pipes, lines of a conversation, numbers out of range, keys of one element.
#include <poll.h>
#include <pty.h>
#include <termios.h>

#include "base/parts/dynamic_library.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A command on a terminal of its own, 80 columns wide.
class Terminal {
 public:
  explicit Terminal(const std::string& arguments) {
    winsize size{24, 80, 0, 0};
    child_ = ::forkpty(&file_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    ::setenv("TERM", "xterm", 1);
    ::execl("/bin/sh", "sh", "-c", (std::string("exec " TEMPER_BINARY " ") + arguments).c_str(), nullptr);
    ::_exit(127);
  }
  ~Terminal() { ::close(file_); }
  // Once a line is edited: before that the terminal itself takes keys.
  void type(const std::string& keys) {
    termios mode{};
    for (int i = 0; i < 2000 && ::tcgetattr(file_, &mode) == 0 && (mode.c_lflag & ICANON) != 0; ++i)
      ::usleep(5000);
    EXPECT_EQ(::write(file_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Reads until `part` was shown so often, or nothing comes for a minute.
  void wait_for(const std::string& part, size_t times) {
    while (count_of(shown_, part) < times && read()) continue;
    EXPECT_GE(count_of(shown_, part), times) << part << "\n" << shown_;
  }
  int exit_code() {
    while (read()) continue;
    for (int i = 0; i < 2000 && ended_.si_pid == 0; ++i, ::usleep(5000))
      ::waitid(P_PID, static_cast<id_t>(child_), &ended_, WEXITED | WNOHANG | WNOWAIT);
    if (ended_.si_pid == 0) ::kill(child_, SIGKILL);
    int status = 0;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& shown() const { return shown_; }

 private:
  bool read(int milliseconds = 60000) {
    pollfd waiting{file_, POLLIN, 0};
    if (::poll(&waiting, 1, milliseconds) <= 0) return false;
    char bytes[4096];
    const ssize_t count = ::read(file_, bytes, sizeof bytes);
    if (count > 0) shown_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  int file_ = -1;
  pid_t child_ = -1;
  siginfo_t ended_{};
  std::string shown_;
};

TEST_F(Cli, LinesOfAConversationAreEditedAndRemembered) {
  const bool edits = DynamicLibrary({"libedit.so.2"}).opened();
  EXPECT_EQ(run("doctor").out.find("libedit     edits lines in temper chat\n") != std::string::npos, edits);
  if (!edits) GTEST_SKIP() << "libedit is not installed";
  Terminal terminal("chat " + folder() + "/model -n 2");
  terminal.wait_for("> ", 1);
  terminal.type("/wrog\x1b[D\x1b[Dn\r");  // two to the left
  terminal.wait_for("unknown command '/wrnog'", 1);
  terminal.type("\x1b[A\r");  // the line before
  terminal.wait_for("unknown command '/wrnog'", 2);
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_code(), 0) << terminal.shown();
}

TEST_F(Cli, WordsThatBeginWithASlashAreCommands) {
  const std::string chat = "chat " + folder() + "/model -n 2";
  const Outcome unknown = run(chat, "/quti\n");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err, "temper: unknown command '/quti'; there are /adapter, /clear, /help, /quit\n");
  const Outcome quit = run(chat, "/quit\nWhat is 1 + 1?\n");
  EXPECT_EQ(quit.code, 0);
  EXPECT_EQ(quit.out, "");
  const Outcome path = run(chat, "/etc/hosts is what?\n");  // a message
  EXPECT_EQ(path.code, 0) << path.err;
  EXPECT_NE(path.out, "");
  const Outcome help = run(chat, "/help\n");
  size_t begin = 0;
  for (size_t end; (end = help.err.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 80u) << help.err;
}

TEST_F(Cli, APromptMayComeThroughAPipeOrBeEmpty) {
  const std::string generate = "generate " + folder() + "/model --greedy -n 4";
  const Outcome piped = run(generate, "What is 1 + 1?\n");
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out, run(generate + " -p 'What is 1 + 1?'").out);
  EXPECT_NE(piped.err.find(", 4 new tokens; stopped at --max-new-tokens\n"), std::string::npos) << piped.err;
  EXPECT_NE(run(generate + "0 -p x").err.find(" new tokens at "), std::string::npos);
  const Outcome empty = run(generate + " -p ''");
  EXPECT_EQ(empty.code, 0) << empty.err;
  expect_refused(generate, 2, "[generate] there is no prompt; give --prompt or --prompt-file, or pipe it in");
  expect_refused(generate + " -p '' --prompt-file x", 2, "give one of --prompt and --prompt-file, not both");
  expect_refused("generate " + folder() + "/model -p x -n abc", 2,
                 "option --max-new-tokens is 'abc'; expected an integer");
  expect_refused("generate " + folder() + "/model -p x -t hot", 2,
                 "option --temperature is 'hot'; expected a number");
}

TEST_F(Cli, NumbersOfThreadsAreBounded) {
  for (const char* command : {"generate ", "batch --out x ", "compare-logprobs "})
    expect_refused(std::string(command) + folder() + "/model " + (command[0] == 'g' ? "-p x" : yaml()) +
                       " --threads 100000",
                   2, "[--threads] 100000 is out of range; expected 0 to 1024");
  expect_refused("generate " + folder() + "/model -p x --threads 99999999999", 2, "expected 0 to 1024");
  expect_refused("train " + yaml() + " --train.threads 100000 --dry-run", 2,
                 "'train.threads': expected an integer at least 0 and at most 1024, found '100000'");
  ::setenv("OMP_NUM_THREADS", "100000", 1);
  expect_refused("doctor", 2, "[OMP_NUM_THREADS] is 100000; expected at most 1024");
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_F(Cli, InitTakesTheFileItself) {
  const std::string source = folder() + "/qwen3-tiny";
  const Outcome made = run("init " + source + "/config.json " + folder() + "/by_file");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(exists(folder() + "/by_file/tokenizer.json"));
  expect_refused("init " + source + "/tokenizer.json " + folder() + "/of_a_file", 2,
                 "/tokenizer.json] is not a folder; expected one with config.json");
}

// The model has 512 positions.
TEST_F(Cli, RowsAreAsLongAsTheModelAllowsWhereNothingIsWritten) {
  const std::string plain = folder() + "/no_length.yaml";
  write_file(plain, "model: {path: " + folder() + "/model}\ndata: {train: " + folder() +
                        "/train.jsonl}\ntrain: {steps: 1, rows_per_step: 1}\noutput: " + folder() +
                        "/no_length\n");
  const Outcome dry = run("train " + plain + " --dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  const Outcome trained = run("train " + plain);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(read_file(folder() + "/no_length/config.yaml").find("  max_length: 512\n"), std::string::npos);
  const Outcome resumed = run("train " + plain + " --train.steps 2");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  expect_refused("train " + plain + " --data.train " + folder() + "/never_written.jsonl", 2,
                 "never_written.jsonl] no such file");
  expect_refused("train " + plain + " --data.max_length 1024", 2, "max_position_embeddings is 512");
  EXPECT_EQ(run("quantize --model.path " + folder() + "/model --quantize.preset INT8_WEIGHT_ONLY --output " +
                folder() + "/w8")
                .code,
            0);
  // The run's folder means its configuration.
  EXPECT_EQ(run("ops " + folder() + "/no_length").code, 0);
  const Outcome of_run = run("data inspect " + folder() + "/no_length --summary");
  EXPECT_EQ(of_run.code, 0) << of_run.err;
  EXPECT_EQ(of_run.out, run("data inspect " + plain + " --summary").out);
}

TEST_F(Cli, FilesThatStoreNothingAreNotForRuns) {
  expect_refused("train " + yaml() + " --output /proc/temper --dry-run", 2, "[output] '/proc/temper' ");
  const Outcome refused = run("train " + yaml() + " --output /proc/temper");
  EXPECT_EQ(refused.err.find("free some space"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace temper
