#include "losses/kto.h"

#include "losses/log_sigmoid.h"

namespace temper::losses {

AnswerLoss kto(const Kto& options, const Answer& answer, bool good, double z0) {
  const double ratio = answer.logp - answer.reference_logp;
  const double weight = good ? options.desirable_weight : options.undesirable_weight, sign = good ? 1 : -1;
  const double x = sign * options.beta * (ratio - z0), lost = sigmoid(-x);  // 1 - σ(x)
  return {weight * lost, -sign * options.beta * weight * lost * (1 - lost), options.beta * ratio};
}

}  // namespace temper::losses
