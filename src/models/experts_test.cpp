// Mixtures of experts in files and configurations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using checkpoints::ModelFolder;
using op_testing::values_of;

constexpr const char* kStacked = "model.layers.0.mlp.experts.gate_up_proj";
constexpr const char* kSingle = "model.layers.0.mlp.experts.3.up_proj.weight";

class ExpertsOnDisk : public testing::Test {
 protected:
  std::string saved(const char* type, bool stacked, DType dtype = DType::kF32) {
    const auto model =
        tiny_model({.type = type, .dtype = dtype, .experts = std::string_view(type) == "deepseek_v3"});
    model->decoder.parameters().set_stacked(stacked);
    const std::string path = folder / (stacked ? "stacked" : "single");
    save_model(*model, path, "");
    return path;
  }
  // The folder's tensors, some left out, added or changed.
  void rewrite(const std::string& path, const std::function<void(std::map<std::string, Tensor>&)>& change) {
    std::map<std::string, Tensor> tensors;
    {
      const ModelFolder files = ModelFolder::open(path);
      for (const std::string& name : files.names()) tensors[name] = files.tensor(name).clone();
    }
    change(tensors);
    std::vector<checkpoints::TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
    checkpoints::SafetensorsWriter writer(join_path(path, "model.safetensors"), infos);
    for (const auto& [name, tensor] : tensors) writer.add(tensor);
    writer.close();
  }

  TemporaryDirectory folder;
};

void expect_same(const Model& a, const Model& b) {
  const auto &left = a.decoder.parameters(), &right = b.decoder.parameters();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i)
    EXPECT_EQ(values_of(left[i].value), values_of(right[i].value)) << left.spec(i).name;
}

TEST_F(ExpertsOnDisk, BothLayoutsAreReadAndTheInputsIsWritten) {
  for (const char* type : {"qwen3_moe", "deepseek_v3"})
    for (const bool stacked : {false, true}) {
      const std::string path = saved(type, stacked), again = folder / "again";
      const char* const layer = std::string_view(type) == "qwen3_moe" ? "0" : "1";
      const std::string all = fmt::format("model.layers.{}.mlp.experts.gate_up_proj", layer),
                        one = fmt::format("model.layers.{}.mlp.experts.3.up_proj.weight", layer);
      const auto check = [&](const std::string& where) {
        const ModelFolder files = ModelFolder::open(where);
        EXPECT_EQ(files.find(all) != nullptr, stacked);
        EXPECT_EQ(files.find(one) != nullptr, !stacked);
        if (stacked) {
          EXPECT_EQ(files.find(all)->shape.size(), 3u);
        }
      };
      check(path);
      const auto model = load_model(path, {});
      expect_same(*model, *tiny_model({.type = type, .experts = std::string_view(type) == "deepseek_v3"}));
      save_model(*model, again, "");
      check(again);
      expect_same(*load_model(again, {}), *model);
    }
}

// transformers 5 renames the module where it stacks experts.
TEST_F(ExpertsOnDisk, MixtralHasTheNamesOfEitherLayout) {
  Json config = tiny_config("mixtral");
  config.set("num_local_experts", 4);
  config.set("num_experts_per_tok", 2);
  const auto model = build_model(config, "tiny", {});
  model->decoder.parameters().initialize(7, 0.3);
  for (const bool stacked : {false, true}) {
    const std::string path = folder / (stacked ? "stacked" : "single"), again = path + "-again";
    const auto check = [&](const std::string& where) {
      const ModelFolder files = ModelFolder::open(where);
      EXPECT_EQ(files.find("model.layers.0.block_sparse_moe.gate.weight") != nullptr, !stacked);
      EXPECT_EQ(files.find("model.layers.0.block_sparse_moe.experts.3.w2.weight") != nullptr, !stacked);
      EXPECT_EQ(files.find("model.layers.0.mlp.gate.weight") != nullptr, stacked);
      ASSERT_EQ(files.find("model.layers.0.mlp.experts.gate_up_proj") != nullptr, stacked);
      if (stacked) {
        EXPECT_EQ(files.find("model.layers.0.mlp.experts.gate_up_proj")->shape,
                  (std::vector<int64_t>{4, 96, 32}));
      }
    };
    model->decoder.parameters().set_stacked(stacked);
    save_model(*model, path, "");
    check(path);
    const auto read = load_model(path, {});
    expect_same(*read, *model);
    save_model(*read, again, "");
    check(again);
  }
  rewrite(folder / "stacked", [](auto& tensors) {
    tensors["model.layers.0.block_sparse_moe.gate.weight"] = tensors["model.layers.0.mlp.gate.weight"];
  });
  expect_has(error_of([&] { load_model(folder / "stacked", {}); }),
             "'model.layers.0.block_sparse_moe.gate.weight' and 'model.layers.0.mlp.gate.weight'");
}

// Layers that predict several tokens are no part of a pass: they are written back bit by bit.
TEST_F(ExpertsOnDisk, LayersBehindTheLastOneAreKept) {
  const std::string path = saved("deepseek_v3", false), again = folder / "again", merged = folder / "merged";
  const std::map<std::string, Tensor> more = {
      {"model.layers.2.eh_proj.weight", Tensor::from(std::vector<float>{0.1f, 0.2f, 0.3f})},
      {"model.layers.2.enorm.weight", Tensor::from(std::vector<float>{1.5f, -2.25f}).to(DType::kBF16)},
      {"model.layers.2.mlp.experts.0.up_proj.weight",
       Tensor::from(std::vector<float>{2.5f, 7, 1, 4}).reshape({2, 2}).to(DType::kF16)}};
  rewrite(path, [&](auto& tensors) { tensors.insert(more.begin(), more.end()); });
  expect_has(error_of([&] { load_model(path, {}); }), "3 unknown: 'model.layers.2.eh_proj.weight'");
  Json config = checkpoints::read_model_config(path);
  config.set("num_nextn_predict_layers", 1);
  write_file(join_path(path, "config.json"), config.dump());

  const auto model = load_model(path, {});
  model->decoder.parameters().initialize(3, 0.3);
  save_model(*model, again, path);
  save_adapter(*new_adapter(*model, {.rank = 2}, 1, ""), folder / "adapter", "");
  merge_adapter(folder / "adapter", path, merged, 4000);  // cut into shards
  for (const std::string& written : {again, merged}) {
    const ModelFolder files = ModelFolder::open(written);
    for (const auto& [name, tensor] : more) {
      ASSERT_NE(files.find(name), nullptr) << written << name;
      const Tensor found = files.tensor(name);
      EXPECT_EQ(found.dtype(), tensor.dtype());
      ASSERT_EQ(found.shape(), tensor.shape());
      EXPECT_EQ(std::memcmp(found.raw(), tensor.raw(), static_cast<size_t>(tensor.bytes())), 0) << name;
    }
  }
  expect_same(*load_model(again, {}), *model);
  rewrite(path,
          [&](auto& tensors) { tensors["model.layers.3.enorm.weight"] = Tensor::zeros({5}, DType::kF32); });
  expect_has(error_of([&] { load_model(path, {}); }), "1 unknown: 'model.layers.3.enorm.weight'");
  config.set("num_nextn_predict_layers", -1);
  EXPECT_EQ(error_of([&] { configure(config, "config.json"); }),
            "[config.json] num_nextn_predict_layers is -1, expected 0 to 64");
}

TEST_F(ExpertsOnDisk, WhatIsWrongIsNamed) {
  const std::string single = saved("qwen3_moe", false), stacked = saved("qwen3_moe", true);
  const auto error = [](const std::string& path) { return error_of([&] { load_model(path, {}); }); };
  rewrite(single, [](auto& tensors) { tensors.erase(kSingle); });
  expect_has(error(single), fmt::format("1 missing: {}", kSingle));
  rewrite(single, [](auto& tensors) { tensors[kSingle] = Tensor::zeros({15, 32}, DType::kF32); });
  expect_has(error(single),
             fmt::format("1 of another shape or dtype: '{}' is [15, 32], expected [16, 32]", kSingle));
  rewrite(stacked, [](auto& tensors) { tensors[kStacked] = Tensor::zeros({6, 31, 32}, DType::kF32); });
  expect_has(error(stacked),
             fmt::format("1 of another shape or dtype: '{}' is [6, 31, 32], expected [6, 32, 32]", kStacked));
  rewrite(stacked, [](auto& tensors) {
    tensors[kStacked] = Tensor::zeros({6, 32, 32}, DType::kF32);
    tensors[kSingle] = Tensor::zeros({16, 32}, DType::kF32);
  });
  expect_has(error(stacked),
             fmt::format("1 in two forms; keep one of them: '{}' and '{}'", kSingle, kStacked));
  // Stacked in one layer, one by one in the other.
  const std::string mixed = saved("qwen3_moe", true);
  const ModelFolder one_by_one = ModelFolder::open(saved("qwen3_moe", false));
  rewrite(mixed, [&](auto& tensors) {
    std::erase_if(tensors,
                  [](const auto& each) { return each.first.starts_with("model.layers.1.mlp.experts."); });
    for (const std::string& name : one_by_one.names())
      if (name.starts_with("model.layers.1.mlp.experts.")) tensors[name] = one_by_one.tensor(name).clone();
  });
  expect_has(
      error(mixed),
      "2 of single experts, where others are stacked; write all in one form: "
      "'model.layers.1.mlp.experts.0.gate_proj.weight', 'model.layers.1.mlp.experts.0.down_proj.weight'");
}

// Its values are small compared with those of a sum in bfloat16: 238 of them would become 8.
TEST_F(ExpertsOnDisk, TheCorrectionBiasStaysFloat32) {
  const std::string path = saved("deepseek_v3", false, DType::kBF16),
                    name = "model.layers.1.mlp.gate.e_score_correction_bias";
  const std::vector<float> values = {4.0001f, 4.0002f, 4.0003f, -1e-7f, 3.99995f, 4, 0.1f, 1e-3f};
  rewrite(path, [&](auto& tensors) { tensors[name] = Tensor::from(values); });
  const auto model = load_model(path, {.dtype = DType::kBF16});
  const Tensor& bias = model->decoder.parameters().at("layers.1.mlp.gate.correction_bias").value;
  EXPECT_EQ(bias.dtype(), DType::kF32);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), bias.values<float>().begin()));
  save_model(*model, folder / "again", "");
  const ModelFolder files = ModelFolder::open(folder / "again");
  EXPECT_EQ(files.find(name)->dtype, "F32");
  const Tensor written = files.tensor(name);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), written.values<float>().begin()));
  EXPECT_EQ(files.find("model.layers.1.mlp.gate.weight")->dtype, "BF16");
}

TEST(ExpertsConfiguration, IsCheckedByName) {
  const auto error = [](const char* key, Json value) {
    Json config = tiny_config("qwen3_moe");
    config.set(key, std::move(value));
    return error_of([&] { configure(config, "config.json"); });
  };
  EXPECT_EQ(error("num_experts_per_tok", 7),
            "[config.json] num_experts_per_tok is 7, but there are 6 experts");
  EXPECT_EQ(error("num_experts", 0), "[config.json] num_experts is 0, expected 1 to 4096");
  EXPECT_EQ(error("decoder_sparse_step", 0), "[config.json] decoder_sparse_step is 0, expected 1 or more");
  const Json::Array wrong{Json(2)};
  EXPECT_EQ(error("mlp_only_layers", wrong),
            "[config.json] mlp_only_layers has 2, expected layers from 0 to 1");
  EXPECT_EQ(error("router_aux_loss_coef", -1.0),
            "[config.json] router_aux_loss_coef is -1, expected 0 or more");
}

TEST(ExpertsConfiguration, LayersMayBeDense) {
  Json config = tiny_config("qwen3_moe");
  const auto routed = [&] {
    std::vector<bool> found;
    for (const layers::Block& block : configure(config, "config.json").blocks)
      found.push_back(block.channel->routing() != nullptr);
    return found;
  };
  EXPECT_EQ(routed(), (std::vector<bool>{true, true}));
  config.set("decoder_sparse_step", 2);
  EXPECT_EQ(routed(), (std::vector<bool>{false, true}));
  config.set("mlp_only_layers", Json::Array{Json(1)});
  EXPECT_EQ(routed(), (std::vector<bool>{false, false}));
}

TEST(ExpertsConfiguration, TheLoadBalancingLossIsThatOfTransformers) {
  Json config = tiny_config("qwen3_moe");
  EXPECT_EQ(configure(config, "config.json").balance_factor, 0);
  config.set("output_router_logits", true);
  EXPECT_EQ(configure(config, "config.json").balance_factor, 0.001);
  config.set("router_aux_loss_coef", 0.25);
  EXPECT_EQ(configure(config, "config.json").balance_factor, 0.25);
}

}  // namespace
}  // namespace temper::models
