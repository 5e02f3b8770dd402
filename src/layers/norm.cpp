#include "layers/norm.h"

namespace temper::layers {

Norm::Norm(const Binding& binding, const std::string& name, double eps)
    : weight_(binding.weight(name + ".weight")),
      kernel_(binding.kernel<ops::RmsNorm>(name)),
      eps_(static_cast<float>(eps)) {}

void Norm::declare(WeightScope& weights, const std::string& name, const std::string& source, int64_t hidden) {
  weights.vector(name + ".weight", "hidden", {{source + ".weight", hidden}});
}

ops::NormedSum Norm::operator()(Tape& tape, const Var& x, const Var& branch, const AdaptedRows& rows) const {
  if (rows.all().empty()) return ops::add_rms_norm(tape, kernel_, x, branch, weight_.leaf(tape), eps_);
  const BoundWeight* const weights[] = {&weight_};
  const std::vector<Var> both =
      rows.by_pieces(tape, {x, branch}, weights, [&](const AdaptedRows::Piece& piece) {
        const ops::NormedSum normed =
            ops::add_rms_norm(tape, kernel_, piece.inputs[0], piece.inputs[1], piece.weights[0].value, eps_);
        return std::vector{normed.sum, normed.y};
      });
  return {both[0], both[1]};
}

}  // namespace temper::layers
