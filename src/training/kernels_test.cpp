// The kernels of a model are chosen once: whatever it does, they stay what they are.
#include <gtest/gtest.h>

#include <functional>

#include "base/tracing/trace.h"
#include "models/adapter.h"
#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/global_norm/global_norm.h"
#include "ops/linear/linear.h"
#include "ops/report.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"
#include "tests/support/gpu.h"
#include "tests/support/packed_rows.h"
#include "tests/support/paged_text.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"

namespace temper::training {
namespace {

template <class... Op>
void add_kernels(const ops::BoundOps& ops, std::vector<const void*>& all) {
  (all.push_back(&ops.get<Op>()), ...);
}

// Every op's kernel by address, and those of modules that may differ.
std::vector<const void*> identities(const ops::BoundOps& ops) {
  std::vector<const void*> all;
  add_kernels<ops::AdamW, ops::Attention, ops::CrossEntropy, ops::Embedding, ops::GlobalNorm, ops::Linear,
              ops::RmsNorm, ops::Rotary, ops::Swiglu>(ops, all);
  for (const char* module : {"norm", "layers.0.input_norm", "layers.1.input_norm"})
    all.push_back(&ops.at<ops::RmsNorm>(module));
  all.push_back(&ops.at<ops::Swiglu>("layers.1.mlp"));
  return all;
}

void generate(const layers::Decoder& decoder) {
  Tape tape(false);
  PagedText(decoder).prompt(tape, std::vector<int32_t>{1, 2, 3});
}

TEST(ModelKernels, NothingRebindsALivingModel) {
  const data::PackedRow packed{{1, 2, 3, 4, 5, 6, 7}, {2, 3, 4, -100, 6, 7, -100}, {4, 3}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TinyModel options{.dtype = dtype, .ops = {.overrides = {{"layers.1.*", {{"rms_norm", "eager"}}}}}};
    const auto model = tiny_model(options), copy = tiny_model(options);
    const auto other = tiny_model();  // bound differently in the same process
    const std::vector<const void*> before = identities(model->decoder.ops());
    for (const Checkpointing checkpointing :
         {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull}) {
      optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
      Trainer trainer(model->decoder, optimizer,
                      {.micro_batch_tokens = checkpointing == Checkpointing::kFull ? 7 : 0,
                       .checkpointing = checkpointing});
      for (int step = 0; step < 3; ++step) trainer.step({packed, packed}, 1e-3);
      trainer.evaluate({packed});
      generate(model->decoder);
      generate(other->decoder);
      optimizer.restored(1);
      EXPECT_EQ(identities(model->decoder.ops()), before);
    }
    EXPECT_EQ(identities(copy->decoder.ops()), before);
    EXPECT_NE(identities(other->decoder.ops()), before);
  }
}

// What the calls of ops and primitives of a training step and of a decoding step are, in their order.
std::vector<std::string> calls_of(const std::function<void()>& work) {
  trace::start();
  work();
  std::vector<std::string> names;
  for (const trace::Event& event : trace::stop()) names.push_back(event.name);
  // Of a base in 8 bits the matrices of those experts are dequantized that tokens chose, which training
  // changes.
  std::erase(names, "dequantize");
  return names;
}

void decode(const models::Model& model, const layers::Adapter* adapter) {
  PagedText text(model.decoder, 8, adapter);
  Tape tape(false);
  text.prompt(tape, std::vector<int32_t>{1, 2, 3});
  for (int32_t at = 3; at < 6; ++at) text.decode(tape, at);
}

// A hybrid with experts over a thousand passes: packed rows in two micro-batches, checkpointing, an adapter,
// (its base in 8 bits), evaluations and decoding steps between them. The second layer is bound otherwise than
// the first.
TEST(ModelKernels, AThousandPassesOfAHybridChangeNoBinding) {
  ops::OpsConfig config{.overrides = {{"layers.1.*", {{"rms_norm", "eager"}}}}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TinyModel options{.type = "qwen3_next", .dtype = dtype, .ops = config};
    TinyModel in_8_bits = options;
    in_8_bits.base_dtype = primitives::FrozenFormat::kFloat8;
    const auto model = tiny_model(options), frozen = tiny_model(in_8_bits);
    const ops::BoundOps& ops = model->decoder.ops();
    const std::vector<ops::ModuleKernel> before = ops.bindings();
    const std::string report = ops::explain_json(ops, detect_cpu()).dump();
    const auto adapter = models::new_adapter(*frozen, {.rank = 2, .alpha = 4, .dropout = 0.1}, 1, "");
    optimizers::AdamW whole(model->decoder.parameters(), ops, {}),
        small(adapter->parameters(), frozen->decoder.ops(), {});
    std::vector<std::unique_ptr<Trainer>> trainers;
    std::vector<std::unique_ptr<AdapterTrainer>> adapters;
    for (const Checkpointing checkpointing :
         {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull}) {
      const TrainerOptions of_trainer{.micro_batch_tokens = 8, .checkpointing = checkpointing};
      trainers.push_back(std::make_unique<Trainer>(model->decoder, whole, of_trainer));
      adapters.push_back(std::make_unique<AdapterTrainer>(frozen->decoder, of_trainer));
    }
    int passes = 0;
    const std::vector<data::PackedRow> rows{test_row(1, {4, 3}), test_row(2, {2, 1, 5})};
    const auto round = [&] {
      for (size_t i = 0; i < trainers.size(); ++i) {
        trainers[i]->step(rows, 1e-4);
        trainers[i]->evaluate(rows);
        adapters[i]->begin({{adapter.get(), &small, &rows, 1e-4, 1}}).front().wait();
        decode(*model, nullptr);
        decode(*frozen, adapter.get());
        passes += 12;  // two of each trainer, four of each decoder
      }
    };
    const std::vector<std::string> first = calls_of(round);
    EXPECT_GT(first.size(), 100u);
    while (passes < 1000) round();
    EXPECT_EQ(calls_of(round), first);
    EXPECT_EQ(ops.bindings(), before);
    EXPECT_EQ(frozen->decoder.ops().bindings(), before);
    EXPECT_NO_THROW(ops::check_unchanged(before, ops.bindings()));
    EXPECT_EQ(ops::explain_json(ops, detect_cpu()).dump(), report);
  }
}

// The same where steps of a repeated shape are launches of CUDA graphs, with heads that the GPU's kernels
// take.
TEST(ModelKernels, AThousandStepsWithGraphsChangeNoBinding) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const HardwareFacts gpu = detect_hardware("cuda");
  Json config = tiny_config("qwen3_5_text");
  for (const char* dim : {"linear_key_head_dim", "linear_value_head_dim"}) config.set(dim, 16);
  models::BuildOptions build;
  build.dtype = DType::kBF16;
  build.facts = gpu;
  const auto model = models::build_model(config, "tiny", build);
  model->decoder.parameters().initialize(7, 0.1);
  const ops::BoundOps& ops = model->decoder.ops();
  const std::vector<ops::ModuleKernel> before = ops.bindings();
  const std::string report = ops::explain_json(ops, gpu).dump();
  optimizers::AdamW optimizer(model->decoder.parameters(), ops, {});
  Trainer trainer(model->decoder, optimizer, {.cuda_graph = CudaGraph::kOn});
  const std::vector<data::PackedRow> rows{test_row(1, {14, 13}), test_row(2, {12, 1, 9})};
  for (int step = 0; step < 1000; ++step) {
    trainer.step(rows, 1e-5);
    if (step % 100 == 0) {
      trainer.evaluate(rows);
      decode(*model, nullptr);
    }
  }
  EXPECT_GT(trainer.graphs().replays, 900);
  EXPECT_EQ(ops.bindings(), before);
  EXPECT_NO_THROW(ops::check_unchanged(before, ops.bindings()));
  EXPECT_EQ(ops::explain_json(ops, gpu).dump(), report);
}

}  // namespace
}  // namespace temper::training
