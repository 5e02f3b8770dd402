#include "optimizers/gradient_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/threads/threads.h"

namespace temper::optimizers {
namespace {

// Of the rank's part of a gradient what no tensor rank before it holds.
void add_counted(const TrainedParameters& trained, size_t slot, std::vector<Tensor>& gradients) {
  const Tensor own = trained.own_gradient(slot);
  const int64_t first = trained.is_sharded(slot) ? trained.shard_of(slot)->rank() * own.numel() : 0;
  std::vector<std::pair<int64_t, int64_t>> counted;  // elements of `own`, from and until
  int64_t at = 0;
  for (const Placement::Shared& part : trained.placement(slot).shared_by_tensor()) {
    if (part.is_first) continue;
    const int64_t from = std::clamp<int64_t>(part.first - first, 0, own.numel()),
                  until = std::clamp<int64_t>(part.first + part.count - first, 0, own.numel());
    counted.emplace_back(at, from);
    at = until;
  }
  if (at == 0 && counted.empty()) return gradients.push_back(own);
  counted.emplace_back(at, own.numel());
  const Tensor row = own.reshape({own.numel()});
  for (const auto& [from, until] : counted)
    if (from < until) gradients.push_back(row.narrow(0, from, until - from));
}

// Σ g² in double, over fixed pieces in a fixed order.
double sum_of_squares(const std::vector<Tensor>& gradients) {
  constexpr int64_t kPiece = 1 << 15, kLanes = 8;  // sums of their own, side by side
  double all = 0;
  for (const Tensor& gradient : gradients) {
    std::vector<double> sums(static_cast<size_t>((gradient.numel() + kPiece - 1) / kPiece));
    visit_float(gradient.dtype(), [&]<class T>() {
      parallel_for(std::ssize(sums), [&](int64_t piece) {
        const T* const from = gradient.data<T>() + piece * kPiece;
        const int64_t count = std::min(kPiece, gradient.numel() - piece * kPiece);
        std::array<double, kLanes> lanes{};
        for (int64_t i = 0; i < count; ++i) {
          const double g = static_cast<float>(from[i]);
          lanes[static_cast<size_t>(i % kLanes)] += g * g;
        }
        sums[static_cast<size_t>(piece)] = std::accumulate(lanes.begin(), lanes.end(), 0.0);
      });
    });
    all = std::accumulate(sums.begin(), sums.end(), all);
  }
  return all;
}

}  // namespace

// The sum over ranks is formed in double and rounded once: apart from one case in many millions, the norm has
// the same bits however the parts are distributed. Devices send two numbers in the place of a double.
Tensor gradient_norm(const TrainedParameters& trained, ops::Bound<ops::GlobalNorm> norm) {
  const Sharing& sharing = trained.sharing();
  const Device device = trained.store().device();
  const auto norm_of = [&](std::vector<Tensor> gradients, bool in_two) {
    ops::GlobalNorm op;
    op.in_two = in_two;
    op.device = device;
    op.grads = std::move(gradients);
    return ops::global_norm(norm, op);
  };
  enum Kind { kWhole, kSharded, kExperts, kShardedExperts, kKinds };
  std::array<std::vector<Tensor>, kKinds> gradients;
  std::array<bool, kKinds> exist{};
  for (size_t slot = 0; slot < trained.size(); ++slot) {
    if (trained.placement(slot).is_copy()) continue;  // it counts on its own stage
    const int kind =
        (trained.is_sharded(slot) ? kSharded : kWhole) + (trained.is_by_expert(slot) ? kExperts : kWhole);
    add_counted(trained, slot, gradients[static_cast<size_t>(kind)]);
    exist[static_cast<size_t>(kind)] = true;
  }
  const bool alone = sharing.shard == nullptr && sharing.expert == nullptr && sharing.tensor == nullptr &&
                     sharing.stages == nullptr;
  if (!alone && device.type == DeviceType::kCpu) {
    const auto over = [](collectives::Group* group, double own) {
      return group == nullptr ? own : group->sum("gradient norm", own);
    };
    const double shared = over(sharing.shard, sum_of_squares(gradients[kSharded])),
                 experts = over(sharing.expert,
                                sum_of_squares(gradients[kExperts]) +
                                    over(sharing.expert_shard, sum_of_squares(gradients[kShardedExperts])));
    const double sum =
        over(sharing.stages, over(sharing.tensor, sum_of_squares(gradients[kWhole]) + shared + experts));
    return Tensor::from(std::vector<float>{static_cast<float>(std::sqrt(sum))});
  }
  const auto over = [&](collectives::Group* group, const Tensor& own) {
    return group == nullptr ? own : norm_of({group->all_gather("gradient norm", own)}, true);
  };
  if (alone) return norm_of(gradients[kWhole], false);
  const auto of = [&](Kind kind) { return norm_of(gradients[kind], true); };
  std::vector<Tensor> norms;
  if (exist[kSharded]) norms.push_back(over(sharing.shard, of(kSharded)));
  if (exist[kExperts]) norms.push_back(over(sharing.expert, of(kExperts)));
  if (exist[kShardedExperts])
    norms.push_back(over(sharing.expert, over(sharing.expert_shard, of(kShardedExperts))));
  if (exist[kWhole] || norms.empty()) norms.push_back(of(kWhole));
  return norm_of({over(sharing.stages, over(sharing.tensor, norm_of(norms, true)))}, false);
}

}  // namespace temper::optimizers
