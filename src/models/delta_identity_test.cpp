// What a hybrid is bound to before it is used is what it is bound to afterwards, whatever was done with it.
#include "base/random.h"
#include "models/adapter.h"
#include "models/config_test_support.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/chunk_gated_delta_rule/chunk_gated_delta_rule.h"
#include "ops/chunk_gated_delta_rule/delta_gates.h"
#include "ops/chunk_gated_delta_rule/recurrent_gated_delta_rule.h"
#include "ops/report.h"
#include "ops/rms_norm_gated/rms_norm_gated.h"
#include "primitives/primitives.h"

namespace temper::models {
namespace {

constexpr int32_t kRowTokens = 10;
const std::vector<int32_t> kRow{3, 14, 15, 9, 26, 5, 35, 8, 9, 7};

// The kernels themselves, and the functions that they hold, of the delta layer.
template <class Op>
void add_kernel(const ops::BoundOps& ops, std::vector<const void*>& all) {
  const ops::Kernel<Op>& kernel = ops.at<Op>("layers.0.delta");
  all.push_back(&kernel);
  all.push_back(reinterpret_cast<const void*>(kernel.forward));
  all.push_back(reinterpret_cast<const void*>(kernel.backward));
  all.push_back(reinterpret_cast<const void*>(kernel.compose));
}
std::vector<const void*> delta_kernels(const ops::BoundOps& ops) {
  std::vector<const void*> all;
  add_kernel<ops::CausalConv1d>(ops, all);
  add_kernel<ops::CausalConv1dUpdate>(ops, all);
  add_kernel<ops::DeltaGates>(ops, all);
  add_kernel<ops::ChunkGatedDeltaRule>(ops, all);
  add_kernel<ops::RecurrentGatedDeltaRule>(ops, all);
  add_kernel<ops::RmsNormGated>(ops, all);
  return all;
}

// Forward and backward over packed documents, in every other pass with each layer computed again.
void train_pass(const Model& model, layers::ParameterStore& trained, const layers::Adapter* adapter,
                int pass) {
  Tape tape;
  layers::Decoder::Options options;
  options.checkpoint_layers = pass % 2 == 0;
  if (adapter != nullptr) options.adapters = {{adapter, kRowTokens}};
  const layers::DecoderInput input = layers::make_input(kRow, std::vector<int32_t>{6, 1, 3});
  const Var logits = model.decoder.logits(tape, model.decoder.forward(tape, input, options));
  tape.backward(logits, logits.value.clone());
  trained.reset_gradients();
}

void generate_some(const Model& model) {
  layers::SequenceState state = model.decoder.make_state(kRowTokens);
  for (int32_t at = 0; at < 3; ++at) {
    Tape tape(false);
    const layers::NextToken next{Tensor::from(std::vector{kRow[static_cast<size_t>(at)]}),
                                 Tensor::from(std::vector{at}), model.decoder.prepare_positions(kRowTokens)};
    model.decoder.decode(tape, next, state);
    state.advance(1);
  }
}

void expect_same_kernels(bool adapted) {
  BuildOptions options;
  options.dtype = DType::kF32;
  const auto model = build_model(with("qwen3_next", "{}"), "tiny", options);
  model->decoder.parameters().initialize(7, 0.1);
  const auto adapter = adapted ? new_adapter(*model, {.rank = 2, .alpha = 4}, 1, "") : nullptr;
  layers::ParameterStore& trained = adapted ? adapter->parameters() : model->decoder.parameters();
  trained.enable_gradients(DType::kF32);
  const auto report = [&] { return ops::explain_json(model->decoder.ops(), options.facts).dump(); };
  const std::vector<const void*> kernels = delta_kernels(model->decoder.ops());
  const std::string before = report();
  for (int pass = 0; pass < 1000; ++pass) {
    train_pass(*model, trained, adapter.get(), pass);
    if (pass % 10 == 0) generate_some(*model);
  }
  EXPECT_EQ(delta_kernels(model->decoder.ops()), kernels);
  EXPECT_EQ(report(), before);
}

TEST(DeltaIdentity, KernelsStayBoundForAThousandPasses) { expect_same_kernels(false); }

TEST(DeltaIdentity, KernelsStayBoundForAThousandPassesOfAnAdapter) { expect_same_kernels(true); }

}  // namespace
}  // namespace temper::models
