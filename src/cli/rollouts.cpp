#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/arguments/program.h"
#include "recipes/grpo/answers/journal.h"

namespace temper::cli {
namespace {

struct ShowArguments {
  std::string run;
  int64_t rollout = -1, most = 4;
  bool best = false, worst = false;
};

struct Samples {
  int64_t first = 0, last = 0;  // rollouts that there are
  int64_t rollout = 0;
  std::vector<Json> lines;  // of this one
};

[[noreturn]] void fail_without_rollouts(const std::string& run) {
  std::vector<std::string> adapters;
  const std::string folder = join_path(run, "adapters");
  if (is_directory(folder))
    for (const std::string& name : list_directory(folder))
      if (!recipes::Journal::files_of(join_path(folder, name)).empty())
        adapters.push_back(join_path(folder, name));
  fail("[rollouts show] '{}' has no rollouts.jsonl; give {}", run,
       adapters.empty() ? "the folder of a run with recipe grpo" : "an adapter's folder: " + join(adapters));
}

// Of the rollout that is wanted, or (negative) of the newest one.
Samples read_samples(const std::string& run, int64_t wanted) {
  const std::vector<std::string> files = recipes::Journal::files_of(run);
  if (files.empty()) fail_without_rollouts(run);
  std::set<int64_t> rollouts;
  for (const std::string& file : files)
    recipes::Journal::for_each_line(
        file, [&](const recipes::Journal::Line& line) { rollouts.insert(line.rollout()); });
  if (rollouts.empty()) fail("[rollouts show] the files of '{}' have no samples yet", run);
  Samples samples{*rollouts.begin(), *rollouts.rbegin(), wanted < 0 ? *rollouts.rbegin() : wanted, {}};
  for (const std::string& file : files)
    recipes::Journal::for_each_line(file, [&](const recipes::Journal::Line& line) {
      if (line.rollout() != samples.rollout) return;
      Json parsed = line.parse();
      if (parsed.find("passages") == nullptr) return;
      recipes::sample_from(parsed);  // an Error where something is missing
      samples.lines.push_back(std::move(parsed));
    });
  return samples;
}

double reward_of(const Json& sample) {
  return sample.at("reward").is_null() ? -INFINITY : sample.at("reward").as_double();
}

// On one line, and not too long.
std::string on_a_line(std::string text, size_t most) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\n");
  return shortened(text, most);
}

// The mean, over sampled tokens, of the probability that top_k, top_p and min_p kept; nothing where they
// left none out.
std::string mean_kept(const std::vector<Json>& samples) {
  double mass = 0, tokens = 0;
  bool cut = false;
  for (const Json& sample : samples)
    for (const Json& passage : sample.at("passages").as_array()) {
      const Json* const kept = passage.find("kept");
      const Json::Array& sampled = passage.at("sampled").as_array();
      cut = cut || kept != nullptr;
      for (size_t i = 0; i < sampled.size(); ++i) {
        if (sampled[i].as_int() == 0) continue;
        mass += kept == nullptr ? 1 : std::exp(kept->as_array().at(i).as_double());
        ++tokens;
      }
    }
  return cut ? fmt::format(", top_k, top_p and min_p kept {:.4g} % of the probability", 100 * mass / tokens)
             : "";
}

void show_summary(int64_t rollout, const std::vector<Json>& samples) {
  double reward = 0, judged = 0, cut = 0;
  std::map<int64_t, std::pair<double, double>> groups;
  for (const Json& sample : samples) {
    cut += sample.at("finish").as_string() != "stop";
    if (sample.at("reward").is_null()) continue;
    const double own = reward_of(sample);
    reward += own;
    ++judged;
    auto [group, fresh] = groups.try_emplace(sample.at("group").as_int(), own, own);
    group->second = {std::min(group->second.first, own), std::max(group->second.second, own)};
  }
  const auto flat = std::count_if(groups.begin(), groups.end(), [](const auto& group) {
    return group.second.first == group.second.second;
  });
  const auto count = static_cast<double>(samples.size());
  std::printf(
      "%s", fmt::format(
                "rollout {}: {} answers to {} prompts, reward {:.4g}{}, {:.0f} % cut off, {} of the prompts "
                "with one reward for all answers{}\n",
                rollout, samples.size(), groups.size(), judged == 0 ? 0 : reward / judged,
                judged < count ? fmt::format(" ({:.0f} not judged)", count - judged) : "", 100 * cut / count,
                flat, mean_kept(samples))
                .c_str());
}

int show(const ShowArguments& arguments) {
  if (arguments.best && arguments.worst)
    fail("[rollouts show] --best and --worst exclude each other; give one");
  Samples found = read_samples(arguments.run, arguments.rollout);
  if (found.lines.empty())
    fail("[--rollout] {} is not there; '{}' has {} to {}", found.rollout, arguments.run, found.first,
         found.last);
  std::vector<Json> samples = std::move(found.lines);
  std::stable_sort(samples.begin(), samples.end(), [&](const Json& a, const Json& b) {
    if (arguments.best) return reward_of(a) > reward_of(b);
    if (arguments.worst) return reward_of(a) < reward_of(b);
    return std::pair(a.at("group").as_int(), a.at("sample").as_int()) <
           std::pair(b.at("group").as_int(), b.at("sample").as_int());
  });
  show_summary(found.rollout, samples);
  std::string place;
  for (int64_t i = 0; i < std::min<int64_t>(arguments.most, std::ssize(samples)); ++i) {
    const Json& sample = samples[static_cast<size_t>(i)];
    if (const std::string& own = sample.at("place").as_string(); own != place) {
      place = own;
      print_line("{}  {}", own, on_a_line(sample.at("question").as_string(), 120));
    }
    const std::string reward =
        sample.at("reward").is_null() ? "none" : fmt::format("{:.4g}", reward_of(sample));
    print_line("  {:>8}  {:<7} {}", reward, sample.at("finish").as_string(),
               on_a_line(sample.at("text").as_string(), 200));
  }
  return 0;
}

}  // namespace

void add_rollouts_show(Program& program) {
  program.add("rollouts show", "Show what a run's model answered, and what the answers were worth.",
              [](Options& options) {
                auto arguments = std::make_shared<ShowArguments>();
                options.positional("run", arguments->run, "The folder of a run with recipe grpo.");
                options.option("--rollout", arguments->rollout,
                               "Its number, counted from 0. Omitted: the newest.");
                options.option("--most", arguments->most, "Answers to show, at most. Omitted: 4.");
                options.flag("--best", arguments->best, "Those with the highest rewards first.");
                options.flag("--worst", arguments->worst, "Those with the lowest rewards first.");
                return [arguments] { return show(*arguments); };
              });
}

}  // namespace temper::cli
