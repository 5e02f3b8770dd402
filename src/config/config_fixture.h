#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"

// The configuration that the tests of this folder share.
namespace temper::config::fixture {

enum class Mode { kSft, kGrpo };
enum class Metric { kLoss, kReward };

struct Optimizer {
  double lr = 1e-5;
  std::array<double, 2> betas{0.9, 0.95};
  std::optional<double> clip;
  int warmup = 10;
  bool operator==(const Optimizer&) const = default;
};
struct Source {
  std::string path;
  double weight = 1;
  std::vector<std::string> columns;
  bool operator==(const Source&) const = default;
};
struct Train {
  Optimizer optimizer;
  int64_t steps = 1000;
  bool compile = false;
  Mode mode = Mode::kSft;
  std::optional<Mode> fallback;
  std::vector<Metric> metrics{Metric::kLoss};
  bool operator==(const Train&) const = default;
};
struct RunConfig {
  std::string name = "run";
  std::optional<std::string> note;
  std::vector<int64_t> buckets{128, 512};
  std::vector<bool> switches;
  int precision = 16;
  Train train;
  std::vector<Source> sources;
  bool operator==(const RunConfig&) const = default;
};

inline void describe(Schema& s, Optimizer& c) {
  s.field("lr", c.lr, "peak learning rate").above(0);
  s.field("betas", c.betas, "decay of the moments").at_least(0).below(1);
  s.field("clip", c.clip, "largest gradient norm").above(0);
  s.field("warmup", c.warmup, "warm-up steps").at_least(0).at_most(1000);
}
inline void describe(Schema& s, Source& c) {
  s.field("path", c.path, "file to read").required();
  s.field("weight", c.weight, "share of the mixture").at_least(0);
  s.field("columns", c.columns, "columns to keep");
}
inline void describe(Schema& s, Train& c) {
  s.group("optimizer", c.optimizer, "how weights change");
  s.field("steps", c.steps, "number of steps").at_least(0);
  s.field("compile", c.compile, "whether to compile");
  s.choice("mode", c.mode, {{"sft", Mode::kSft}, {"grpo", Mode::kGrpo}}, "what to train with");
  s.choice("fallback", c.fallback, {{"sft", Mode::kSft}, {"grpo", Mode::kGrpo}},
           "what to train with otherwise");
  s.choice("metrics", c.metrics, {{"loss", Metric::kLoss}, {"reward", Metric::kReward}}, "what to report");
}
inline void describe(Schema& s, RunConfig& c) {
  s.field("name", c.name, "name of the run");
  s.field("note", c.note, "a remark");
  s.field("buckets", c.buckets, "lengths").at_least(1);
  s.field("switches", c.switches, "switches");
  s.field("precision", c.precision, "bits").one_of({16, 32});
  s.group("train", c.train, "training");
  s.list("sources", c.sources, "what to train on").shorthand("path");
}

}  // namespace temper::config::fixture
