// Quantizers of models that ranks divide: amax, logits and gradients are one rank's, and states know no
// layout.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/files.h"
#include "checkpoints/states/placed_tensors.h"
#include "collectives/launch.h"
#include "primitives/fake_quantized.h"
#include "recipes/learner/quantizer_meshes_test_support.h"
#include "tests/support/errors.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

using quantizers::QuantizerKind;
using quantizers::Sharing;
using namespace quantizer_meshes_test;

QuantizeOptions fp8() {
  const QuantizerKind own{"fp8"};
  return {"",
          {{"layers.*.attention.*", own, own},
           {"layers.*.attention.qkv", {}, {}, {}, own},
           {"layers.*.mlp.experts.*", own, {}}}};
}
QuantizeOptions channels() {
  const QuantizerKind rows{"int8", Sharing::kRow};
  return {"", {{"layers.*.attention.*", rows, QuantizerKind{"int8"}}, {"layers.*.mlp.experts.*", rows, {}}}};
}
QuantizeOptions blocks() {
  const QuantizerKind int4{"int4", Sharing::kBlock, 16};
  return {"", {{"layers.*.attention.*", QuantizerKind{"nvfp4"}, {}}, {"layers.*.mlp.experts.*", int4, {}}}};
}
// With factors of columns, of which ranks that divide columns have some.
QuantizeOptions smoothed() {
  QuantizeOptions options = channels();
  options.rules[1].inputs = QuantizerKind{"int8"};
  options.calibration = quantizers::CalibrationMethod::kSmoothQuant;
  return options;
}
QuantizeOptions activation_aware() {
  const QuantizerKind int4{"int4", Sharing::kBlock, 16}, nvfp4{"nvfp4"};
  return {"",
          {{"layers.*.attention.qkv", nvfp4, nvfp4},
           {"layers.*.attention.output", int4, {}},
           {"layers.*.mlp.experts.*", int4, {}}},
          true,
          quantizers::CalibrationMethod::kAwqLite};
}
// The amax of the second rounding is of all of a matrix, whatever a rank has of it.
QuantizeOptions rounded_twice() {
  const QuantizerKind twice{"int4", Sharing::kBlock, 16, false, "fp8"}, fp8{"fp8"};
  return {"",
          {{"layers.*.attention.*", twice, fp8}, {"layers.*.mlp.experts.*", twice, fp8}},
          true,
          quantizers::CalibrationMethod::kAwqLite};
}
// Errors of blocks are sums over tokens that several ranks have.
QuantizeOptions clipped(quantizers::CalibrationMethod method) {
  const QuantizerKind int4{"int4", Sharing::kBlock, 16}, nvfp4{"nvfp4"}, fp8{"fp8"};
  return {"",
          {{"layers.*.attention.qkv", nvfp4, nvfp4},
           {"layers.*.attention.output", int4, fp8},
           {"layers.*.mlp.experts.*", int4, fp8}},
          true,
          method};
}
QuantizeOptions narrow_blocks() {
  return {"", {{"layers.*", QuantizerKind{"nvfp4"}, QuantizerKind{"nvfp4"}}}};
}
QuantizeOptions shared_by_experts() {
  QuantizeOptions options = fp8();
  options.per_expert = false;
  return options;
}

QuantizeOptions inputs_of_experts() {
  const QuantizerKind own{"fp8"};
  return {"", {{"layers.*.mlp.experts.*", own, own}}};
}

const Mesh kMeshes[] = {{.expert = 4},
                        {.tensor = 4},
                        {.tensor = 2, .expert = 2},
                        {.shard = 2, .tensor = 2},
                        {.replicate = 2, .expert = 2},
                        {.shard = 4, .shard_level = 3},
                        {.shard = 2, .tensor = 2, .shard_level = 3},
                        {.shard = 2, .expert = 2, .shard_level = 3},
                        {.shard = 4},
                        {.shard = 2, .expert = 2, .shard_level = 2},
                        {.replicate = 2, .tensor = 2}};

struct LearnedRounded {
  State amax, gradients;  // of the first update, before clipping
  double first_loss = 0, loss = 0, norm = 0;
};

LearnedRounded learn_rounded(Group& ranks, const Mesh& mesh, const QuantizeOptions& options) {
  Ranked ranked(ranks, mesh, options);
  const std::vector<data::PackedRow> rows = rows_of(ranked);
  ranked.calibrate(ranks, rows);
  optimizers::AdamW optimizer(ranked.model->decoder.parameters(), ranked.model->decoder.ops(), {},
                              ranked.groups.sharing());
  training::Trainer trainer(ranked.model->decoder, optimizer, {}, nullptr, ranked.groups.update());
  LearnedRounded learned;
  learned.first_loss = trainer.step(rows, 1e-2).loss;
  for (const PlacedTensor& part : optimizer.summed_gradients()) {
    const Tensor whole = checkpoints::whole_of(part, ranks).contiguous();
    learned.gradients[part.name] = {whole.values<float>().begin(), whole.values<float>().end()};
  }
  const training::StepResult second = trainer.step(rows, 1e-2);
  learned.amax = state_of(ranked.model->decoder.quantizers());
  learned.loss = second.loss;
  learned.norm = second.grad_norm;
  return learned;
}

// The largest, relative to the largest magnitude.
double difference_of(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  if (found.size() != expected.size()) return INFINITY;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::fabs(double{found[i]} - double{expected[i]}));
    largest = std::max(largest, std::fabs(double{expected[i]}));
  }
  EXPECT_GT(largest, 0);
  return worst / largest;
}

TEST(QuantizerMeshes, AmaxLossAndGradientsAreOneRanks) {
  int name = 0;
  for (const QuantizeOptions& options :
       {fp8(), channels(), blocks(), shared_by_experts(), inputs_of_experts(), smoothed(), activation_aware(),
        rounded_twice(), asymmetric()}) {
    SCOPED_TRACE(name++);
    LearnedRounded one;
    collectives::launch("local", {}, [&](Group& alone) { one = learn_rounded(alone, {}, options); });
    ASSERT_FALSE(one.amax.empty());
    for (const Mesh& mesh : kMeshes) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = 4, .deadline = 120}, [&](Group& ranks) {
        const LearnedRounded found = learn_rounded(ranks, mesh, options);
        const std::lock_guard lock(mutex);
        ASSERT_EQ(found.amax.size(), one.amax.size());
        for (const auto& [key, amax] : one.amax) {
          ASSERT_EQ(found.amax.count(key), 1u) << key;
          ASSERT_EQ(found.amax.at(key).size(), amax.size()) << key;
          // Of weights to the bit, where no factors of inputs go before; inputs are sums that ranks add in
          // another order.
          const bool exact = key.find("weight_quantizer") != std::string::npos &&
                             !quantizers::scales_columns(options.calibration);
          const double tolerance = exact ? 0 : 1e-5;
          for (size_t i = 0; i < amax.size(); ++i)
            EXPECT_NEAR(found.amax.at(key)[i], amax[i], tolerance * std::abs(amax[i])) << key << " " << i;
        }
        EXPECT_NEAR(found.first_loss, one.first_loss, 1e-5 * one.first_loss);
        ASSERT_EQ(found.gradients.size(), one.gradients.size());
        for (const auto& [key, values] : one.gradients)
          EXPECT_LE(difference_of(found.gradients.at(key), values), 5e-5) << key;
        EXPECT_NEAR(found.loss, one.loss, 1e-5 * one.loss);
        EXPECT_NEAR(found.norm, one.norm, 1e-3 * one.norm);
      });
    }
  }
}

// Sums of errors and counts of histograms are of all ranks; experts have their own. Inputs are sums that
// ranks add in another order, so that a value may count in the next bin.
TEST(QuantizerMeshes, SearchesFindOneRanksAmax) {
  using enum quantizers::CalibrationMethod;
  for (const auto& [method, formats] : {std::pair{kMse, fp8()},
                                        {kPercentile, fp8()},
                                        {kPercentile, channels()},
                                        {kEntropy, channels()},
                                        {kMse, asymmetric()},
                                        {kPercentile, asymmetric()},
                                        {kPercentile, inputs_of_experts()}}) {
    QuantizeOptions options = formats;
    options.calibration = method;
    SCOPED_TRACE(quantizers::name_of(method));
    const auto amax = [&](Group& ranks, const Mesh& mesh) {
      Ranked ranked(ranks, mesh, options);
      ranked.calibrate(ranks, rows_of(ranked));
      return state_of(ranked.model->decoder.quantizers());
    };
    State one;
    collectives::launch("local", {}, [&](Group& alone) { one = amax(alone, {}); });
    for (const Mesh& mesh : kMeshes) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = 4, .deadline = 120}, [&](Group& ranks) {
        const State found = amax(ranks, mesh);
        const std::lock_guard lock(mutex);
        ASSERT_EQ(found.size(), one.size());
        for (const auto& [key, values] : one) {
          const double bins = key.find("weight_quantizer") != std::string::npos ? 0 : 1.01 / 2048;
          float largest = 0;
          for (const float value : values) largest = std::max(largest, std::abs(value));
          for (size_t i = 0; i < values.size(); ++i)
            EXPECT_NEAR(found.at(key)[i], values[i], bins * 2 * largest) << key << " " << i;
        }
      });
    }
  }
}

// Of two clips of a block whose errors are nearly equal ranks may take the other one; with factors of columns
// an amax is of scaled weights.
TEST(QuantizerMeshes, ClipsAreOneRanks) {
  using enum quantizers::CalibrationMethod;
  for (const quantizers::CalibrationMethod method : {kAwqClip, kAwqFull}) {
    SCOPED_TRACE(quantizers::name_of(method));
    const auto amax = [&](Group& ranks, const Mesh& mesh) {
      Ranked ranked(ranks, mesh, clipped(method));
      ranked.calibrate(ranks, rows_of(ranked));
      return state_of(ranked.model->decoder.quantizers());
    };
    State one;
    collectives::launch("local", {}, [&](Group& alone) { one = amax(alone, {}); });
    const Mesh meshes[] = {{.tensor = 2},
                           {.replicate = 2},
                           {.expert = 4},
                           {.tensor = 4},
                           {.shard = 2, .tensor = 2, .shard_level = 3}};
    for (const Mesh& mesh : meshes) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = mesh.size(), .deadline = 120}, [&](Group& ranks) {
        const State found = amax(ranks, mesh);
        const std::lock_guard lock(mutex);
        ASSERT_EQ(found.size(), one.size());
        size_t apart = 0, all = 0;
        for (const auto& [key, values] : one) {
          const bool weight = key.find("weight_quantizer") != std::string::npos;
          ASSERT_EQ(found.at(key).size(), values.size()) << key;
          for (size_t i = 0; i < values.size(); ++i, ++all) {
            const float near = std::abs(found.at(key)[i] - values[i]);
            const bool same = near <= (weight && method == kAwqClip ? 0 : 1e-5f * values[i]);
            EXPECT_TRUE(same || weight) << key << " " << i;
            apart += same ? 0 : 1;
          }
        }
        EXPECT_LE(apart, all / 200);
      });
    }
  }
}

// Ranks that divide experts or matrices compute every pass in step; those that only keep step count nothing.
TEST(QuantizerMeshes, RanksMayHaveOtherNumbersOfPasses) {
  const auto calibrated = [&](Group& ranks, const Mesh& mesh) {
    Ranked ranked(ranks, mesh, inputs_of_experts());
    ranked.calibration.micro_batch_tokens = 1;  // each row by itself
    std::vector<data::PackedRow> rows;
    for (uint32_t row = 0; row < 3; ++row)
      if (static_cast<int>(row) * ranked.groups.data().size() / 4 == ranked.groups.data().rank())
        rows.push_back(test_row(row + 1, {7, 5}));
    ranked.calibrate(ranks, rows);
    return state_of(ranked.model->decoder.quantizers());
  };
  State one;
  collectives::launch("local", {}, [&](Group& alone) { one = calibrated(alone, {}); });
  for (const Mesh& mesh :
       {Mesh{.expert = 2}, Mesh{.expert = 4}, Mesh{.shard = 2, .tensor = 2, .shard_level = 3}}) {
    SCOPED_TRACE(to_string(mesh));
    std::mutex mutex;
    collectives::launch("threads", {.ranks = mesh.size(), .deadline = 20}, [&](Group& ranks) {
      const State found = calibrated(ranks, mesh);
      const std::lock_guard lock(mutex);
      ASSERT_EQ(found.size(), one.size());
      for (const auto& [key, amax] : one)
        for (size_t i = 0; i < amax.size(); ++i)
          EXPECT_NEAR(found.at(key)[i], amax[i], 1e-5 * amax[i])
              << key << " " << i << " on " << to_string(mesh);
    });
  }
}

// What is rounded of the part of a weight that a rank has.
Tensor rounded_values(const models::Model& model, const quantizers::Quantizer& each) {
  const Tensor values =
      model.decoder.parameters().value(each.planned.weight).contiguous().reshape(each.planned.values);
  return each.columns.exist() ? primitives::scaled_columns(values, each.columns.inverse) : values;
}

// Each is the largest amax of a matrix, in whatever parts ranks have it.
void expect_second_amax(const quantizers::Quantizers& quantizers, const State& whole) {
  for (const quantizers::Quantizer& each : quantizers.all()) {
    if (!each.planned.rounds_again()) continue;
    const int64_t all = quantizers.plan().find(each.planned.name)->count;
    std::vector<float> largest;
    for (int64_t e = 0; e < all; ++e) {
      const auto& amax =
          whole.at(all > 1 ? fmt::format("{}.{}._amax", each.planned.name, e) : each.planned.name + "._amax");
      largest.push_back(*std::ranges::max_element(amax));
    }
    const auto own = each.second.values<float>();
    const auto first = std::ranges::search(largest, own);
    EXPECT_EQ(std::ssize(first), std::ssize(own)) << each.planned.name;
  }
}

TEST(QuantizerMeshes, WhatIsSavedOnOneMeshIsReadOnEveryOther) {
  std::vector<Mesh> meshes{{}, {.expert = 2}, {.expert = 8}, {.tensor = 2}};
  meshes.insert(meshes.end(), std::begin(kMeshes), std::end(kMeshes));
  for (const auto& [saved, options] : {std::pair{Mesh{.expert = 4}, channels()},
                                       {Mesh{.tensor = 4}, fp8()},
                                       {Mesh{.shard = 2, .tensor = 2}, narrow_blocks()},
                                       {Mesh{.tensor = 2, .expert = 2}, smoothed()},
                                       {Mesh{.tensor = 2, .expert = 2}, asymmetric()},
                                       {Mesh{.tensor = 4}, rounded_twice()}}) {
    const TemporaryDirectory folder;
    State whole;
    collectives::launch("threads", {.ranks = saved.size(), .deadline = 120}, [&](Group& ranks) {
      Ranked ranked(ranks, saved, options);
      ranked.calibrate(ranks, rows_of(ranked));
      if (ranks.rank() != 0) return;
      // No collective: rank 0 knows them all.
      checkpoints::StateWriter writer(folder.path(), 1);
      owned_quantizers(ranked.model->decoder.quantizers()).add_to(writer, kQuantizers, 0, 1);
      writer.commit();
      whole = state_of(ranked.model->decoder.quantizers());
    });
    EXPECT_GT(whole.size(), 32u);  // of two layers with eight experts each
    for (const Mesh& mesh : meshes) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = mesh.size(), .deadline = 120}, [&](Group& ranks) {
        Ranked ranked(ranks, mesh, options);
        read_quantizers(*checkpoints::open_newest(folder.path()), ranked.model->decoder.quantizers());
        const std::lock_guard lock(mutex);
        EXPECT_EQ(state_of(ranked.model->decoder.quantizers()), whole);
        expect_second_amax(ranked.model->decoder.quantizers(), whole);
        // What a rank computes with is of its own experts and channels.
        for (const quantizers::Quantizer& each : ranked.model->decoder.quantizers().all()) {
          if (each.planned.of_input || mesh.shard_level == 3) continue;
          const Tensor own = quant::amax_of(
              rounded_values(*ranked.model, each), each.planned.amax,
              each.planned.has_zero_points() ? quant::Extreme::kHigh : quant::Extreme::kMagnitude);
          for (int64_t i = 0; i < own.numel(); ++i) {
            EXPECT_GE(each.amax.data<float>()[i], own.data<float>()[i]) << each.planned.name << " " << i;
            if (mesh.tensor > 1) continue;
            EXPECT_EQ(each.amax.data<float>()[i], own.data<float>()[i]) << each.planned.name << " " << i;
          }
        }
      });
    }
  }
}

TEST(QuantizerMeshes, OutputsThatSeveralRanksHaveAreRefusedByName) {
  collectives::launch("threads", {.ranks = 4, .deadline = 120}, [&](Group& ranks) {
    const auto refusal = [&](const char* modules) {
      return error_of([&] { Ranked(ranks, {.tensor = 4}, {"", {{modules, {}, {}, QuantizerKind{"fp8"}}}}); });
    };
    expect_has(
        refusal("layers.0.attention.output"),
        "[quantize] layers.0.attention.output.output_quantizer has an amax per tensor, and its outputs are "
        "sums of what several ranks give");
    expect_has(refusal("layers.0.attention.qkv"), "some of its outputs are on several ranks");
  });
}

TEST(QuantizerMeshes, BlocksThatRanksWouldCutAreRefusedByName) {
  collectives::launch("threads", {.ranks = 4, .deadline = 120}, [&](Group& ranks) {
    const auto refusal = [&](const QuantizerKind& weights, const QuantizerKind& inputs, const char* modules) {
      return error_of([&] { Ranked(ranks, {.tensor = 4}, {"", {{modules, weights, inputs}}}); });
    };
    expect_has(refusal({"int4", Sharing::kBlock, 32}, {}, "layers.0.mlp.experts.down"),
               "[quantize] layers.0.mlp.experts.down.weight_quantizer has an amax per blocks of 32, and a "
               "rank holds 16 "
               "columns from ");
    expect_has(refusal({"fp8", Sharing::kTile, 32}, {}, "layers.0.mlp.experts.gate_up"),
               "a rank holds 16 rows from ");
    expect_has(refusal({}, {"fp8", Sharing::kRow, 0, true}, "layers.0.attention.output"),
               "[quantize] layers.0.attention.output.input_quantizer has an amax per token, and a rank reads "
               "32 of a "
               "token's columns");
  });
}

}  // namespace
}  // namespace temper::recipes
