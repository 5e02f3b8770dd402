#include "layers/norm.h"

namespace temper::layers {

Norm::Norm(const Binding& binding, const std::string& name, double eps, double offset)
    : weight_(binding.weight(name + ".weight")),
      kernel_(binding.kernel<ops::RmsNorm>(name)),
      eps_(static_cast<float>(eps)),
      offset_(static_cast<float>(offset)) {}

void Norm::declare(WeightScope& weights, const std::string& name, const std::string& source, int64_t hidden,
                   double offset) {
  weights.norm_of_stream(name + ".weight", {source + ".weight", hidden}, offset != 0);
}

ops::NormedSum Norm::operator()(Tape& tape, const Var& x, const Var& branch, const AdaptedRows& rows) const {
  if (rows.all().empty())
    return ops::add_rms_norm(tape, kernel_, x, branch, weight_.leaf(tape), eps_, offset_);
  const BoundWeight* const weights[] = {&weight_};
  const std::vector<Var> both =
      rows.by_pieces(tape, {x, branch}, weights, [&](const AdaptedRows::Piece& piece) {
        const ops::NormedSum normed = ops::add_rms_norm(tape, kernel_, piece.inputs[0], piece.inputs[1],
                                                        piece.weights[0].value, eps_, offset_);
        return std::vector{normed.sum, normed.y};
      });
  return {both[0], both[1]};
}

}  // namespace temper::layers
