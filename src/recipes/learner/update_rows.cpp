#include "recipes/learner/update_rows.h"

#include <utility>

#include "base/error.h"
#include "base/tracing/trace.h"

namespace temper::recipes {

void UpdateRows::read(bool is_kept, const Check& check) {
  const trace::Span span("data");
  const double waited = source_->seconds_waited();
  read_at_ = is_kept ? source_->state() : Json();
  data::Batch batch = source_->next();
  try {
    check(batch.rows);
  } catch (const Error&) {
    put_back();
    throw;
  }
  batch_ = std::move(batch);
  data_wait_ = source_->seconds_waited() - waited;
}

}  // namespace temper::recipes
