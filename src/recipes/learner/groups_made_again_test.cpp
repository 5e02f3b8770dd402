// A run whose groups are taken down and made again now and then, with all that stands on them, trains the
// same bits and keeps no memory of the earlier ones.
#include <gtest/gtest.h>

#include "collectives/launch.h"
#include "device/host_memory.h"
#include "parallel/mesh_groups.h"
#include "parallel/model_parts.h"
#include "tests/support/packed_rows.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tiny_model.h"
#include "training/objectives/gather_rows.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

using collectives::Group;

// Two ranks: which divide the tokens of rows, or are stages of a pipeline.
struct Division {
  Mesh mesh = {};
  int stages = 1;

  int ranks() const { return mesh.size() * stages; }
};
constexpr Division kContext{.mesh = {.context = 2}}, kStages{.stages = 2};

// What refers to the groups of a mesh.
class Learner {
 public:
  Learner(Group& ranks, const Division& division) : groups_(ranks, division.mesh), model_(build()) {
    optimizer_ = std::make_unique<optimizers::AdamW>(model_->decoder.parameters(), model_->decoder.ops(),
                                                     optimizers::AdamWOptions{}, groups_.sharing());
    trainer_ = std::make_unique<training::Trainer>(model_->decoder, *optimizer_,
                                                   training::TrainerOptions{.micro_batch_tokens = 16},
                                                   nullptr, groups_.update());
  }

  double step(int number) {
    std::vector<data::PackedRow> rows;
    for (uint32_t row = 0; row < 3; ++row)
      rows.push_back(test_row(10 * static_cast<uint32_t>(number % 7) + row, {9 + 2 * row, 5}));
    return trainer_
        ->step(training::rows_of_rank(std::move(rows), groups_.rows().rank(), groups_.rows().size()), 1e-3)
        .loss;
  }
  // Of this rank: parameters, and states of the optimizer.
  std::vector<Tensor> values() const {
    std::vector<Tensor> all;
    for (const PlacedTensor& each : model_->decoder.parameters().placed()) all.push_back(each.own);
    for (const PlacedTensor& each : optimizer_->state()) all.push_back(each.own);
    return all;
  }
  int64_t steps() const { return optimizer_->steps(); }
  void take(const std::vector<Tensor>& values, int64_t steps) {
    const std::vector<Tensor> own = this->values();
    for (size_t i = 0; i < own.size(); ++i) own[i].copy_from(values[i]);
    optimizer_->restored(steps);
  }

 private:
  std::unique_ptr<models::Model> build() const {
    models::BuildOptions options;
    options.dtype = DType::kF32;
    options.ops = ops::all_eager();
    options.purpose = models::Purpose::kTraining;
    const Json config = tiny_config("qwen3_next");
    options.ranks = parallel::with_parts(groups_.model(), models::configure(config, "tiny"));
    auto model = models::build_model(config, "tiny", options);
    model->decoder.parameters().initialize(5, 0.1);
    return model;
  }

  parallel::MeshGroups groups_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<optimizers::AdamW> optimizer_;
  std::unique_ptr<training::Trainer> trainer_;
};

std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

struct Course {
  std::vector<double> losses;
  std::vector<std::vector<float>> values;  // at the end, of rank 0
  std::vector<int64_t> resident;           // bytes, where groups were made again
};

// Every `often` steps the groups are made again; 0: never.
Course learn(const Division& division, int steps, int often) {
  Course course;
  collectives::launch("threads", {.ranks = division.ranks(), .deadline = 120}, [&](Group& ranks) {
    auto learner = std::make_unique<Learner>(ranks, division);
    for (int step = 0; step < steps; ++step) {
      if (often > 0 && step > 0 && step % often == 0) {
        const std::vector<Tensor> values = copies_of(learner->values());
        const int64_t count = learner->steps();
        learner.reset();
        learner = std::make_unique<Learner>(ranks, division);
        learner->take(values, count);
      }
      const double loss = learner->step(step);
      if (ranks.rank() != 0) continue;
      course.losses.push_back(loss);
      if (often > 0 && (step + 1) % often == 0) course.resident.push_back(device::resident_bytes());
    }
    if (ranks.rank() == 0)
      for (const Tensor& tensor : learner->values()) {
        const Tensor whole = tensor.to(DType::kF32).contiguous();
        course.values.emplace_back(whole.data<float>(), whole.data<float>() + whole.numel());
      }
  });
  return course;
}

void expect_equal(const Course& found, const Course& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.values, expected.values);
  EXPECT_LT(found.losses.back(), found.losses.front());
}

TEST(GroupsMadeAgain, TrainTheSameBits) {
  for (const Division& division : {kContext, kStages})
    expect_equal(learn(division, 12, 3), learn(division, 12, 0));
}

void expect_no_memory_kept(const Division& division) {
  constexpr int kSteps = 500, kOften = 50;
  const Course expected = learn(division, kSteps, 0), found = learn(division, kSteps, kOften);
  expect_equal(found, expected);
  if (kSanitizerTakesMemory) return;  // a sanitizer keeps freed memory
  const int64_t before = found.resident[100 / kOften - 1];
  for (const int64_t bytes : found.resident) EXPECT_LT(bytes, before + (1 << 20)) << "before: " << before;
}

TEST(NightlyGroupsMadeAgain, KeepNoMemory) { expect_no_memory_kept(kContext); }
TEST(NightlyGroupsMadeAgain, OfStagesKeepNoMemory) { expect_no_memory_kept(kStages); }

}  // namespace
}  // namespace temper::recipes
