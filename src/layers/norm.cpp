#include "layers/norm.h"

#include "primitives/collectives.h"
#include "primitives/primitives.h"

namespace temper::layers {

namespace {

// ops::RmsNorm of rows of which each rank has an equal part: the mean of the squares is that of the ranks'
// means. Neighbours may have the same part: it counts as often in the sum as in the number of ranks.
Var norm_of_parts(Tape& tape, const Var& x, const Var& weight, float eps, float offset,
                  collectives::Group& ranks) {
  namespace p = primitives;
  const Var wide = p::cast(tape, x, DType::kF32),
            own = p::scale(tape, p::sum_last(tape, p::mul(tape, wide, wide)),
                           1 / static_cast<float>(x.shape()[x.value.ndim() - 1] * ranks.size()));
  // The ranks make different things of the mean.
  const Var mean = p::read_by_ranks(tape, p::sum_of_ranks(tape, own, ranks), ranks);
  const Var factor = p::add_scalar(tape, p::cast(tape, weight, DType::kF32), offset);
  const Var y = p::mul(tape, p::mul(tape, wide, p::rsqrt(tape, p::add_scalar(tape, mean, eps))), factor);
  return p::cast(tape, y, x.dtype());
}

}  // namespace

Norm::Norm(const Binding& binding, const std::string& name, double eps, double offset,
           collectives::Group* ranks)
    : weight_(binding.weight(name + ".weight")),
      kernel_(binding.kernel<ops::RmsNorm>(name)),
      eps_(static_cast<float>(eps)),
      offset_(static_cast<float>(offset)),
      ranks_(ranks) {}

void Norm::declare(WeightScope& weights, const std::string& name, const std::string& source, int64_t hidden,
                   double offset) {
  weights.norm_of_stream(name + ".weight", {source + ".weight", hidden}, offset != 0);
}

ops::NormedSum Norm::operator()(Tape& tape, const Var& x, const Var& branch, const AdaptedRows& rows) const {
  const auto normed = [&](const Var& own, const Var& other, const Var& weight) {
    if (ranks_ == nullptr) return ops::add_rms_norm(tape, kernel_, own, other, weight, eps_, offset_);
    return ops::NormedSum{own, norm_of_parts(tape, own, weight, eps_, offset_, *ranks_)};
  };
  if (rows.all().empty()) return normed(x, branch, weight_.leaf(tape));
  const BoundWeight* const weights[] = {&weight_};
  const std::vector<Var> both =
      rows.by_pieces(tape, {x, branch}, weights, [&](const AdaptedRows::Piece& piece) {
        const ops::NormedSum found = normed(piece.inputs[0], piece.inputs[1], piece.weights[0].value);
        return std::vector{found.sum, found.y};
      });
  return {both[0], both[1]};
}

}  // namespace temper::layers
