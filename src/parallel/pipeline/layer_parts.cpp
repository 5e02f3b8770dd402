#include "parallel/pipeline/layer_parts.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace temper::parallel {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

class Division {
 public:
  Division(const LayerCosts& costs, int parts)
      : costs_(costs), layers_(static_cast<int>(costs.layers.size())), parts_(parts), sums_{0} {
    for (const double cost : costs.layers) sums_.push_back(sums_.back() + cost);
  }

  // Of this part with these layers.
  double cost(int part, int first, int last) const {
    return sums_[static_cast<size_t>(last)] - sums_[static_cast<size_t>(first)] +
           (part == 0 ? costs_.embedding : 0) + (part == parts_ - 1 ? costs_.head : 0);
  }

  // best[k][l]: of the first k parts with the first l layers, by dynamic programming over k. `add` is what a
  // part's cost makes of the best of the parts before it.
  template <class Add>
  std::vector<LayerRange> best(const Add& add) const {
    const auto width = static_cast<size_t>(layers_) + 1;
    std::vector<double> before(width, kNone), now;
    std::vector<std::vector<int>> begins;  // of the last part of each
    before[0] = 0;
    for (int part = 0; part < parts_; ++part, before = now) {
      now.assign(width, kNone);
      std::vector<int>& begin = begins.emplace_back(width, -1);
      for (int last = part + 1; last <= layers_ - (parts_ - 1 - part); ++last)
        for (int first = part; first < last; ++first) {
          const double found = add(before[static_cast<size_t>(first)], cost(part, first, last));
          if (found > now[static_cast<size_t>(last)] || found == kNone) continue;
          now[static_cast<size_t>(last)] = found;
          begin[static_cast<size_t>(last)] = first;
        }
    }
    std::vector<LayerRange> ranges(static_cast<size_t>(parts_));
    int last = layers_;
    for (int part = parts_ - 1; part >= 0; --part) {
      const int first = begins[static_cast<size_t>(part)][static_cast<size_t>(last)];
      ranges[static_cast<size_t>(part)] = {first, last};
      last = first;
    }
    return ranges;
  }

  double largest(const std::vector<LayerRange>& ranges) const {
    double most = 0;
    for (int part = 0; part < parts_; ++part) {
      const auto [first, last] = ranges[static_cast<size_t>(part)];
      most = std::max(most, cost(part, first, last));
    }
    return most;
  }

 private:
  const LayerCosts& costs_;
  const int layers_, parts_;
  std::vector<double> sums_;  // of the layers before each
};

void check(const LayerCosts& costs, int stages, int chunks) {
  const auto layers = static_cast<int>(costs.layers.size());
  if (stages < 1 || chunks < 1)
    fail("[pipeline] {} stages of {} chunks; expected at least 1 of each", stages, chunks);
  const auto is_bad = [](double cost) { return !(cost >= 0 && cost < kNone); };
  invariant(std::ranges::none_of(costs.layers, is_bad) && !is_bad(costs.embedding) && !is_bad(costs.head),
            "costs of layers are finite and not negative");
  if (static_cast<int64_t>(stages) * chunks <= layers) return;
  const std::string fewer_stages =
      layers >= chunks ? fmt::format("at most {} stages of {} chunks", layers / chunks, chunks) : "";
  const std::string fewer_chunks =
      layers >= stages ? fmt::format("{} stages of at most {} chunks", stages, layers / stages) : "";
  fail("[pipeline] {} stages of {} chunks need {} layers, the model has {}; expected {}{}{}", stages, chunks,
       static_cast<int64_t>(stages) * chunks, layers, fewer_stages,
       fewer_stages.empty() || fewer_chunks.empty() ? "" : ", or ",
       fewer_stages.empty() && fewer_chunks.empty() ? fmt::format("at most {} stages of 1 chunk", layers)
                                                    : fewer_chunks);
}

}  // namespace

std::vector<LayerRange> divide_layers(const LayerCosts& costs, int stages, int chunks) {
  check(costs, stages, chunks);
  const Division division(costs, stages * chunks);
  const double bound =
      division.largest(division.best([](double before, double own) { return std::max(before, own); }));
  return division.best([&](double before, double own) { return own > bound ? kNone : before + own * own; });
}

}  // namespace temper::parallel
