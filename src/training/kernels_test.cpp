// The kernels of a model are chosen once: whatever it does, they stay what they are.
#include <gtest/gtest.h>

#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/global_norm/global_norm.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

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
  layers::SequenceState state = decoder.make_state(8);
  layers::Decoder::Options cached;
  cached.state = &state;
  decoder.forward(tape, layers::make_input(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{3}), cached);
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

}  // namespace
}  // namespace temper::training
