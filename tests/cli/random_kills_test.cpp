// Learning from rewards, killed at random moments and gone on with: what it leaves is what a run that was
// never killed leaves, bit for bit. All weights by conversations, an adapter with evaluations, and two ranks,
// in turns. TEMPER_KILLS: how many runs are killed, none without it (make nightly); TEMPER_KILL_SEED: the
// seed of the first.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

constexpr size_t kAnswers = 12;  // of a rollout

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int number_of(const char* variable, int otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

class RandomKills : public GrpoCli {
 protected:
  // An environment that answers twice, and a judge then. Answers end at letters and digits, which are common.
  static std::string conversations(const std::string& name, const std::string& keys,
                                   const std::string& more) {
    write_file(folder() + "/twice.py",
               "import json, sys\n"
               "for line in sys.stdin:\n"
               "    asked = json.loads(line)\n"
               "    turns = sum(m['role'] == 'assistant' for m in asked['messages'])\n"
               "    said = {'messages': [{'role': 'user', 'content': 'Sure?'}], 'reward': turns / 8} if "
               "turns < 3 \\\n"
               "        else {'reward': len(asked['text']) / 10}\n"
               "    print(json.dumps({'id': asked['id'], **said}), flush=True)\n");
    const std::string path =
        configuration(name,
                      "  stop: [a, b, c, d, e, f, g, h, i, k, l, m, n, o, p, r, s, t, u, x, '1', '2', '5', "
                      "'9']\n  rewards: [{type: program, command: [python3, " +
                          folder() + "/twice.py], processes: 2}]\n  updates_per_rollout: 2\n" + keys,
                      more);
    std::string text = read_file(path);
    text.replace(text.find("group_size: 4"), 13, "group_size: 3");
    text.replace(text.find("max_length: 48"), 14, "max_length: 96");
    text.replace(text.find("{every_steps: 2}"), 16, "{every_steps: 1, keep_last: 2}");
    write_file(path, text);
    return path;
  }

  // What is trained, and where that leaves its files.
  struct Kind {
    std::string name, config, flags = {}, folder = {};
    bool of_ranks = false;
    double seconds = 0;  // that it takes
  };
  static std::vector<Kind> kinds() {
    const std::string held = " --data.eval [" + folder() + "/held.jsonl] --eval.every_steps 2";
    return {{"conversations", conversations("random_kills", "", "")},
            {"adapter",
             conversations("random_kills_adapter", "  kl: {beta: 0.1}\n", "adapters: [{name: a, rank: 4}]\n"),
             held, "/adapters/a"},
            {"ranks", conversations("random_kills_ranks", "", ""), held + " --ranks 2 --parallel.tensor 2",
             "", true}};
  }

  // How a run is killed: some seconds after its start, or at a call (kill_at.c).
  struct Moment {
    double seconds = -1;
    std::string call, file;
    int count = 0;

    std::string text() const {
      return seconds >= 0 ? fmt::format("after {:.3f} s", seconds)
                          : fmt::format("at call {} of {} of '{}'", count, call, file);
    }
  };

  // Half of them by the clock, which may be anywhere; the others at the calls by which what is known becomes
  // durable.
  static Moment random_moment(std::mt19937& random, const Kind& kind) {
    const auto below = [&](int most) { return std::uniform_int_distribution(0, most - 1)(random); };
    // Of several ranks one is killed, at a call, and not what has started them.
    if (!kind.of_ranks && below(2) == 0)
      return {std::uniform_real_distribution(0.0, kind.seconds)(random), "", "", 0};
    switch (below(5)) {
      case 0:
        return {-1, "write", "rollouts.jsonl", 1 + below(60)};
      case 1:
        return {-1, "write", "metrics.jsonl", 1 + below(6)};
      case 2:
        return {-1, "write", ".tmp-step-", 1 + below(12)};
      case 3:
        return {-1, "fsync", ".tmp-step-", 1 + below(12)};
      default:
        return {-1, "rename", "step-", 1 + below(6)};
    }
  }

  // Whether it was killed before its end.
  static bool run_and_kill(const Kind& kind, const std::string& out, bool async, const Moment& moment) {
    const std::string library = kill_library(),
                      command =
                          fmt::format("exec {} train {} --output {} --checkpoint.async {}{} 2>/dev/null",
                                      TEMPER_BINARY, kind.config, out, async, kind.flags);
    const pid_t child = ::fork();
    if (child == 0) {
      if (moment.seconds < 0) {
        ::setenv("LD_PRELOAD", library.c_str(), 1);
        ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
        ::setenv("KILL_CALL", moment.call.c_str(), 1);
        ::setenv("KILL_FILE", moment.file.c_str(), 1);
        ::setenv("KILL_COUNT", std::to_string(moment.count).c_str(), 1);
      }
      ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    if (moment.seconds >= 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(moment.seconds));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    // 4: a rank was killed.
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0 ||
                (kind.of_ranks && WEXITSTATUS(status) == 4))
        << WEXITSTATUS(status);
    return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
  }

  // What the run was at, by what it left.
  static std::string place_of(const std::string& out) {
    if (!exists(out + "/rollouts.jsonl")) return "before the first rollout";
    if (exists(out + "/checkpoints"))
      for (const std::string& name : list_directory(out + "/checkpoints"))
        if (name.find(".tmp") != std::string::npos) return "in a checkpoint's write";
    std::map<int64_t, size_t> answers, scored;
    const std::string text = read_file(out + "/rollouts.jsonl");
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const Json line = Json::parse(std::string_view(text).substr(begin, end - begin), "rollouts");
      ++(line.find("passages") != nullptr ? answers : scored)[line.at("rollout").as_int()];
    }
    if (answers.empty()) return "in a rollout";
    const auto [newest, count] = *answers.rbegin();
    if (count < kAnswers) return "in a rollout";
    if (scored[newest] < kAnswers) return "between a rollout and its scores";
    const auto updates = static_cast<int64_t>(exists(out + "/metrics.jsonl") ? losses(out).size() : 0);
    return updates <= 2 * newest ? "between a rollout and its first update"
                                 : "between updates, or in the next rollout's first turns";
  }

  // All lines, in an order of their own: answers are written as they come.
  static std::vector<std::string> sorted_lines(const std::string& file) {
    std::vector<std::string> lines;
    for (const Json& line : rollouts(file)) lines.push_back(line.dump());
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  // Without what a clock or the work that was left says.
  static std::vector<std::string> known_metrics(const std::string& out) {
    static const std::set<std::string, std::less<>> kOfWork{
        "rollout_seconds", "rollout_tokens_per_second", "reward_seconds",
        "scoring_seconds", "prompt_tokens_found",       "mfu"};
    std::vector<std::string> lines;
    for (const Json& line : metrics(out)) {
      Json::Object kept;
      for (const auto& [key, value] : line.as_object())
        if (!kOfWork.contains(key) && key.find("second") == std::string::npos &&
            key.find("memory") == std::string::npos)
          kept.emplace_back(key, value);
      lines.push_back(Json(std::move(kept)).dump());
    }
    return lines;
  }

  static void expect_equal_lines(const std::vector<std::string>& found,
                                 const std::vector<std::string>& expected) {
    EXPECT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
      if (found[i] != expected[i]) {
        ADD_FAILURE() << found[i] << "\n" << expected[i];
        break;
      }
  }
  static void expect_equal(const std::string& out, const std::string& whole) {
    expect_equal_lines(known_metrics(out), known_metrics(whole));
    expect_equal_lines(sorted_lines(out + "/rollouts.jsonl"), sorted_lines(whole + "/rollouts.jsonl"));
    std::vector<std::string> files;
    for (const char* folder : {"/model", "/adapter", "/best", "/checkpoints/step-000006"})
      if (exists(whole + folder))
        for (const std::string& name : list_directory(whole + folder))
          if (name.ends_with(".safetensors")) files.push_back(fmt::format("{}/{}", folder, name));
    EXPECT_GE(files.size(), 2u);
    for (const std::string& file : files)
      EXPECT_TRUE(read_file(out + file) == read_file(whole + file)) << file;
  }

  static Kind trained_whole(Kind kind) {
    const auto start = std::chrono::steady_clock::now();
    const std::string whole = trained(kind.config, "never_killed_" + kind.name, kind.flags);
    kind.seconds = seconds_since(start);
    int64_t turns = 0;
    for (const Json& line : rollouts(whole + kind.folder + "/rollouts.jsonl"))
      if (line.find("passages") != nullptr) turns = std::max(turns, line.at("turns").as_int());
    EXPECT_EQ(turns, 3);
    return kind;
  }
};

TEST_F(RandomKills, ChangeNothing) {
  const int kills = number_of("TEMPER_KILLS", 0);
  if (kills == 0) GTEST_SKIP() << "slow: TEMPER_KILLS says how many runs are killed (make nightly)";
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const auto seed = static_cast<uint32_t>(
      number_of("TEMPER_KILL_SEED", static_cast<int>(std::random_device()() % 1000000)));
  std::vector<Kind> all;
  for (const Kind& kind : kinds()) all.push_back(trained_whole(kind));

  std::map<std::string, int> places;
  int killed = 0, twice = 0;
  for (uint32_t i = 0; killed < kills && i < static_cast<uint32_t>(4 * kills); ++i) {
    std::mt19937 random(seed + i);
    const Kind& kind = all[i % all.size()];
    const std::string out = folder() + "/random_kill";
    remove_all(out);
    const bool async = i % 4 >= 2;  // checkpoints are written during updates
    std::string how = kind.name + (async ? ", checkpoints during updates" : "");
    bool ended = true;
    // Every second run is resumed and killed again.
    for (int times = i % 2 == 1 ? 2 : 1; times > 0; --times) {
      const Moment moment = random_moment(random, kind);
      how += ", then " + moment.text();
      if (!run_and_kill(kind, out, async, moment)) break;
      twice += !ended;
      ended = false;
      ++places[place_of(out + kind.folder)];
    }
    if (ended) continue;  // it had ended by then
    ++killed;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed + i, how));
    const Outcome resumed = run("train " + kind.config + " --output " + out + kind.flags);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    expect_equal(out + kind.folder, folder() + "/never_killed_" + kind.name + kind.folder);
    if (HasFailure()) break;  // what it left stays to be looked at
  }
  std::string said = fmt::format("{} runs killed (seeds from {}), {} of them twice:\n", killed, seed, twice);
  for (const auto& [place, count] : places) said += fmt::format("  {:3} {}\n", count, place);
  std::printf("%s", said.c_str());
  EXPECT_EQ(killed, kills);
}

}  // namespace
}  // namespace temper
