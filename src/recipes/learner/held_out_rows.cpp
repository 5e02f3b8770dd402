#include "recipes/learner/held_out_rows.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "config/load.h"
#include "recipes/plans/mesh.h"
#include "recipes/setup/rollout_model.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {
namespace {

// What questions a run asks.
Json questions_of(RunConfig config) {
  const config::Schema schema = config::schema_of(config);
  Json::Array values;
  for (const char* key :
       {"eval.exact_match", "eval.max_new_tokens", "data.eval", "data.eval_fraction", "data.chat_template"})
    values.push_back(config::value_of(*schema.find_path(key)));
  return values;
}

double accuracy_in(const RunFiles& files, const RunConfig& now) try {
  RunConfig before;
  config::Schema schema = config::schema_of(before);
  config::load_saved(schema, files.config());
  if (questions_of(before) != questions_of(now)) return -1;
  const Json summary = Json::parse_file(files.summary());
  const Json* const found = summary.find("exact_match_after");
  return found != nullptr && found->is_number() ? found->as_double() : -1;
} catch (const Error&) {
  return -1;  // the folder was not finished
}

}  // namespace

void HeldOutRows::read() {
  rows_ = training::shared_rows(inputs_.ranks(), inputs_.data_ranks(), "rows of the evaluation",
                                [&] { return read_all(*inputs_.data.eval, inputs_.config); });
}

BatchSource::Judged HeldOutRows::evaluate(BatchSource& source) const {
  if (auto judged = source.evaluate()) return std::move(*judged);
  return evaluation_by_loss(trained_.evaluate(rows_), *inputs_.data.eval, !trained_.has_objective());
}

double HeldOutRows::answer(const char* when) {
  const double start = seconds_now();
  double result = -1;
  const RunSetup& setup = inputs_.setup;
  const layers::Decoder& trained = setup.model->decoder;
  std::optional<RolloutModel> apart;  // of stages, none of which has all layers
  if (trained.ranks().stages.count() > 1) {
    apart.emplace(setup, answering_mesh(setup.mesh, setup.architecture, setup.config), trained_.adapter(),
                  false, "exact match");
    apart->sync();
  }
  const Answerer model =
      apart ? Answerer{apart->decoder(), apart->adapter()} : Answerer{trained, trained_.adapter()};
  const auto answer = [&] {
    answers_ = answer_questions(setup, model, inputs_.config, *inputs_.data.eval, ending_);
    result = accuracy(answers_);
  };
  model.decoder.ranks().decode_together()
      ? answer()
      : collectives::at_root(inputs_.ranks(), "answers to questions", answer);
  inputs_.log(fmt::format("exact match {} training: {:.1f} % of {} held-out questions ({})", when,
                          100 * result, answers_.size(), format_duration(seconds_now() - start)));
  return result;
}

double HeldOutRows::known_accuracy() const {
  return inputs_.ranks()
      .gather("answers of before", inputs_.is_root() ? accuracy_in(inputs_.files, inputs_.config) : -1)
      .front();
}

}  // namespace temper::recipes
