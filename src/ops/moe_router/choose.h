#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/moe_router/moe_router.h"

namespace temper::ops {

// Chooses experts of tokens, one after the other, on the CPU. What is no number counts as the smallest score.
class ExpertChooser {
 public:
  explicit ExpertChooser(const Routing& routing);
  // scores [experts]; bias [experts], or empty; ids [top_k] are written.
  void choose(std::span<const float> scores, std::span<const float> bias, std::span<int32_t> ids);

 private:
  void keep_best_groups();

  Routing routing_;
  std::vector<float> choice_, of_groups_;
  std::vector<int32_t> best_groups_;
};

}  // namespace temper::ops
