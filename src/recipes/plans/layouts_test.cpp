#include "recipes/plans/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "models/model.h"
#include "recipes/plans/mesh.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

layers::DecoderConfig model_of(const char* type) {
  return models::configure(tiny_config(type), "config.json", models::Purpose::kTraining);
}

RunLayouts layouts(int ranks, const char* type, const RunConfig& config = {}, int64_t rows = 1000) {
  return layouts_of(ranks, model_of(type), config, rows);
}

std::vector<ContextMethod> methods_of(int context) {
  if (context == 1) return {ContextMethod::kAuto};
  std::vector<ContextMethod> methods{ContextMethod::kHeads, ContextMethod::kKeys};
  if (context == 4 || context >= 6) methods.push_back(ContextMethod::kBoth);  // has groups
  return methods;
}

// Every product of degrees that mesh_of() and check_mesh() take is listed once, and nothing else is.
TEST(Layouts, AreThoseThatTheProgramAccepts) {
  for (const char* type : {"qwen3", "qwen3_moe", "qwen3_next"}) {
    const layers::DecoderConfig model = model_of(type);
    for (const int ranks : {1, 2, 4, 6, 8}) {
      std::set<std::string> expected, found;
      int64_t refused = 0;
      const auto consider = [&](const RunLayout& layout) {
        try {
          const RunConfig config = with_layout({}, layout);
          const Mesh mesh = mesh_of(config, ranks);
          check_mesh(mesh, model, config);
          expected.insert(flags_of(layout));
        } catch (const Error&) {
          ++refused;
        }
      };
      for (int code = 0; code < 9 * 9 * 9 * 9 * 9 * 9; ++code) {
        int digits[6], rest = code, product = 1;
        for (int& digit : digits) {
          digit = rest % 9;
          rest /= 9;
          product *= digit;
        }
        if (product != ranks) continue;
        const auto [replicate, shard, context, tensor, expert, pipeline] =
            std::tuple(digits[0], digits[1], digits[2], digits[3], digits[4], digits[5]);
        for (const int chunks : pipeline == 1 ? std::vector{1} : std::vector{1, 2, 4})
          for (const auto method : methods_of(context))
            for (const int level : shard* context* expert == 1 ? std::vector{1} : std::vector{1, 2, 3})
              consider({{.replicate = replicate,
                         .shard = shard,
                         .context = context,
                         .tensor = tensor,
                         .expert = expert,
                         .context_method = method,
                         .shard_level = level},
                        pipeline,
                        chunks});
      }
      const RunLayouts all = layouts(ranks, type);
      for (const RunLayout& layout : all.possible) {
        EXPECT_EQ(layout.ranks(), ranks);
        EXPECT_TRUE(found.insert(flags_of(layout)).second) << flags_of(layout);
      }
      EXPECT_EQ(found, expected) << type << " " << ranks;
      EXPECT_EQ(all.refused, refused) << type << " " << ranks;
      EXPECT_EQ(all.idle, 0);
    }
  }
}

TEST(Layouts, WhatTheRunNamesStays) {
  RunConfig config;
  config.parallel.degree("tensor") = "2";
  config.parallel.degree("replicate") = "2";
  std::set<std::string> found;
  for (const RunLayout& layout : layouts(8, "qwen3", config).possible) found.insert(flags_of(layout));
  EXPECT_EQ(found,
            (std::set<std::string>{
                "--parallel.replicate 2 --parallel.shard 2 --parallel.tensor 2",
                "--parallel.replicate 2 --parallel.shard 2 --parallel.tensor 2 --parallel.shard_level 2",
                "--parallel.replicate 2 --parallel.shard 2 --parallel.tensor 2 --parallel.shard_level 3",
                "--parallel.replicate 2 --parallel.context 2 --parallel.tensor 2 --parallel.context_method "
                "ulysses",
                "--parallel.replicate 2 --parallel.context 2 --parallel.tensor 2 --parallel.context_method "
                "ulysses --parallel.shard_level 2",
                "--parallel.replicate 2 --parallel.context 2 --parallel.tensor 2 --parallel.context_method "
                "ulysses --parallel.shard_level 3",
                "--parallel.replicate 2 --parallel.context 2 --parallel.tensor 2 --parallel.context_method "
                "ring",
                "--parallel.replicate 2 --parallel.context 2 --parallel.tensor 2 --parallel.context_method "
                "ring --parallel.shard_level 2",
                "--parallel.replicate 2 --parallel.context 2 --parallel.tensor 2 --parallel.context_method "
                "ring --parallel.shard_level 3",
                "--parallel.replicate 2 --parallel.tensor 2 --parallel.pipeline 2"}));
  RunConfig groups;
  groups.parallel.degree("context") = "4";
  groups.parallel.context_heads = 2;
  for (const RunLayout& layout : layouts(8, "qwen3", groups).possible) {
    expect_has(flags_of(layout), "--parallel.context 4 ");
    expect_has(flags_of(layout), "--parallel.context_method usp --parallel.context_heads 2");
    expect_has(to_string(layout), "context 4 usp of 2");
    EXPECT_EQ(with_layout({}, layout).parallel.context_heads, 2);
  }
  config.parallel.degree("tensor") = "3";
  EXPECT_TRUE(layouts(8, "qwen3", config).possible.empty());
}

// A layout whose ranks have rows of their own needs as many rows.
TEST(Layouts, RanksWithoutRowsAreLeftOut) {
  const RunLayouts few = layouts(4, "qwen3", {}, 2);
  const RunLayouts all = layouts(4, "qwen3");
  EXPECT_GT(few.idle, 0);
  for (const RunLayout& layout : few.possible) EXPECT_LE(layout.mesh.row_ranks(), 2) << to_string(layout);
  EXPECT_EQ(std::ssize(few.possible), std::ranges::count_if(all.possible, [](const RunLayout& layout) {
              return layout.mesh.row_ranks() <= 2;
            }));
  EXPECT_EQ(std::ssize(few.possible) + few.idle, std::ssize(all.possible));
}

TEST(Layouts, AreWrittenShortAndAsKeys) {
  const RunLayout layout{{.replicate = 2,
                          .shard = 4,
                          .context = 2,
                          .tensor = 2,
                          .context_method = ContextMethod::kKeys,
                          .shard_level = 3},
                         2,
                         4};
  EXPECT_EQ(to_string(layout), "replicate 2, shard 4, context 2 ring, tensor 2, level 3, pipeline 2 x 4");
  EXPECT_EQ(to_string(RunLayout()), "one rank");
  EXPECT_EQ(layout.ranks(), 64);
  EXPECT_EQ(layout.mesh.row_ranks(), 8);
}

}  // namespace
}  // namespace temper::recipes
