#include "recipes/learner/trained_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoints/adapter_folder.h"
#include "checkpoints/stop_tokens.h"
#include "config/print.h"

#include "recipes/learner/held_out_rows.h"
#include "recipes/learner/learner_checkpoints.h"
#include "recipes/learner/result_folders.h"
#include "recipes/learner/tiny_run_test_support.h"
#include "recipes/parts/loaded_batches.h"
#include "tests/support/errors.h"
#include "tests/support/packed_rows.h"

namespace temper::recipes {
namespace {

const std::vector<data::PackedRow> kTinyRows{test_row(1, {9})};

std::vector<float> values_of_state(const TrainedModel& trained) {
  std::vector<float> all;
  for (const PlacedTensor& each : trained.optimizer().state()) {
    const Tensor wide = each.own.contiguous().to(DType::kF32);
    all.insert(all.end(), wide.values<float>().begin(), wide.values<float>().end());
  }
  return all;
}

TEST(TrainedModel, TrainsTheModel) {
  const TinyInputs run(train_as_it_is, true);
  TrainedModel trained(*run.inputs, nullptr);
  EXPECT_EQ(trained.adapter(), nullptr);
  EXPECT_EQ(&trained.parameters(), &run.setup->model->decoder.parameters());
  const double before = trained.evaluate(kTinyRows).loss;
  trained.begin(kTinyRows, 1e-2).wait();
  EXPECT_LT(trained.evaluate(kTinyRows).loss, before);
  trained.with_whole([&](const collectives::Root&, const TrainedModel::Whole& whole) {
    EXPECT_EQ(whole(0).numel(), trained.parameters().placed().at(0).own.numel());
  });
  EXPECT_NO_THROW(trained.check_replicas(nullptr, 1));
}

TEST(TrainedModel, TrainsAnAdapter) {
  const TinyInputs run(train_adapter, true);
  const TrainedModel trained(*run.inputs, nullptr);
  ASSERT_NE(trained.adapter(), nullptr);
  EXPECT_EQ(&trained.parameters(), &trained.adapter()->parameters());
  EXPECT_EQ(trained.trainer(), nullptr);
  const training::AdapterShare share = trained.share(kTinyRows, 0.5);
  EXPECT_EQ(share.adapter, trained.adapter());
  EXPECT_EQ(share.optimizer, &trained.optimizer());
  EXPECT_EQ(share.rows, &kTinyRows);
  EXPECT_EQ(share.lr, 0.5);
}

// What is written is what was prepared, though training continues.
TEST(LearnerCheckpoints, AreReadAsTheyWerePrepared) {
  const TinyInputs run(train_as_it_is, true);
  make_directories(run.inputs->files.folder);
  TrainedModel trained(*run.inputs, nullptr);
  LearnerMetrics metrics(*run.inputs);
  metrics.open({}, false);
  const UpdateSchedule schedule(*run.inputs);
  LearnerCheckpoints checkpoints(*run.inputs);
  EXPECT_FALSE(checkpoints.restore(trained, nullptr, schedule));
  trained.begin(kTinyRows, 1e-2).wait();
  const std::vector<float> saved = values_of_state(trained);
  const LearnerProgress progress{.step = 1, .best_step = 1};
  EXPECT_FALSE(checkpoints.is_asked(1));
  checkpoints.prepare(progress, progress.to_json(), trained, nullptr, true);
  EXPECT_TRUE(checkpoints.is_asked(1));
  EXPECT_EQ(checkpoints.saved_step(), 0);
  trained.begin(kTinyRows, 1e-2).wait();
  EXPECT_NE(values_of_state(trained), saved);
  checkpoints.write(false);
  checkpoints.commit(metrics);
  EXPECT_EQ(checkpoints.saved_step(), 1);

  LearnerCheckpoints later(*run.inputs);
  const std::optional<Json> state = later.restore(trained, nullptr, schedule);
  ASSERT_TRUE(state);
  EXPECT_EQ(*state, Json(progress.to_json()));
  EXPECT_EQ(values_of_state(trained), saved);
  EXPECT_EQ(trained.optimizer().steps(), 1);
  EXPECT_TRUE(later.is_asked(1));
}

TEST(LearnerCheckpoints, PruningKeepsTheBestAndTheNewest) {
  const TinyInputs run([](RunConfig& config) { config.checkpoint.keep_last = 1; }, true);
  make_directories(run.inputs->files.folder);
  const TrainedModel trained(*run.inputs, nullptr);
  LearnerMetrics metrics(*run.inputs);
  metrics.open({}, false);
  LearnerCheckpoints checkpoints(*run.inputs);
  checkpoints.restore(trained, nullptr, UpdateSchedule(*run.inputs));
  for (int64_t step = 1; step <= 3; ++step) {
    const LearnerProgress progress{.step = step, .best_step = 1};
    checkpoints.prepare(progress, progress.to_json(), trained, nullptr, false);
    checkpoints.write(false);
    checkpoints.commit(metrics);
  }
  checkpoints.prune();
  const auto left = checkpoints::list_states(run.inputs->files.states());
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].step, 1);
  EXPECT_EQ(left[1].step, 3);
}

TEST(HeldOutRows, HaveTheLossOfEveryRow) {
  const TinyInputs run(evaluate_rows, true);
  const TrainedModel trained(*run.inputs, nullptr);
  HeldOutRows held_out(*run.inputs, trained, {});
  held_out.read();
  LoadedBatches source(run.inputs->data.train, loader_options(run.inputs->config), run.inputs->ranks(),
                       run.inputs->data_ranks());
  const auto rows = read_all(*run.inputs->data.eval, run.inputs->config);
  EXPECT_EQ(held_out.evaluate(source).value, -trained.evaluate(rows).loss);
}

// Of a run that is finished, where it was asked the same.
TEST(HeldOutRows, KnowTheAccuracyOfAFinishedRun) {
  TinyInputs run(
      [](RunConfig& config) {
        evaluate_rows(config);
        config.eval.exact_match = 2;
      },
      true);
  const TrainedModel trained(*run.inputs, nullptr);
  const HeldOutRows held_out(*run.inputs, trained, {});
  EXPECT_EQ(held_out.known_accuracy(), -1);
  RunConfig copy = run.inputs->config;
  make_directories(run.inputs->files.folder);
  write_file(run.inputs->files.config(), config::dump(config::schema_of(copy)));
  write_file(run.inputs->files.summary(), "{\"exact_match_after\": 0.5}");
  EXPECT_EQ(held_out.known_accuracy(), 0.5);
  run.inputs->config.eval.exact_match = 1;
  EXPECT_EQ(held_out.known_accuracy(), -1) << "fewer questions";
}

TEST(ResultFolders, StopAtTheTokenThatEndsAnswers) {
  const TinyInputs run(train_as_it_is, true);
  const TrainedModel trained(*run.inputs, nullptr);
  ResultFolders(*run.inputs, trained, 7).save_best();
  const std::string folder = run.inputs->files.best();
  EXPECT_TRUE(exists(join_path(folder, "config.json")));
  const std::vector<int32_t> stops = checkpoints::stop_tokens_of(folder);
  EXPECT_NE(std::ranges::find(stops, 7), stops.end());
}

TEST(ResultFolders, OfAnAdapterHaveTheAdapter) {
  const TinyInputs run(train_adapter, true);
  const TrainedModel trained(*run.inputs, nullptr);
  ResultFolders(*run.inputs, trained, {}).save_best();
  EXPECT_TRUE(exists(join_path(run.inputs->files.best(), checkpoints::kAdapterConfig)));
  EXPECT_FALSE(exists(join_path(run.inputs->files.best(), "config.json")));
}

}  // namespace
}  // namespace temper::recipes
