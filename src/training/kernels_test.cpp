// The kernels of a model are chosen once: whatever it does, they stay what they are.
#include <gtest/gtest.h>

#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "optimizers/adamw.h"
#include "tests/support/tiny_model.h"

namespace temper::training {
namespace {

// Kernels by address, for every module that may differ.
std::vector<const void*> identities(const ops::BoundOps& ops) {
  std::vector<const void*> all;
  for (const char* module :
       {"norm", "layers.0.input_norm", "layers.1.input_norm", "layers.1.attention.qkv"}) {
    all.push_back(&ops.at(module).get<ops::RmsNorm>());
    all.push_back(&ops.at(module).get<ops::Linear>());
    all.push_back(&ops.at(module).get<ops::Attention>());
  }
  return all;
}

TEST(ModelKernels, NothingRebindsALivingModel) {
  const auto model = tiny_model({.ops = {.overrides = {{"layers.1.*", {{"rms_norm", "eager"}}}}}});
  const auto other = tiny_model();  // bound differently in the same process
  const layers::Decoder& decoder = model->decoder;
  const std::vector<const void*> before = identities(decoder.ops());
  optimizers::AdamW optimizer(model->decoder.parameters(), decoder.ops(), {});
  const auto input = layers::make_input(std::vector<int32_t>{1, 2, 3, 4}, std::vector<int32_t>{4});
  const Tensor targets = Tensor::from(std::vector<int32_t>{2, 3, 4, 5});
  for (int step = 0; step < 4; ++step) {
    layers::Decoder::Options options;
    options.checkpoint_layers = step % 2 == 1;
    Tape tape;
    const Var loss = decoder.loss(tape, decoder.forward(tape, input, options), targets, 0.25f).loss;
    tape.backward(loss);
    optimizer.step(1e-3, 1);
    Tape inference(false);
    layers::KvCache cache(2, 8, 2, 8, DType::kF32);
    layers::Decoder::Options cached;
    cached.cache = &cache;
    decoder.forward(inference, input, cached);
    other->decoder.forward(inference, input);
    EXPECT_EQ(identities(decoder.ops()), before);
  }
  EXPECT_NE(identities(other->decoder.ops()), before);
}

}  // namespace
}  // namespace temper::training
