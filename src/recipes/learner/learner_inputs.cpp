#include "recipes/learner/learner_inputs.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace temper::recipes {

LearnerInputs::LearnerInputs(const RunSetup& of, RunConfig run, DataSets rows)
    : setup(of), config(std::move(run)), data(std::move(rows)), files{config.output} {
  if (config.eval.exact_match <= 0 || data.eval) return;
  fail("[eval.exact_match] is set, but {} gives rows to ask from",
       is_adapter()
           ? fmt::format("neither adapters.{}.eval nor data.eval_fraction (data.eval is of adapters that "
                         "have no train)",
                         name())
           : "neither data.eval nor data.eval_fraction");
}

void LearnerInputs::log(const std::string& message) const {
  log_info(is_adapter() ? fmt::format("[{}] {}", name(), message) : message);
}

}  // namespace temper::recipes
