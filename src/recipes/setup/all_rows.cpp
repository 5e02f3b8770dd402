#include "recipes/setup/all_rows.h"

#include "collectives/local/local.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {

void for_each_rows(const ObjectiveInputs& inputs, std::string_view name,
                   const std::function<void(const std::vector<data::PackedRow>&)>& use) {
  collectives::Group& ranks = inputs.setup.ranks;
  const auto read_all_of = [&](const data::Mixture& mixture) {
    std::unique_ptr<data::Loader> loader;
    if (ranks.rank() == 0) loader = std::make_unique<data::Loader>(mixture, eval_options(inputs.config));
    for (;;) {
      const std::vector<data::PackedRow> rows = training::shared_rows(ranks, collectives::alone(), name, [&] {
        const auto batch = loader->next();
        return batch ? batch->rows : std::vector<data::PackedRow>();
      });
      if (rows.empty()) return;
      use(rows);
    }
  };
  read_all_of(inputs.data.train);
  if (inputs.data.eval) read_all_of(*inputs.data.eval);
}

}  // namespace temper::recipes
