// Adapters in the weights of small folders, as numbers and in the form of the folder.
#include "checkpoints/merge.h"

#include <gtest/gtest.h>

#include <bit>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/quantized_test_support.h"

namespace temper::checkpoints {
namespace {

// Numbers from -size to size that are not even; another `start`, other numbers.
Tensor uneven(const Shape& shape, int start, float size = 1) {
  const Tensor all = Tensor::empty(shape, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i) {
    const auto bits = static_cast<uint32_t>((i + 1 + 1000 * start) * 2654435761u);
    all.data<float>()[i] = size * (static_cast<float>(bits >> 8) * 0x1p-23f - 1.f);
  }
  return all;
}

bool same_bytes_in(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

const std::string kQ = "model.layers.0.q_proj", kK = "model.layers.0.k_proj", kO = "model.layers.0.o_proj",
                  kEmbedding = "model.embed_tokens", kExpert = "model.layers.0.experts.";

class Merges : public testing::Test {
 protected:
  Merges() {
    add("qkv", {12, 32}, {{kQ + ".weight", 8}, {kK + ".weight", 4}}, LoraRole::kLinear);
    add("out", {8, 32}, {{kO + ".weight", 8}}, LoraRole::kLinear);
    add("embedding", {8, 32}, {{kEmbedding + ".weight", 8}}, LoraRole::kEmbedding);
  }
  void add(const std::string& name, const Shape& shape, std::vector<WeightSource> sources, LoraRole role) {
    table_.add(
        {.name = name, .shape = shape, .axes = {"a", "b"}, .sources = std::move(sources), .lora = role});
  }
  void add_head() { add("head", {8, 32}, {{"lm_head.weight", 8}}, LoraRole::kHead); }
  void add_experts() {
    table_.add({.name = "experts",
                .shape = {16, 32},
                .axes = {"a", "b"},
                .sources = {{kExpert + "0.up_proj.weight", 8}, {kExpert + "1.up_proj.weight", 8}},
                .lora = LoraRole::kExperts,
                .experts = 2,
                .stacked = "model.layers.0.experts.up",
                .stacked_shape = {2, 8, 32},
                .transposes_stacked = true});
  }
  // Plain values of all sources that `tensors` has not.
  void write_base(const Parts& tensors, const std::string& config = "{}", DType dtype = DType::kF32) {
    Parts all = tensors;
    int start = 0;
    for (const WeightSpec& spec : table_.specs())
      for (const WeightSource& source : spec.sources) {
        const std::string module = source.name.substr(0, source.name.rfind('.'));
        const bool given = std::any_of(tensors.begin(), tensors.end(), [&](const Part& part) {
          return part.first.starts_with(module) || part.first == spec.stacked || part.first == spec.name;
        });
        if (!given) all.emplace_back(source.name, uneven({source.rows, 32}, ++start).to(dtype));
      }
    std::stable_sort(all.begin(), all.end(), [](const Part& a, const Part& b) {
      return size_of(a.second.dtype()) > size_of(b.second.dtype());
    });
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : all) infos.push_back({name, tensor.shape(), tensor.dtype()});
    make_directories(folder_ / "base");
    SafetensorsWriter writer(folder_ / "base/model.safetensors", infos);
    for (const auto& [name, tensor] : all) writer.add(tensor);
    writer.close();
    write_file(folder_ / "base/config.json", config);
  }
  void write_adapter(const LoraConfig& config, float size = 1) {
    plan_ = plan_lora(table_, config, "");
    const WeightTable table = lora_table(table_, plan_);
    int start = 50;
    save_adapter(
        folder_ / "adapter", table, [&](const WeightSpec& spec) { return uneven(spec.shape, ++start, size); },
        adapter_config_json(config, plan_, "base"));
  }
  void write_adapter_of(const std::vector<std::string>& modules, float size = 1) {
    write_adapter({.rank = 2, .alpha = 3, .targets = {.names = modules}}, size);
  }
  ModelFolder merged(MergedForm form = MergedForm::kPlain) {
    merge_adapter(folder_ / "adapter", folder_ / "base", read_model_config(folder_ / "base"), table_,
                  folder_ / "out", 1 << 30, form);
    return ModelFolder::open(folder_ / "out");
  }
  std::string refusal(MergedForm form = MergedForm::kPlain) {
    const std::string error = error_of([&] { merged(form); });
    EXPECT_FALSE(exists(folder_ / "out"));
    return error;
  }
  ModelFolder base() const { return ModelFolder::open(folder_ / "base"); }
  Tensor of_adapter(const std::string& name) const {
    return ModelFolder::open_adapter(folder_ / "adapter", table_).tensor("base_model.model." + name);
  }
  // Values of a module [rows, columns] with 1.5 B A in them.
  void expect_sum(const Tensor& found, const Tensor& own, const Tensor& b, const Tensor& a, double near) {
    for (int64_t row = 0; row < own.dim(0); ++row)
      for (int64_t c = 0; c < own.dim(1); ++c) {
        double sum = own.to(DType::kF32).data<float>()[row * own.dim(1) + c];
        for (int64_t k = 0; k < 2; ++k)
          sum += 1.5 * b.data<float>()[row * 2 + k] * a.data<float>()[k * own.dim(1) + c];
        ASSERT_NEAR(found.data<float>()[row * own.dim(1) + c], sum, near) << row << ", " << c;
      }
  }
  void expect_linear(const Tensor& found, const Tensor& own, const std::string& module, double near = 1e-6) {
    expect_sum(found, own, of_adapter(module + ".lora_B.weight"), of_adapter(module + ".lora_A.weight"),
               near);
  }

  TemporaryDirectory folder_;
  WeightTable table_;
  LoraPlan plan_;
};

TEST_F(Merges, LinearsAndTheEmbedding) {
  add_head();
  write_base({});
  write_adapter_of({"q_proj", "embed_tokens"});
  const ModelFolder out = merged();
  expect_linear(out.tensor(kQ + ".weight"), base().tensor(kQ + ".weight"), kQ);
  // The embedding has rows of tokens: Aᵀ Bᵀ.
  const Tensor a = of_adapter(kEmbedding + ".lora_embedding_A"),
               b = of_adapter(kEmbedding + ".lora_embedding_B");
  expect_sum(out.tensor(kEmbedding + ".weight"), base().tensor(kEmbedding + ".weight"),
             a.transpose(0, 1).contiguous(), b.transpose(0, 1).contiguous(), 1e-6);
  for (const std::string& name : {kK + ".weight", kO + ".weight", std::string("lm_head.weight")})
    EXPECT_TRUE(same_bytes_in(out.tensor(name), base().tensor(name))) << name;
}

TEST_F(Merges, ModulesTrainedWholeReplaceTheModels) {
  write_base({});
  write_adapter({.rank = 2, .targets = {.names = {"q_proj"}}, .modules_to_save = {"o_proj"}});
  EXPECT_TRUE(same_bytes_in(merged().tensor(kO + ".weight"), of_adapter(kO + ".weight")));
}

TEST_F(Merges, DtypesOfTheBaseAreKept) {
  write_base({}, R"({"dtype": "bfloat16"})", DType::kBF16);
  write_adapter_of({"q_proj"});
  const Tensor found = merged().tensor(kQ + ".weight");
  EXPECT_EQ(found.dtype(), DType::kBF16);
  expect_linear(found.to(DType::kF32), base().tensor(kQ + ".weight"), kQ, 0.02);
  // Of several dtypes each tensor has its own.
  write_base({{kO + ".weight", uneven({8, 32}, 9).to(DType::kF16)}});
  const ModelFolder mixed = merged();
  EXPECT_EQ(mixed.tensor(kO + ".weight").dtype(), DType::kF16);
  EXPECT_EQ(mixed.tensor(kQ + ".weight").dtype(), DType::kF32);
}

TEST_F(Merges, ExpertsByThemselvesStackedOrTransposed) {
  add_experts();
  const Tensor all = uneven({2, 8, 32}, 7);
  write_adapter_of({"experts.0.up_proj", "experts.1.up_proj"});
  const auto expect_experts = [&](const Tensor& found) {  // [16, 32]
    for (int64_t e = 0; e < 2; ++e) {
      SCOPED_TRACE(e);
      expect_linear(found.narrow(0, e * 8, 8), all.reshape({16, 32}).narrow(0, e * 8, 8),
                    fmt::format("{}{}.up_proj", kExpert, e));
    }
  };
  write_base({{"model.layers.0.experts.up", all}});
  expect_experts(merged().tensor("model.layers.0.experts.up").reshape({16, 32}));
  write_base({{"model.layers.0.experts.up", all.transpose(1, 2).contiguous()}});
  const Tensor turned = merged().tensor("model.layers.0.experts.up");
  EXPECT_EQ(turned.shape(), (Shape{2, 32, 8}));
  expect_experts(turned.transpose(1, 2).contiguous().reshape({16, 32}));
  write_base({{kExpert + "0.up_proj.weight", all.reshape({16, 32}).narrow(0, 0, 8)},
              {kExpert + "1.up_proj.weight", all.reshape({16, 32}).narrow(0, 8, 8)}});
  const ModelFolder out = merged();
  const Tensor both = Tensor::empty({16, 32}, DType::kF32);
  for (int64_t e = 0; e < 2; ++e)
    both.narrow(0, e * 8, 8).copy_from(out.tensor(fmt::format("{}{}.up_proj.weight", kExpert, e)));
  expect_experts(both);
}

// Codes of a matrix [rows, 32] in bytes, one scale a row.
Parts coded(const std::string& module, int64_t rows, int start) {
  const Tensor codes = zeros({rows, 32}, DType::kI8), scales = zeros({rows}, DType::kF32);
  for (int64_t i = 0; i < codes.numel(); ++i)
    codes.data<int8_t>()[i] = static_cast<int8_t>((i + start) * 37 % 255 - 127);
  for (int64_t i = 0; i < rows; ++i) scales.data<float>()[i] = 0.01f * static_cast<float>(i + 1);
  return {{module + ".weight", codes}, {module + ".weight_scale", scales}};
}
const std::string kInt8 = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W8A16"}})";

TEST_F(Merges, CodesBecomeNumbersOfTheOthersDtype) {
  write_base(coded(kQ, 8, 1), kInt8, DType::kBF16);
  write_adapter_of({"q_proj"});
  const ModelFolder out = merged();
  EXPECT_EQ(out.form(), nullptr);
  EXPECT_EQ(out.tensor(kQ + ".weight").dtype(), DType::kBF16);
  const ModelFolder from = base();
  const Tensor own = from.form()->rows(from, {kQ + ".weight", 8, 32}, 0, 8);
  expect_linear(out.tensor(kQ + ".weight").to(DType::kF32), own, kQ, 0.05);
}

TEST_F(Merges, CodesStayCodesOfWhatChanges) {
  Parts tensors = coded(kQ, 8, 1);  // k has plain values
  for (Part& part : coded(kO, 8, 5)) tensors.push_back(part);
  const Tensor before = uneven({32}, 3);
  for (float& factor : before.values<float>()) factor = 1.5f + factor;
  tensors.emplace_back(kQ + ".pre_quant_scale", before);
  write_base(tensors, kInt8);
  write_file(folder_ / "base/hf_quant_config.json", R"({"quantization": {"quant_algo": "W8A16"}})");
  write_adapter_of({"q_proj", "k_proj"});
  const ModelFolder from = base(), out = merged(MergedForm::kAsBase);
  EXPECT_EQ(read_file(folder_ / "out/hf_quant_config.json").find("W8A16") == std::string::npos, false);
  EXPECT_EQ(out.config(), from.config());
  for (const std::string& kept : {kO + ".weight", kO + ".weight_scale", kQ + ".pre_quant_scale"})
    EXPECT_TRUE(same_bytes_in(out.tensor(kept), from.tensor(kept))) << kept;
  const QuantizedMatrix matrix{kQ + ".weight", 8, 32};
  // Half a step of a row, times the largest factor.
  expect_linear(out.form()->rows(out, matrix, 0, 8), from.form()->rows(from, matrix, 0, 8), kQ, 0.15);
  EXPECT_FALSE(same_bytes_in(out.tensor(kQ + ".weight_scale"), from.tensor(kQ + ".weight_scale")));
  expect_linear(out.tensor(kK + ".weight"), from.tensor(kK + ".weight"), kK);
}

// What shares a scale of the whole is encoded again where one changes.
TEST_F(Merges, ScalesOfTheWholeAreShared) {
  const auto fp8 = [](const std::string& module, int64_t rows) {
    const Tensor codes = zeros({rows, 32}, DType::kF8E4M3);
    for (int64_t i = 0; i < codes.numel(); ++i)
      codes.data<Float8E4M3>()[i] = std::bit_cast<Float8E4M3>(static_cast<uint8_t>(i * 37 % 127));
    return Parts{{module + ".weight", codes},
                 {module + ".weight_scale", Tensor::from<float>(Values{0.5f}, {1}).reshape({})},
                 {module + ".input_scale", Tensor::from<float>(Values{3}, {1}).reshape({})}};
  };
  Parts tensors = fp8(kQ, 8);
  for (Part& part : fp8(kK, 4)) tensors.push_back(part);
  write_base(tensors, R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}})");
  write_adapter_of({"q_proj"}, 2);
  const ModelFolder from = base(), out = merged(MergedForm::kAsBase);
  EXPECT_TRUE(same_bytes_in(out.tensor(kQ + ".weight_scale"), out.tensor(kK + ".weight_scale")));
  EXPECT_FALSE(same_bytes_in(out.tensor(kK + ".weight_scale"), from.tensor(kK + ".weight_scale")));
  EXPECT_TRUE(same_bytes_in(out.tensor(kQ + ".input_scale"), from.tensor(kQ + ".input_scale")));
}

TEST_F(Merges, ExpertsInCodesHaveScalesOfTheirOwn) {
  add_experts();
  Parts tensors;
  for (int e = 0; e < 2; ++e)
    for (Part& part : coded(fmt::format("{}{}.up_proj", kExpert, e), 8, e)) tensors.push_back(part);
  write_base(tensors, kInt8);
  write_adapter_of({"experts.0.up_proj", "experts.1.up_proj"});
  const ModelFolder from = base(), out = merged(MergedForm::kAsBase);
  for (int e = 0; e < 2; ++e) {
    const QuantizedMatrix matrix{fmt::format("{}{}.up_proj.weight", kExpert, e), 8, 32};
    expect_linear(out.form()->rows(out, matrix, 0, 8), from.form()->rows(from, matrix, 0, 8),
                  fmt::format("{}{}.up_proj", kExpert, e), 0.05);
  }
}

TEST_F(Merges, Mxfp4BecomesNumbers) {
  table_.add({.name = "blocks",
              .shape = {4, 32},
              .axes = {"a", "b"},
              .sources = {{"blocks", 4}},
              .experts_in_files = 2,
              .mxfp4 = true});
  const Tensor codes = zeros({2, 2, 1, 16}, DType::kU8), scales = zeros({2, 2, 1}, DType::kU8);
  for (int64_t i = 0; i < codes.numel(); ++i) codes.data<uint8_t>()[i] = 0x42;  // 1, 2
  for (int64_t i = 0; i < 4; ++i) scales.data<uint8_t>()[i] = static_cast<uint8_t>(127 + i);
  write_base({{"blocks_blocks", codes}, {"blocks_scales", scales}}, "{}", DType::kBF16);
  write_adapter_of({"q_proj"});
  const Tensor found = merged().tensor("blocks");  // [experts, columns, rows of one]
  EXPECT_EQ(found.shape(), (Shape{2, 32, 2}));
  EXPECT_EQ(found.dtype(), DType::kBF16);
  const Tensor values = found.to(DType::kF32);
  for (int64_t e = 0; e < 2; ++e)
    for (int64_t c = 0; c < 32; ++c)
      for (int64_t row = 0; row < 2; ++row)
        EXPECT_EQ(values.data<float>()[(e * 32 + c) * 2 + row],
                  std::ldexp(c % 2 == 0 ? 1.f : 2.f, static_cast<int>(e * 2 + row)));
}

TEST_F(Merges, AHeadThatIsTheEmbeddingIsRefused) {
  WeightSpec head;
  head.name = "head";
  head.shape = {8, 32};
  head.axes = {"a", "b"};
  head.sources = {{"lm_head.weight", 8}};
  head.lora = LoraRole::kHead;
  table_.tie(head, "embedding");
  write_base({});
  for (const auto& [module, said] : std::vector<std::pair<std::string, std::string>>{
           {"embed_tokens",
            "the adapter changes the embedding alone, but the model's head is the same tensor"},
           {"lm_head", "the adapter changes the head alone, but the model's embedding is the same tensor"}}) {
    write_adapter_of({"q_proj", module});
    expect_has(refusal(), said);
    write_adapter({.rank = 2, .targets = {.names = {"q_proj"}}, .modules_to_save = {module}});
    expect_has(refusal(), said);
  }
  write_adapter_of({"q_proj"});
  EXPECT_NO_THROW(merged());
}

TEST_F(Merges, Refusals) {
  write_base({});
  write_adapter_of({"q_proj"}, 1e25f);
  expect_has(refusal(),
             "with the adapter in it the weight is larger than float32 can hold: use the adapter unmerged");
  write_adapter_of({"q_proj"}, HUGE_VALF);
  expect_has(refusal(), "tensor 'base_model.model.model.layers.0.q_proj.lora_");
  write_adapter_of({"q_proj"});
  expect_has(refusal(MergedForm::kAsBase), "base] has plain values: leave out --quantized");
  write_base({}, kInt8);
  expect_has(refusal(MergedForm::kAsBase), "base] has plain values: leave out --quantized");
  write_base(coded(kQ, 8, 1), R"({"quantization_config": {"quant_method": "compressed-tensors",
                                  "format": "int-quantized"}})");
  EXPECT_NO_THROW(merged(MergedForm::kAsBase));
  remove_all(folder_ / "out");
  Parts one_scale = coded(kQ, 8, 1);
  one_scale[1].second = Tensor::from<float>(Values{0.5f}, {1});
  write_base(one_scale, R"({"quantization_config": {"quant_method": "compressed-tensors",
                            "format": "int-quantized"}})");
  expect_has(
      refusal(MergedForm::kAsBase),
      "'model.layers.0.q_proj.weight' is quantized as compressed-tensors int-quantized, which is read, but "
      "not written: leave out --quantized");
  // A base whose own numbers are none.
  const Tensor broken = uneven({8, 32}, 1);
  broken.data<float>()[33] = std::nanf("");
  write_base({{kO + ".weight", broken}});
  expect_has(refusal(), fmt::format("[{}] tensor '{}.weight': found nan at [1, 1]", folder_ / "base", kO));
}

TEST(AddLowRank, WhatDoesNotFitIsADefect) {
  const Tensor weight = uneven({4, 3}, 1);
  expect_has(error_of(
                 [&] {
                   add_low_rank(weight, uneven({4, 2}, 2), uneven({2, 4}, 3), 1);
                 },
                 ErrorKind::kDefect),
             "a low-rank update fits its weight");
  expect_has(error_of(
                 [&] {
                   add_low_rank(weight, uneven({3, 2}, 2), uneven({2, 3}, 3), 1);
                 },
                 ErrorKind::kDefect),
             "a low-rank update fits its weight");
}

}  // namespace
}  // namespace temper::checkpoints
