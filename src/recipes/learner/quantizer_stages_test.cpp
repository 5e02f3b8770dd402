// Quantizers of models whose layers stages of a pipeline divide: every stage knows all of them, and they are
// one rank's.
#include <mutex>

#include "collectives/launch.h"
#include "recipes/learner/quantizer_meshes_test_support.h"
#include "recipes/learner/whole_elements_test_support.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

using quantizers::QuantizerKind;
using namespace quantizer_meshes_test;

QuantizeOptions fp8_and_inputs() {
  const QuantizerKind own{"fp8"};
  return {"",
          {{"layers.*.attention.*", own, own},
           {"layers.*.attention.qkv", {}, {}, {}, own},
           {"layers.*.mlp.experts.*", own, own}}};
}

struct Learned {
  State amax;
  WholeElements gradients;  // of one rank's first update, before clipping
  std::vector<double> losses;
};

// `expected`: those of one rank; null: this is it.
Learned learn(Ranked& ranked, Group& ranks, const WholeElements* expected) {
  const std::vector<data::PackedRow> rows = rows_of(ranked);
  ranked.calibrate(ranks, rows);
  optimizers::AdamW optimizer(ranked.model->decoder.parameters(), ranked.model->decoder.ops(), {},
                              ranked.groups.sharing());
  training::Trainer trainer(ranked.model->decoder, optimizer, {.micro_batch_tokens = 12}, nullptr,
                            ranked.groups.update());
  Learned learned;
  learned.losses.push_back(trainer.step(rows, 1e-2).loss);
  if (expected != nullptr)
    expect_elements(optimizer.summed_gradients(), *expected, 5e-5);
  else
    learned.gradients = elements_of(optimizer.summed_gradients());
  learned.losses.push_back(trainer.step(rows, 1e-2).loss);
  learned.amax = state_of(ranked.model->decoder.quantizers());
  return learned;
}

void expect_one(const QuantizeOptions& options, const Mesh& mesh, const Learned& one) {
  std::mutex mutex;
  collectives::launch("threads", {.ranks = 2 * mesh.size(), .deadline = 120}, [&](Group& ranks) {
    Ranked ranked(ranks, mesh, options);
    const Learned found = learn(ranked, ranks, &one.gradients);
    const std::lock_guard lock(mutex);
    ASSERT_EQ(found.amax.size(), one.amax.size());
    for (const auto& [key, amax] : one.amax) {
      const std::vector<float>& here = found.amax.at(key);
      ASSERT_EQ(here.size(), amax.size()) << key;
      const double tolerance = key.find("weight_quantizer") != std::string::npos ? 0 : 1e-5;
      for (size_t i = 0; i < amax.size(); ++i)
        EXPECT_NEAR(here[i], amax[i], tolerance * std::abs(amax[i])) << key << " " << i;
    }
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], one.losses[i], 1e-5 * one.losses[i]);
  });
}

TEST(QuantizerStages, AmaxLossAndGradientsAreOneRanks) {
  for (const QuantizeOptions& options : {fp8_and_inputs(), asymmetric()}) {
    Ranked ranked(collectives::alone(), {}, options);
    const Learned one = learn(ranked, collectives::alone(), nullptr);
    ASSERT_FALSE(one.amax.empty());
    for (const Mesh& mesh :
         {Mesh{}, {.tensor = 2}, {.expert = 2}, {.replicate = 2}, {.shard = 2, .shard_level = 3}}) {
      SCOPED_TRACE(to_string(mesh));
      expect_one(options, mesh, one);
    }
  }
}

}  // namespace
}  // namespace temper::recipes
