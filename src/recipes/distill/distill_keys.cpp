#include "recipes/distill/distill_keys.h"

namespace temper::recipes {

void describe(config::Schema& s, DistillKeys& c) {
  using losses::Divergence;
  s.field(
       "teacher", c.teacher,
       "The folder of the model to learn from, which reads the same tokens. Omitted: the model without its "
       "adapter, or without the rounding of quantize.")
      .path();
  s.choice("divergence", c.divergence,
           {{"forward_kl", Divergence::kForward},
            {"reverse_kl", Divergence::kReverse},
            {"jensen_shannon", Divergence::kJensenShannon}},
           "What is minimized between the distributions of teacher and model at each target token.");
  s.field("temperature", c.temperature, "What the logits of both models are divided by.").above(0);
  s.field("cross_entropy", c.cross_entropy,
          "The weight of the ordinary loss, -log p of the targets; the divergence has the rest of 1.")
      .at_least(0)
      .at_most(1);
  s.field("teacher_share", c.teacher_share,
          "The teacher's share of the mixture that jensen_shannon compares both models with.")
      .above(0)
      .below(1);
  s.field("top_k", c.top_k,
          "How many of the teacher's most probable tokens are learned from, and all others as one. 0: the "
          "whole vocabulary.")
      .at_least(0);
  s.field("teacher_logits", c.teacher_logits,
          "A folder of the teacher's top_k logits: read where it is there, otherwise computed before the "
          "first step. Omitted: the teacher computes in every step.")
      .path();
  s.field(
      "logit_statistics", c.logit_statistics,
      "Whether metrics also have mean, deviation, minimum, maximum and shape of the logits of both models.");
}

}  // namespace temper::recipes
