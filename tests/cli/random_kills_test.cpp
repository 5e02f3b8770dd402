// Learning from rewards of conversations, killed at random moments and gone on with: what it leaves is what a
// run that was never killed leaves, bit for bit. TEMPER_KILLS: how many runs are killed; TEMPER_KILL_SEED:
// the seed of the first.
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

constexpr int kKills = 6;        // in half a minute
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

  // How a run is killed: so many seconds after its start, or at a call (kill_at.c).
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
  static Moment random_moment(std::mt19937& random, double whole_seconds) {
    const auto below = [&](int most) { return std::uniform_int_distribution(0, most - 1)(random); };
    if (below(2) == 0) return {std::uniform_real_distribution(0.0, whole_seconds)(random), "", "", 0};
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
  static bool run_and_kill(const std::string& config, const std::string& out, bool async,
                           const Moment& moment) {
    const std::string library = kill_library();
    const pid_t child = ::fork();
    if (child == 0) {
      if (moment.seconds < 0) {
        ::setenv("LD_PRELOAD", library.c_str(), 1);
        ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
        ::setenv("KILL_CALL", moment.call.c_str(), 1);
        ::setenv("KILL_FILE", moment.file.c_str(), 1);
        ::setenv("KILL_COUNT", std::to_string(moment.count).c_str(), 1);
      }
      ::freopen("/dev/null", "a", stderr);
      ::execl(TEMPER_BINARY, "temper", "train", config.c_str(), "--output", out.c_str(), "--checkpoint.async",
              async ? "true" : "false", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    if (moment.seconds >= 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(moment.seconds));
      ::kill(child, SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
    return WIFSIGNALED(status);
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
        "scoring_seconds", "prompt_tokens_found",       "peak_fraction"};
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
    for (const char* file : {"/model/model.safetensors", "/checkpoints/step-000006/optimizer.safetensors"})
      EXPECT_TRUE(read_file(out + file) == read_file(whole + file)) << file;
  }
};

TEST_F(RandomKills, ChangeNothing) {
  if (!has_invariant_kernels()) GTEST_SKIP() << "this processor has no batch-invariant kernels";
  const int kills = number_of("TEMPER_KILLS", kKills);
  const auto seed = static_cast<uint32_t>(
      number_of("TEMPER_KILL_SEED", static_cast<int>(std::random_device()() % 1000000)));
  const std::string config = conversations("random_kills", "", ""), whole = folder() + "/never_killed";
  const auto start = std::chrono::steady_clock::now();
  trained(config, "never_killed");
  const double seconds = seconds_since(start);
  int64_t turns = 0;
  for (const Json& line : rollouts(whole + "/rollouts.jsonl"))
    if (line.find("passages") != nullptr) turns = std::max(turns, line.at("turns").as_int());
  ASSERT_EQ(turns, 3);

  std::map<std::string, int> places;
  int killed = 0, twice = 0;
  for (uint32_t i = 0; killed < kills && i < static_cast<uint32_t>(4 * kills); ++i) {
    std::mt19937 random(seed + i);
    const std::string out = folder() + "/random_kill";
    remove_all(out);
    const bool async = i % 4 >= 2;  // checkpoints are written beside updates
    std::string how = async ? "checkpoints beside updates" : "";
    bool ended = true;
    // Every third goes on and is killed again.
    for (int times = i % 3 == 2 ? 2 : 1; times > 0; --times) {
      const Moment moment = random_moment(random, seconds);
      how += (how.empty() ? "" : ", then ") + moment.text();
      if (!run_and_kill(config, out, async, moment)) break;
      twice += !ended;
      ended = false;
      ++places[place_of(out)];
    }
    if (ended) continue;  // it had ended by then
    ++killed;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed + i, how));
    const Outcome resumed = run("train " + config + " --output " + out);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    expect_equal(out, whole);
    if (HasFailure()) break;  // what it left stays to be looked at
  }
  std::string said = fmt::format("{} runs killed (seeds from {}), {} of them twice:\n", killed, seed, twice);
  for (const auto& [place, count] : places) said += fmt::format("  {:3} {}\n", count, place);
  std::printf("%s", said.c_str());
  EXPECT_EQ(killed, kills);
}

}  // namespace
}  // namespace temper
