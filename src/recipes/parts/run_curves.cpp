#include "recipes/parts/run_curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/files.h"

namespace temper::recipes {
namespace {

using reports::LossSeries;
using reports::PlotPoint;

// A panel of the picture: the value of updates in metrics.jsonl, that of evaluations, and what they are.
struct Shown {
  const char *train, *eval, *label;
};
constexpr std::array<Shown, 4> kShown{{{"reward", "eval_reward", "reward"},
                                       {"loss", "eval_loss", "loss"},
                                       {"reward_margin", "eval_reward_margin", "margin"},
                                       {"reward_accuracy", "eval_reward_accuracy", "accuracy"}}};

}  // namespace

RunCurves::RunCurves(const std::string& metrics_file) {
  const std::string text = read_file(metrics_file);
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const Json line = Json::parse(std::string_view(text).substr(begin, end - begin), metrics_file);
    const double step = line.at("step").as_double();
    for (const Shown& shown : kShown)
      for (const char* const name : {shown.train, shown.eval})
        if (const Json* value = line.find(name); value != nullptr && value->is_number())
          points_[name].push_back({step, value->as_double()});
  }
}

Json RunCurves::span_of(const std::string& name) const {
  const auto found = points_.find(name);
  if (found == points_.end()) return {};
  const std::vector<PlotPoint>& points = found->second;
  const PlotPoint best = *std::max_element(
      points.begin(), points.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.value < b.value; });
  return Json::Object{{"first", with_six_digits(points.front().value)},
                      {"last", with_six_digits(points.back().value)},
                      {"best", with_six_digits(best.value)},
                      {"best_step", static_cast<int64_t>(best.step)}};
}

void RunCurves::draw(const std::string& file, const std::string& title) const {
  std::vector<reports::Panel> panels;
  for (const Shown& shown : kShown) {
    reports::Panel panel{shown.label, {}};
    const auto add = [&](const char* name, const char* of, LossSeries::Style style) {
      if (const auto found = points_.find(name); found != points_.end())
        panel.series.push_back({fmt::format("{} {}", of, shown.label), found->second, style});
    };
    add(shown.train, "training", LossSeries::Style::kTrain);
    add(shown.eval, "evaluation", LossSeries::Style::kEval);
    if (!panel.series.empty() || panel.label == "loss") panels.push_back(std::move(panel));
  }
  reports::write_curves(file, title, panels);
}

double with_six_digits(double value) { return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr); }

}  // namespace temper::recipes
