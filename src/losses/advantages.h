#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace temper::losses {

// What is subtracted from an answer's reward: the mean of its group (the answers to one prompt), the mean of
// the group's other answers, the mean of the batch, nothing.
enum class Baseline { kGroupMean, kLeaveOneOut, kBatchMean, kNone };

// What the difference is divided by: the rewards' deviation in the group or in the batch, plus eps; nothing;
// the deviation of the differences themselves in the batch, plus eps.
enum class AdvantageScale { kGroup, kBatch, kNone, kBatchDifferences };

struct AdvantageOptions {
  Baseline baseline = Baseline::kGroupMean;
  AdvantageScale scale = AdvantageScale::kGroup;
  double eps = 1e-4;
};

struct Advantages {
  std::vector<double> values;
  int64_t groups_without_spread = 0;  // whose advantages are 0, because nothing in them tells answers apart
};

// A = (reward - baseline) / (deviation + eps) of answers in groups of `per_group` that follow one another.
// Deviations are unbiased (n - 1). Mean and deviation of the group: Shao et al., "DeepSeekMath", 2024,
// section 4.1.2; no deviation: Liu et al., "Understanding R1-Zero-Like Training: A Critical Perspective",
// 2025, section 3.2; the other answers' mean: Ahmadian et al., "Back to Basics: Revisiting REINFORCE-Style
// Optimization for Learning from Human Feedback in LLMs", 2024, section 2.2; the batch's deviation: Liu et
// al., "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning", 2025, section 4.1; that of
// differences from the group's mean: Hu et al., "REINFORCE++", 2025, the variant with a baseline. A reward
// that is NaN belongs to an answer that is left out: it keeps its place in its group, counts in no statistic,
// and has advantage 0. Where baseline or scale are of the group, a group has advantages of exactly 0 and is
// counted if its rewards are all equal, by comparison and not by their deviation, which rounding makes tiny
// but not 0, or if it has fewer than two of them. A whole batch without spread is treated alike where
// baseline or scale are of the batch. An Error "[advantages] …": answers that are not whole groups; groups of
// one answer with a baseline or scale of the group, which would train nothing; an infinite reward.
Advantages advantages(const AdvantageOptions& options, std::span<const double> rewards, int64_t per_group);

}  // namespace temper::losses
