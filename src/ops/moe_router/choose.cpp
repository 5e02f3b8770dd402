#include "ops/moe_router/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace temper::ops {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// The places of the largest values, in descending order; of equal ones the first.
void largest(std::span<const float> values, std::span<int32_t> places) {
  size_t filled = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (filled == places.size() && !(values[i] > values[static_cast<size_t>(places.back())])) continue;
    size_t at = filled < places.size() ? filled++ : filled - 1;
    for (; at > 0 && values[i] > values[static_cast<size_t>(places[at - 1])]; --at)
      places[at] = places[at - 1];
    places[at] = static_cast<int32_t>(i);
  }
}

}  // namespace

ExpertChooser::ExpertChooser(const Routing& routing)
    : routing_(routing),
      choice_(static_cast<size_t>(routing.experts)),
      of_groups_(static_cast<size_t>(routing.groups)),
      best_groups_(static_cast<size_t>(routing.top_groups)) {}

void ExpertChooser::keep_best_groups() {
  const size_t size = choice_.size() / of_groups_.size();
  for (size_t g = 0; g < of_groups_.size(); ++g) {
    int32_t two[2];
    const std::span<const float> group(&choice_[g * size], size);
    largest(group, two);
    of_groups_[g] = group[static_cast<size_t>(two[0])] + group[static_cast<size_t>(two[1])];
  }
  largest(of_groups_, best_groups_);
  for (size_t e = 0; e < choice_.size(); ++e)
    if (std::find(best_groups_.begin(), best_groups_.end(), static_cast<int32_t>(e / size)) ==
        best_groups_.end())
      choice_[e] = kLeast;
}

void ExpertChooser::choose(std::span<const float> scores, std::span<const float> bias,
                           std::span<int32_t> ids) {
  for (size_t e = 0; e < choice_.size(); ++e) {
    const float value = bias.empty() ? scores[e] : scores[e] + bias[e];
    choice_[e] = std::isnan(value) ? kLeast : value;
  }
  if (routing_.groups > 1) keep_best_groups();
  largest(choice_, ids);
}

}  // namespace temper::ops
