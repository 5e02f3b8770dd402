#include "recipes/commands/plan_report.h"

#include <algorithm>

#include "base/text.h"

namespace temper::recipes {
namespace {

const char* name_of(Source source) { return source == Source::kMeasured ? "measured" : "computed"; }

double tokens_per_second(const LayoutPlan& plan, const LayoutCost& cost) {
  return plan.update.tokens / cost.seconds;
}

double share_of_peak(const LayoutPlan& plan, const LayoutCost& cost) {
  const Machine& machine = plan.machine.machine;
  const double devices = machine.shares_cores ? static_cast<double>(plan.ranks) / plan.machine.ranks_of_host
                                              : static_cast<double>(plan.ranks);
  return machine.peak_flops == 0 ? 0 : plan.update.flops / cost.seconds / devices / machine.peak_flops;
}

std::string describe_sources(const LayoutPlan& plan) {
  const Machine& machine = plan.machine.machine;
  std::string text = fmt::format("times          ops {}", name_of(machine.ops_source));
  if (plan.ranks > 1) text += fmt::format("; ranks of one host {}", name_of(machine.host.source));
  if (plan.ranks > plan.machine.ranks_of_host)
    text += fmt::format("; ranks of other hosts {}", name_of(machine.network.source));
  return text + "; memory computed (rehearsed)\n";
}

std::string describe_counts(const LayoutPlan& plan) {
  std::string text = fmt::format("layouts        {} possible, {} rehearsed: {} fit", plan.possible,
                                 plan.fits + plan.too_large, plan.fits);
  if (plan.cannot_fit > 0)
    text += fmt::format("; {} cannot fit (weights, gradients and states alone)", plan.cannot_fit);
  if (plan.slower > 0) text += fmt::format("; {} cannot be faster than those listed", plan.slower);
  text += "\n";
  if (plan.left > 0)
    text += fmt::format(
        "               {} more are expected to be slower and were not rehearsed (--rehearse)\n", plan.left);
  if (plan.refused + plan.idle > 0)
    text += fmt::format(
        "               others: {} refused for the model or the run, {} with more ranks than "
        "rows of an update\n",
        plan.refused, plan.idle);
  if (plan.refused > 0) text += fmt::format("               one of those refused: {}\n", plan.why_refused);
  if (plan.smallest_too_large)
    text += fmt::format("               of those that do not fit, {} needs least: {} of {}\n",
                        to_string(plan.smallest_too_large->layout),
                        format_bytes(plan.smallest_too_large->memory), format_bytes(plan.limit));
  return text;
}

std::string line_of(const LayoutPlan& plan, const LayoutCost& cost, size_t width) {
  const double speed = tokens_per_second(plan, cost), share = share_of_peak(plan, cost);
  return fmt::format("{:<{}}  {:>10} {:>9} {:>7} {:>6} {:>10} {:>10} {:>9} {:>8}  {}\n",
                     to_string(cost.layout), width, format_bytes(cost.memory),
                     fmt::format("{:.4g} s", cost.seconds), fmt::format("{:.1f} %", 100 * cost.bubble),
                     fmt::format("{:.1f} %", 100 * cost.waiting),
                     format_bytes(static_cast<int64_t>(cost.to_host + cost.to_network)),
                     fmt::format("{:.0f}", speed), fmt::format("{:.0f}", speed / plan.ranks),
                     share == 0 ? "-" : fmt::format("{:.1f} %", 100 * share), name_of(cost.source));
}

}  // namespace

std::string describe(const LayoutPlan& plan) {
  const Machine& machine = plan.machine.machine;
  std::string text = fmt::format(
      "model          {:.1f} M parameters\nupdate         {:.0f} rows, {:.0f} tokens, {}\nranks          {} "
      "of "
      "{}, {} on each host; each may use {}\n",
      plan.elements / 1e6, plan.update.rows, plan.update.tokens,
      plan.has_rows ? "documents as in data.train" : "documents as long as rows", plan.ranks,
      machine.facts.name, plan.machine.ranks_of_host, format_bytes(plan.limit));
  text += describe_sources(plan) + describe_counts(plan) + "\n";
  size_t width = 6;
  for (const LayoutCost& cost : plan.best) width = std::max(width, to_string(cost.layout).size());
  text +=
      fmt::format("{:<{}}  {:>10} {:>9} {:>7} {:>6} {:>10} {:>10} {:>9} {:>8}  {}\n", "layout", width,
                  "memory", "update", "bubble", "waits", "sent", "tokens/s", "a rank", "of peak", "times");
  for (const LayoutCost& cost : plan.best) text += line_of(plan, cost, width);
  const std::string flags = flags_of(plan.best.front().layout);
  return text + fmt::format("\nuse the first with: temper train RUN.yaml --ranks {}{}{}\n", plan.ranks,
                            flags.empty() ? "" : " ", flags);
}

Json to_json(const LayoutPlan& plan) {
  const Machine& machine = plan.machine.machine;
  Json::Array layouts;
  for (const LayoutCost& cost : plan.best) {
    const auto figure = [](double value, Source source) {
      return Json(Json::Object{{"value", value}, {"source", name_of(source)}});
    };
    const auto timed = [&](double value) { return figure(value, cost.source); };
    Json::Object degrees;
    for (const MeshAxis& axis : kMeshAxes) degrees.emplace_back(axis.name, cost.layout.mesh.*axis.degree);
    degrees.emplace_back("shard_level", cost.layout.mesh.shard_level);
    degrees.emplace_back("context_method", temper::name_of(cost.layout.mesh.context_method));
    if (cost.layout.mesh.context_heads > 0)
      degrees.emplace_back("context_heads", cost.layout.mesh.context_heads);
    degrees.emplace_back("pipeline", cost.layout.pipeline);
    degrees.emplace_back("pipeline_chunks", cost.layout.chunks);
    const double speed = tokens_per_second(plan, cost);
    layouts.emplace_back(Json::Object{{"parallel", std::move(degrees)},
                                      {"flags", flags_of(cost.layout)},
                                      {"memory", figure(static_cast<double>(cost.memory), Source::kComputed)},
                                      {"update_seconds", timed(cost.seconds)},
                                      {"bubble", timed(cost.bubble)},
                                      {"waiting", timed(cost.waiting)},
                                      {"sent_to_host", figure(cost.to_host, Source::kComputed)},
                                      {"sent_to_network", figure(cost.to_network, Source::kComputed)},
                                      {"tokens_per_second", timed(speed)},
                                      {"tokens_per_second_of_rank", timed(speed / plan.ranks)},
                                      {"share_of_peak", timed(share_of_peak(plan, cost))}});
  }
  return Json::Object{{"machine", machine.facts.name},
                      {"ranks", plan.ranks},
                      {"ranks_of_host", plan.machine.ranks_of_host},
                      {"memory_limit", plan.limit},
                      {"update", Json::Object{{"rows", plan.update.rows},
                                              {"tokens", plan.update.tokens},
                                              {"flops", plan.update.flops}}},
                      {"counts", Json::Object{{"possible", plan.possible},
                                              {"refused", plan.refused},
                                              {"without_rows", plan.idle},
                                              {"cannot_fit", plan.cannot_fit},
                                              {"rehearsed", plan.fits + plan.too_large},
                                              {"fit", plan.fits},
                                              {"cannot_be_faster", plan.slower},
                                              {"not_rehearsed", plan.left}}},
                      {"layouts", std::move(layouts)}};
}

}  // namespace temper::recipes
