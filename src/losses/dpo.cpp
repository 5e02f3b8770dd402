#include "losses/dpo.h"

#include "losses/log_sigmoid.h"

namespace temper::losses {
namespace {

double divisor_of(const Dpo& options, const Answer& answer) {
  return options.length_normalized ? static_cast<double>(answer.tokens) : 1;
}

double ratio_of(const Dpo& options, const Answer& answer) {
  const double reference = options.reference_free ? 0 : answer.reference_logp;
  return (answer.logp - reference) / divisor_of(options, answer);
}

}  // namespace

PairLoss dpo(const Dpo& options, const Answer& chosen, const Answer& rejected) {
  const double beta = options.beta, noise = options.label_smoothing;
  const double better = ratio_of(options, chosen), worse = ratio_of(options, rejected),
               difference = better - worse;
  PairLoss out;
  out.chosen_reward = beta * better;
  out.rejected_reward = beta * worse;
  double slope;  // of the loss by the difference
  if (options.form == Dpo::Form::kIpo) {
    const double off = difference - 1 / (2 * beta);
    out.loss = off * off;
    slope = 2 * off;
  } else {
    const double x = beta * difference - options.margin;
    out.loss = -(1 - noise) * log_sigmoid(x) - noise * log_sigmoid(-x);
    slope = beta * (noise * sigmoid(x) - (1 - noise) * sigmoid(-x));
  }
  out.chosen_gradient = slope / divisor_of(options, chosen);
  out.rejected_gradient = -slope / divisor_of(options, rejected);
  return out;
}

}  // namespace temper::losses
