#include "training/step_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tests/support/gpu.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

// Rows whose documents, targets and ids differ from step to step, 400 tokens or a few fewer.
std::vector<data::PackedRow> rows_of_step(int step) {
  std::vector<data::PackedRow> rows;
  auto seed = static_cast<uint32_t>(step) * 7919 + 1;
  const auto random = [&](uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
  };
  for (int r = 0; r < 8; ++r) {
    data::PackedRow row;
    for (int64_t left = 50 - random(2); left > 0;) {
      const int64_t length = std::min<int64_t>(left, 5 + random(20));
      row.document_lengths.push_back(length);
      row.sources.push_back(static_cast<int32_t>(random(2)));
      for (int64_t i = 0; i < length; ++i) {
        row.ids.push_back(static_cast<int32_t>(random(48)));
        row.targets.push_back(i + 1 < length && random(2) == 0 ? static_cast<int32_t>(random(48))
                                                               : data::kIgnore);
      }
      left -= length;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

StepData data_of(int64_t tokens) {
  data::PackedRow row;
  row.ids.assign(static_cast<size_t>(tokens), static_cast<int32_t>(tokens));
  row.targets = row.ids;
  row.document_lengths = {tokens};
  StepData data;
  data.batches.push_back(gather({row}, 0, 1, {.padded = true}));
  return data;
}

TEST(StepGraphs, StepsOfOneShapeShareTheirTensors) {
  std::vector<const void*> seen;
  StepGraphs graphs({}, CudaGraph::kAuto, "", [&](StepData& data) {
    seen.push_back(data.batches[0].input.ids.raw());
    EXPECT_EQ(data.batches[0].input.ids.values<int32_t>()[0], data.batches[0].tokens);
  });
  for (const int64_t tokens : {100, 200, 90, 201, 100}) graphs.run(data_of(tokens), 1);
  EXPECT_EQ(seen[2], seen[0]);
  EXPECT_EQ(seen[3], seen[1]);
  EXPECT_EQ(seen[4], seen[0]);
  EXPECT_NE(seen[1], seen[0]);
  graphs.run(data_of(100), 1e15);  // large: a plain step
  EXPECT_NE(seen[5], seen[0]);
  EXPECT_EQ(graphs.counts().steps, 6);
  EXPECT_EQ(graphs.counts().graphs, 0);  // the CPU captures nothing
}

TEST(StepGraphs, GiveUpWhereMemoryIsShort) {
  int runs = 0;
  const auto work = [&](StepData&) {
    if (++runs == 1) throw OutOfMemory("[memory] nothing is left");
  };
  StepGraphs graphs({}, CudaGraph::kAuto, "", work);
  graphs.run(data_of(100), 1);
  EXPECT_EQ(runs, 2);  // the same step, as a plain one
  EXPECT_EQ(graphs.counts().why_not, "[memory] nothing is left");
  EXPECT_EQ(describe(graphs.counts()), "CUDA graphs: none; [memory] nothing is left");
  runs = 0;
  StepGraphs insists({}, CudaGraph::kOn, "", work);
  EXPECT_THROW(insists.run(data_of(100), 1), Error);
}

// A step that went wrong is not run again behind the user's back.
TEST(StepGraphs, DefectsAndLostDevicesAreShown) {
  for (const Error& error : {Error("[cuda] an illegal address", ErrorKind::kDefect),
                             Error("[cuda] the GPU is lost", ErrorKind::kResources)}) {
    int runs = 0;
    StepGraphs graphs({}, CudaGraph::kAuto, "", [&](StepData&) {
      if (++runs == 1) throw error;
    });
    EXPECT_THROW(graphs.run(data_of(100), 1), Error);
    EXPECT_EQ(runs, 1) << error.what();
    EXPECT_EQ(graphs.counts().why_not, "");
  }
}

TEST(StepGraphs, AStepThatChangedWeightsIsNotRunAgain) {
  int runs = 0;
  StepGraphs graphs({}, CudaGraph::kAuto, "", [&](StepData& data) {
    data.updates = true;
    if (++runs == 1) throw OutOfMemory("[memory] nothing is left");
  });
  EXPECT_THROW(graphs.run(data_of(100), 1), OutOfMemory);
  EXPECT_EQ(runs, 1);
}

TEST(StepGraphs, OnIsAnErrorWhereItCannotBe) {
  const auto model = tiny_model();
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
  try {
    Trainer(model->decoder, optimizer, {.cuda_graph = CudaGraph::kOn});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[train.cuda_graph] is on, but there are no graphs on the CPU; use auto or off");
  }
}

struct Setting {
  TrainerOptions options = {};
  layers::StateFormat format = {};
  TinyModel model = {};
};

class GpuStepGraphs : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  struct Run {
    Run(Setting setting, CudaGraph choice)
        : model(tiny_model(on_gpu(setting.model))),
          optimizer(model->decoder.parameters(), model->decoder.ops(),
                    {.weight_decay = 0.1, .format = setting.format}),
          trainer(model->decoder, optimizer, with(setting.options, choice)) {}
    static TinyModel on_gpu(TinyModel model) {
      model.dtype = DType::kBF16;
      model.ops = {};
      model.facts = detect_hardware("cuda");
      return model;
    }
    static TrainerOptions with(TrainerOptions options, CudaGraph choice) {
      options.cuda_graph = choice;
      return options;
    }
    std::vector<float> weights() const {
      std::vector<float> all;
      for (size_t i = 0; i < model->decoder.parameters().size(); ++i)
        for (const float value : model->decoder.parameters()[i].value.on({}).to(DType::kF32).values<float>())
          all.push_back(value);
      return all;
    }
    std::unique_ptr<models::Model> model;
    optimizers::AdamW optimizer;
    Trainer trainer;
  };

  static void expect_same(const StepResult& found, const StepResult& expected) {
    EXPECT_EQ(found.loss, expected.loss);
    EXPECT_EQ(found.z_loss, expected.z_loss);
    EXPECT_EQ(found.grad_norm, expected.grad_norm);
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.balance_loss, expected.balance_loss);
    ASSERT_EQ(found.routers.size(), expected.routers.size());
    for (size_t i = 0; i < found.routers.size(); ++i) {
      EXPECT_EQ(found.routers[i].counts, expected.routers[i].counts);
      EXPECT_EQ(found.routers[i].entropy, expected.routers[i].entropy);
    }
    ASSERT_EQ(found.sources.size(), expected.sources.size());
    for (size_t i = 0; i < found.sources.size(); ++i)
      EXPECT_EQ(found.sources[i].sum, expected.sources[i].sum);
  }

  // Compares each step with that of a run without graphs; `between` changes the pool between steps.
  static void compare(const Setting& setting, const std::function<void(Run&, int)>& between = {}) {
    Run plain(setting, CudaGraph::kOff), graphs(setting, CudaGraph::kOn);
    for (int step = 0; step < 14; ++step) {
      const double lr = 1e-3 * (step + 1);
      const StepResult expected = plain.trainer.step(rows_of_step(step), lr);
      expect_same(graphs.trainer.step(rows_of_step(step), lr), expected);
      if (between) between(graphs, step);
    }
    EXPECT_EQ(graphs.weights(), plain.weights());
    EXPECT_GE(graphs.trainer.graphs().replays, 8) << describe(graphs.trainer.graphs());
    EXPECT_EQ(plain.trainer.graphs().replays, 0);
  }
};

TEST_F(GpuStepGraphs, HaveTheBitsOfPlainSteps) {
  const layers::StateFormat small{false, DType::kBF16, DType::kBF16};  // rounded stochastically
  for (const Setting& setting :
       {Setting{}, Setting{{.micro_batch_tokens = 200}}, Setting{{.z_loss = 1e-3, .num_sources = 2}},
        Setting{{.checkpointing = Checkpointing::kSelective}, small},
        Setting{{.max_grad_norm = 0, .checkpointing = Checkpointing::kFull}}})
    compare(setting);
}

TEST_F(GpuStepGraphs, OfMixturesHaveTheBitsOfPlainSteps) {
  const Setting plain{.model = {.type = "qwen3_moe"}};
  Setting balanced = plain;
  balanced.options.routers.balance_factor = 0.5;
  Setting cut = balanced;
  cut.options.micro_batch_tokens = 200;
  Setting again = balanced;
  again.options.checkpointing = Checkpointing::kFull;
  Setting global = cut;
  global.options.routers.global_balance = true;
  for (const Setting& setting : {plain, balanced, cut, again, global}) compare(setting);
}

TEST_F(GpuStepGraphs, MoveBiasesAsPlainSteps) {
  for (const int64_t micro_batch_tokens : {0, 200}) {
    // Heads of one width: the kernels of others are captured with the lengths of documents.
    Setting biased{
        .model = {.type = "deepseek_v3",
                  .experts = true,
                  .sizes = {{"qk_nope_head_dim", 8}, {"qk_rope_head_dim", 8}, {"v_head_dim", 16}}}};
    biased.options.micro_batch_tokens = micro_batch_tokens;
    biased.options.routers.bias_rate = 0.25;
    compare(biased);
  }
}

TEST_F(GpuStepGraphs, ShareTheDeviceWithOthers) {
  const Device gpu{DeviceType::kCuda, 0};
  const auto others = [&](Run& run, int step) {
    // Whatever the pool hands out meanwhile is not the graphs' memory.
    std::vector<Tensor> held;
    for (const MemoryTag tag : {MemoryTag::kActivations, MemoryTag::kWorkspace, MemoryTag::kGradients})
      for (const int64_t size : {100, 5000, 1 << 20}) {
        held.push_back(Tensor::empty({size}, DType::kU8, tag, gpu));
        held.back().copy_from_host(std::vector<uint8_t>(static_cast<size_t>(size), 0xFF).data(), size);
      }
    run.trainer.evaluate(rows_of_step(100 + step));
  };
  compare({}, others);
}

TEST_F(GpuStepGraphs, GoOnAfterTheirMemoryWasAway) {
  Pool& memory = pool({DeviceType::kCuda, 0});
  const auto pause = [&](Run&, int step) {
    for (const MemoryTag tag : {MemoryTag::kActivations, MemoryTag::kWorkspace}) {
      memory.pause(tag, step % 2 == 0 ? PauseMode::kDrop : PauseMode::kKeep);
      memory.resume(tag);
    }
  };
  compare({}, pause);
}

TEST_F(GpuStepGraphs, GoOnFromASavedState) {
  Run plain({}, CudaGraph::kOff), graphs({}, CudaGraph::kOn);
  std::vector<Tensor> saved;
  for (int step = 0; step < 6; ++step) {
    plain.trainer.step(rows_of_step(step), 1e-2);
    graphs.trainer.step(rows_of_step(step), 1e-2);
    if (step == 2)
      for (const PlacedTensor& tensor : plain.optimizer.state()) saved.push_back(tensor.own.clone());
  }
  for (Run* run : {&plain, &graphs}) {
    const auto state = run->optimizer.state();
    for (size_t i = 0; i < state.size(); ++i) state[i].own.copy_from(saved[i]);
    run->optimizer.restored(3);
  }
  for (int step = 3; step < 9; ++step)
    expect_same(graphs.trainer.step(rows_of_step(step), 1e-2), plain.trainer.step(rows_of_step(step), 1e-2));
  EXPECT_EQ(graphs.weights(), plain.weights());
}

TEST_F(GpuStepGraphs, RefuseWhatThePlainStepRefuses) {
  Run run({}, CudaGraph::kOn);
  for (int step = 0; step < 4; ++step) run.trainer.step(rows_of_step(step), 1e-3);
  auto rows = rows_of_step(4);
  rows[2].ids[7] = 48;
  EXPECT_THROW(run.trainer.step(rows, 1e-3), Error);
  rows = rows_of_step(4);
  std::fill(rows[1].targets.begin(), rows[1].targets.end(), 49);
  EXPECT_THROW(run.trainer.step(rows, 1e-3), Error);
  EXPECT_TRUE(std::isfinite(run.trainer.step(rows_of_step(4), 1e-3).loss));
}

// With `auto` small steps are captured; if a kernel waits for the CPU, the reason is reported.
TEST_F(GpuStepGraphs, AutoTellsWhatItDid) {
  Run run({}, CudaGraph::kAuto);
  for (int step = 0; step < 8; ++step) run.trainer.step(rows_of_step(step), 1e-3);
  EXPECT_GE(run.trainer.graphs().replays, 4);
  EXPECT_EQ(run.trainer.graphs().why_not, "");
  const auto model = tiny_model({.facts = detect_hardware("cuda")});
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
  Trainer eager(model->decoder, optimizer, {});
  eager.step(rows_of_step(0), 1e-3);
  EXPECT_NE(describe(eager.graphs()).find("needs the CPU in every step"), std::string::npos);
}

}  // namespace
}  // namespace temper::training
