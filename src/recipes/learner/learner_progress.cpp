#include "recipes/learner/learner_progress.h"

#include "base/parts/build.h"

namespace temper::recipes {

void LearnerProgress::add(UpdateReport& report) {
  last_loss = report.result.loss;
  report.tokens = tokens += report.result.tokens;
  report.train_seconds = train_seconds += report.seconds;
}

bool LearnerProgress::keep_if_best(double loss) {
  if (best_step >= 0 && !(loss < best_loss)) return false;
  best_loss = loss;
  best_step = step;
  return true;
}

Json::Object LearnerProgress::to_json() const {
  return {{"step", step},
          {"tokens", tokens},
          {"train_seconds", train_seconds},
          {"program", program_version()},
          {"started", started},
          {"accuracy_before", accuracy_before},
          {"best_loss", best_loss},
          {"best_step", best_step},
          {"last_loss", last_loss}};
}

LearnerProgress LearnerProgress::of(const Json& state) {
  const Json* const started = state.find("started");  // which states of older versions do not contain
  return {.step = state.at("step").as_int(),
          .tokens = state.at("tokens").as_int(),
          .train_seconds = state.at("train_seconds").as_double(),
          .started = started != nullptr ? started->as_string() : "",
          .accuracy_before = state.at("accuracy_before").as_double(),
          .best_loss = state.at("best_loss").as_double(),
          .best_step = state.at("best_step").as_int(),
          .last_loss = state.at("last_loss").as_double(),
          .pending_evaluation = state.find("owes_evaluation") != nullptr};
}

}  // namespace temper::recipes
