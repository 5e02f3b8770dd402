#pragma once
#include <memory>

#include "models/model.h"

// A model small enough for unit tests, with normal weights of its own seed. Built with eager kernels by
// default.
namespace temper {

struct TinyModel {
  const char* type = "qwen3";
  DType dtype = DType::kF32;
  ops::OpsConfig ops{.fallback = std::string(ops::kEager)};
  double deviation = 0.3;  // wide enough that every token has its own answer
  HardwareFacts facts = detect_cpu();
  layers::StateFormat format = {};  // of what is trained
  std::optional<primitives::FrozenFormat> base_dtype = {};
  bool experts = false;
  layers::RouterOptions routers = {};
  quantizers::QuantizeOptions quantize = {};
  std::vector<std::pair<const char*, Json>> sizes = {};  // of config.json, instead of those below
};

// Of qwen3_moe both layers have 6 experts of 16, two for each token; with `experts` the second layer of
// deepseek_v3 has 8 of them in 4 groups, of which two count, and a shared one. Vocabulary 48, hidden 32, 2
// layers, 4 heads over 2 KV heads of 8, context 64. Of deepseek_v3 all layers are dense, and heads are of 6 +
// 4 and 8.
Json tiny_config(const char* type = "qwen3");
std::unique_ptr<models::Model> tiny_model(const TinyModel& options = {});

}  // namespace temper
