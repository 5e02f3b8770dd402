// What context ranks send each other in one pass, counted by a planned group.
#include <gtest/gtest.h>

#include "collectives/local/local.h"
#include "parallel/mesh_groups.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/passes/micro_batch.h"

namespace temper::recipes {
namespace {

constexpr int64_t kTokens = 64, kFloat = 4;

// Bytes that a rank sends to others; those of the rows that stay are not sent.
class Sent : public collectives::PlannedCalls {
 public:
  void asked(const collectives::PlannedCall& call) override {
    using Kind = collectives::PlannedCall::Kind;
    const auto ranks = static_cast<double>(call.ranks.size());
    if (call.kind == Kind::kAllToAll) {
      brought += call.bytes;
      exchanged += call.bytes * (ranks - 1) / ranks;
    } else if (call.kind == Kind::kAllGather || call.kind == Kind::kReduceScatter)
      gathered += call.bytes * (ranks - 1) / ranks;
  }
  void waits(collectives::PlannedCall::Place) override {}

  double exchanged = 0, gathered = 0;
  double brought = 0;  // to exchanges: all of it is sent where no rows stay
};

// Of the first rank, in a forward pass over one row and the backward pass of what it gives.
Sent sent(const char* type, const Mesh& mesh,
          const std::vector<int64_t>& lengths = {kTokens / 4, kTokens / 4, kTokens / 2}) {
  Sent sent;
  const auto ranks = collectives::planned_group(mesh.size(), 0, &sent);
  const parallel::MeshGroups groups(*ranks, mesh);
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = ops::all_eager();
  build.purpose = models::Purpose::kTraining;
  build.counted = true;
  build.ranks = groups.model();
  const auto model = models::build_model(tiny_config(type), "tiny", build);
  const data::PackedRow row = test_row(1, lengths);
  const training::MicroBatch batch = training::gather({row}, 0, 1, training::form_of(model->decoder));
  model->decoder.parameters().enable_gradients(DType::kF32);
  Tape tape;
  const Var hidden = model->decoder.forward(tape, batch.input);
  tape.backward(hidden,
                Tensor::empty(hidden.shape(), DType::kF32, MemoryTag::kActivations, hidden.value.device()));
  return sent;
}

// Widths of one token of the model's layers together, in bytes.
struct Widths {
  double queries, keys, results, latent;
};
Widths widths(const char* type) {
  const Json config = tiny_config(type);
  const auto number = [&](const char* key) { return static_cast<double>(config.at(key).as_int()); };
  const double all = number("num_hidden_layers") * kFloat, heads = number("num_attention_heads");
  if (config.find("kv_lora_rank") == nullptr) {
    const double head = number("head_dim") * all;
    return {heads * head, 2 * number("num_key_value_heads") * head, heads * head, 0};
  }
  const double key = number("qk_nope_head_dim") + number("qk_rope_head_dim"), value = number("v_head_dim");
  return {heads * key * all, heads * (key + value) * all, heads * value * all,
          (number("kv_lora_rank") + number("qk_rope_head_dim")) * all};
}

// Of latent attention queries and results, and latents in place of keys and values.
TEST(ContextTraffic, LatentsTravelInsteadOfKeysAndValues) {
  const Widths w = widths("deepseek_v3");
  for (const int ranks : {2, 4}) {
    const double own = kTokens / ranks, others = (ranks - 1.0) / ranks;
    const Sent found = sent("deepseek_v3", {.context = ranks, .context_method = ContextMethod::kHeads});
    EXPECT_DOUBLE_EQ(found.exchanged, 2 * own * (w.queries + w.results) * others);
    EXPECT_DOUBLE_EQ(found.gathered, 2 * kTokens * w.latent * others);
    EXPECT_LT(found.gathered, 2 * own * w.keys * others);  // what keys and values took
  }
}

TEST(ContextTraffic, GroupsExchangeHeadsAndGatherTheirKeys) {
  const Widths w = widths("qwen3");
  const double own = kTokens / 4;
  const Sent heads = sent("qwen3", {.context = 4, .context_method = ContextMethod::kHeads}),
             keys = sent("qwen3", {.context = 4, .context_method = ContextMethod::kKeys}),
             both = sent("qwen3", {.context = 4, .context_method = ContextMethod::kBoth});
  // Of two key heads each goes to two of four ranks.
  EXPECT_DOUBLE_EQ(heads.exchanged, 2 * own * (w.queries + 2 * w.keys + w.results) * 3 / 4);
  EXPECT_EQ(heads.gathered, 0);
  EXPECT_EQ(keys.exchanged, 0);
  EXPECT_DOUBLE_EQ(keys.gathered, 2 * kTokens * w.keys * 3 / 4);
  EXPECT_DOUBLE_EQ(both.exchanged, 2 * own * (w.queries + w.keys + w.results) / 2);
  EXPECT_DOUBLE_EQ(both.gathered, 2 * kTokens * w.keys / 2 / 2);  // of one of the heads, from one other group
  const Widths latent = widths("deepseek_v3");
  const Sent groups = sent("deepseek_v3", {.context = 4, .context_method = ContextMethod::kBoth});
  EXPECT_DOUBLE_EQ(groups.exchanged, 2 * own * (latent.queries + latent.results) / 2);
  EXPECT_DOUBLE_EQ(groups.gathered, 2 * kTokens * latent.latent * 3 / 4);
}

// One of two layers sees all keys. In the other, with a window of five, the last of four pieces of a document
// needs four keys of the other rank, and gives gradients of as many back as the second one does.
TEST(ContextTraffic, LayersWithWindowsFetchTheKeysBeforePieces) {
  const Widths w = widths("gpt_oss");
  const Sent found = sent("gpt_oss", {.context = 2, .context_method = ContextMethod::kKeys}, {kTokens});
  EXPECT_DOUBLE_EQ(found.brought, 2 * 4 * w.keys / 2);
  EXPECT_DOUBLE_EQ(found.gathered, 2 * kTokens * w.keys / 2 / 2);
}

}  // namespace
}  // namespace temper::recipes
