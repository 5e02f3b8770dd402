#include "recipes/parts/loaded_batches.h"

#include "base/error.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {

LoadedBatches::LoadedBatches(const data::Mixture& rows, const data::LoaderOptions& options,
                             collectives::Group& ranks, const collectives::Group& parts)
    : available_(rows.size()), ranks_(ranks), parts_(parts) {
  if (ranks.rank() == 0) loader_ = std::make_unique<data::Loader>(rows, options);
}

data::Batch LoadedBatches::next() {
  data::Batch batch;
  batch.rows = training::shared_rows(ranks_, parts_, "rows of the update", [&] {
    std::optional<data::Batch> next = loader_->next();
    invariant(next.has_value(), "an endless loader ended");
    batch = std::move(*next);
    return std::exchange(batch.rows, {});
  });
  return batch;
}

void LoadedBatches::restore(const Json& state, bool mended) {
  if (loader_) loader_->restore(state, mended);
}

}  // namespace temper::recipes
