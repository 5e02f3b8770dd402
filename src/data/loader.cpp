#include "data/loader.h"

#include "base/clock.h"
#include "base/threads/pinning.h"

namespace temper::data {

Loader::Loader(const Mixture& mixture, const LoaderOptions& options)
    : maker_(mixture, options), background_(options.threads > 0), after_(snapshot()) {}

Loader::Made Loader::make() {
  std::optional<Batch> batch = maker_.next();
  return {std::move(batch), snapshot()};
}

std::optional<Batch> Loader::next() {
  const double start = seconds_now();
  Made made = ahead_.valid() ? ahead_.get() : make();
  waited_ += seconds_now() - start;
  after_ = std::move(made.after);
  if (background_ && made.batch)
    ahead_ = std::async(std::launch::async, [this] {
      leave_core();
      return make();
    });
  return std::move(made.batch);
}

RowCounts Loader::counts() const {
  RowCounts all;
  for (const RowCounts& counts : after_.counts) all += counts;
  return all;
}

void Loader::restore(const Json& state, bool mended) {
  if (ahead_.valid()) ahead_.wait();
  ahead_ = {};
  maker_.restore(state, mended);
  after_ = snapshot();
}

}  // namespace temper::data
