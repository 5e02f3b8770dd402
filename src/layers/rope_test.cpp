#include "layers/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "device/memory.h"
#include "layers/binding.h"

namespace temper::layers {
namespace {

// Inverse frequencies of head_dim 16 and the scaling of cos and sin, as transformers 5.17 computes them.
struct Expected {
  const char* name;
  RopeConfig config;
  std::vector<float> frequencies;
  double scaling;
};

const RopeConfig kYarn{.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 1024};

RopeConfig yarn_with_everything() {
  RopeConfig config = kYarn;
  config.theta = 1e6;
  config.factor = 8;
  config.original_max_position_embeddings = 512;
  config.beta_fast = 16;
  config.beta_slow = 2;
  config.mscale = 0.707;
  config.mscale_all_dim = 1.2;
  config.truncate = false;
  return config;
}

const std::vector<Expected> kExpected{
    {"linear",
     {.type = RopeType::kLinear, .factor = 4},
     {0.25f, 0.079056941f, 0.025f, 0.0079056947f, 0.0025f, 0.00079056947f, 0.00025f, 7.9056947e-05f},
     1},
    {"llama3",
     {.type = RopeType::kLlama3, .theta = 5e5, .factor = 8, .original_max_position_embeddings = 512},
     {1.f, 0.193922758f, 0.0273441337f, 0.000911583134f, 0.000176776681f, 3.42810235e-05f, 6.64786967e-06f,
      1.28917316e-06f},
     1},
    {"yarn",
     kYarn,
     {1.f, 0.316227764f, 0.0812500045f, 0.0197642371f, 0.00437500002f, 0.00079056947f, 0.00025f,
      7.9056947e-05f},
     1.138629436111989},
    {"yarn with mscale, betas and untruncated bounds",
     yarn_with_everything(),
     {1.f, 0.170414031f, 0.00732499966f, 0.000702926656f, 0.000125000006f, 2.22284925e-05f, 3.95284678e-06f,
      7.02926684e-07f},
     0.9179561730379721}};

TEST(Rope, FrequenciesAreThoseOfTransformers) {
  for (const Expected& expected : kExpected) {
    const std::vector<float> found = rope_inverse_frequencies(expected.config, 16);
    ASSERT_EQ(found.size(), expected.frequencies.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected.frequencies[i], 1e-6 * expected.frequencies[i])
          << expected.name << " " << i;
    EXPECT_NEAR(rope_attention_scaling(expected.config), expected.scaling, 1e-12) << expected.name;
  }
  RopeConfig given = kYarn;
  given.attention_factor = 1.5;
  EXPECT_EQ(rope_attention_scaling(given), 1.5);
}

TEST(Rope, TablesHoldTheScaledAngles) {
  const RopeTables tables = make_rope_tables(kYarn, 16, 300);
  ASSERT_EQ(tables.cos.shape(), (Shape{300, 8}));
  for (const int64_t position : {0, 1, 299})
    for (int64_t i = 0; i < 8; ++i) {
      const double angle =
          double{static_cast<float>(position) * kExpected[2].frequencies[static_cast<size_t>(i)]};
      EXPECT_NEAR(tables.cos.data<float>()[position * 8 + i], 1.138629436 * std::cos(angle), 2e-5);
      EXPECT_NEAR(tables.sin.data<float>()[position * 8 + i], 1.138629436 * std::sin(angle), 2e-5);
    }
}

// A conversation continues after memory ran out: with the tables that it had.
TEST(RopeTableSet, KeepsItsTablesWhereLongerOnesDoNotFit) {
  RopeTableSet set(1 << 20, {});
  EXPECT_EQ(set.add(RopeConfig{}, 64), 0u);
  EXPECT_EQ(set.add(kYarn, 64), 1u);
  EXPECT_EQ(set.add(RopeConfig{}, 64), 0u);
  ASSERT_EQ(set.up_to(100).size(), 2u);
  const int64_t limit = pool().limit();
  int64_t live = 0;
  for (const RegionUsage& region : pool().usage()) live += region.live;
  pool().set_limit(live + (1 << 20));
  EXPECT_THROW(set.up_to(1 << 20), Error);
  EXPECT_EQ(set.up_to(100).size(), 2u);
  EXPECT_THROW(set.up_to(1 << 20), Error);
  pool().set_limit(limit);
  EXPECT_GE(set.up_to(1 << 12)[1].cos.dim(0), 1 << 12);
}

}  // namespace
}  // namespace temper::layers
