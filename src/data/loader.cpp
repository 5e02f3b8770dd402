#include "data/loader.h"

namespace temper::data {

Loader::Loader(const Source& source, const RowEncoder& encoder, LoaderOptions options)
    : maker_(source, encoder, options), prefetch_(options.prefetch), after_(snapshot()) {}

Loader::Made Loader::make() {
  std::optional<Batch> batch = maker_.next();
  return {std::move(batch), snapshot()};
}

std::optional<Batch> Loader::next() {
  Made made = ahead_.valid() ? ahead_.get() : make();
  after_ = std::move(made.after);
  if (prefetch_ && made.batch) ahead_ = std::async(std::launch::async, [this] { return make(); });
  return std::move(made.batch);
}

void Loader::restore(const Json& state) {
  if (ahead_.valid()) ahead_.wait();
  ahead_ = {};
  maker_.restore(state);
  after_ = snapshot();
}

}  // namespace temper::data
