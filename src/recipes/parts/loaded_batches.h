#pragma once
#include <memory>

#include "collectives/group.h"
#include "data/loader.h"
#include "recipes/parts/batch_source.h"

namespace temper::recipes {

// Rows of data files, which rank 0 reads for all ranks.
class LoadedBatches : public BatchSource {
 public:
  // `parts`: the ranks with other rows of an update each. The mixture must outlive it.
  LoadedBatches(const data::Mixture& rows, const data::LoaderOptions& options, collectives::Group& ranks,
                const collectives::Group& parts);

  data::Batch next() override;
  Json state() const override { return loader_->state(); }
  void restore(const Json& state, bool mended) override;
  double seconds_waited() const override { return loader_ ? loader_->seconds_waited() : 0; }
  Json counts() const override { return loader_->counts().to_json(); }
  std::string describe_counts() const override {
    const std::string counts = loader_->counts().describe_training(available_),
                      lost = loader_->counts().describe_lost();
    return lost.empty() ? counts : counts + "; " + lost;
  }

 private:
  const int64_t available_;  // rows
  collectives::Group& ranks_;
  const collectives::Group& parts_;
  std::unique_ptr<data::Loader> loader_;  // of rank 0
};

}  // namespace temper::recipes
