// Adapters that are merged into folders of GPTQ and AWQ, in the form of the folder.
#include "foreign/words/quantized_words.h"
#include "models/merged_quantized_test_support.h"
#include "tests/support/errors.h"

namespace temper::models {
namespace {

using checkpoints::TensorInfo;
using foreign::WordsIn;

struct InWords {
  std::string config;
  int bits = 4;
  bool awq = false, less_one = true, symmetric = false, in_order = true;
  int64_t group = 32;
};

// Made-up codes, zeros and scales of every matrix that quantizers may target.
class Words : public checkpoints::EncodedParameters {
 public:
  explicit Words(const InWords& how) : how_(how) {}
  std::vector<TensorInfo> list(const WeightSpec& spec) const override {
    std::vector<TensorInfo> infos;
    if (!spec.quantize) return infos;
    const int64_t columns = spec.shape[1], groups = (columns + how_.group - 1) / how_.group;
    for (const WeightSource& source : spec.sources) {
      const std::string module = source.name.substr(0, source.name.rfind('.'));
      infos.push_back(
          {module + ".qweight", shape_in_words(codes_in(), how_.bits, columns, source.rows), DType::kI32});
      infos.push_back(
          {module + ".qzeros", shape_in_words(zeros_in(), how_.bits, groups, source.rows), DType::kI32});
      infos.push_back({module + ".scales", {groups, source.rows}, DType::kF16});
      if (!how_.awq) infos.push_back({module + ".g_idx", {columns}, DType::kI32});
    }
    return infos;
  }
  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor&) const override {
    std::vector<Tensor> all;
    for (const TensorInfo& info : list(spec)) {
      if (info.name.ends_with(".scales")) {
        std::vector<float> scales(static_cast<size_t>(info.shape.numel()));
        for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(1 + i % 7);
        all.push_back(Tensor::from(scales).to(DType::kF16).reshape(info.shape));
        continue;
      }
      std::vector<int32_t> words(static_cast<size_t>(info.shape.numel()));
      for (size_t i = 0; i < words.size(); ++i) words[i] = word_of(info.name, i);
      all.push_back(Tensor::from(words).reshape(info.shape));
    }
    return all;
  }

 private:
  WordsIn codes_in() const { return how_.awq ? WordsIn::kAwqAcross : WordsIn::kDown; }
  WordsIn zeros_in() const { return how_.awq ? WordsIn::kAwqAcross : WordsIn::kAcross; }
  int32_t word_of(const std::string& name, size_t i) const {
    if (name.ends_with(".g_idx")) {
      const auto group = static_cast<int32_t>(static_cast<int64_t>(i) / how_.group);
      return how_.in_order ? group : group == 0 ? 1 : group == 1 ? 0 : group;
    }
    const auto made_up = static_cast<uint32_t>(i + 1) * 2654435761u;
    if (name.ends_with(".qweight") || !how_.symmetric) return static_cast<int32_t>(made_up);
    const uint32_t ones = 0xFFFFFFFFu / ((1u << how_.bits) - 1);
    return static_cast<int32_t>(ones * ((1u << (how_.bits - 1)) - (how_.less_one ? 1 : 0)));
  }
  InWords how_;
};

float rounded_to_half(float x) {
  return *Tensor::from(std::vector<float>{x}).to(DType::kF16).to(DType::kF32).data<float>();
}

// Of neighbours in a row what is read back.
void expect_group(std::span<const float> merged, std::span<const double> read, const InWords& how) {
  const float most = static_cast<float>((1 << how.bits) - 1),
              middle = static_cast<float>(1 << (how.bits - 1));
  float low = 0, high = 0;
  for (const float x : merged) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  if (!how.symmetric && how.less_one && -low * (most - 1) < high) low = -high / (most - 1);
  const float step =
      rounded_to_half(how.symmetric ? std::max(-low, high) / (middle - 1) : (high - low) / most);
  const float zero = how.symmetric ? middle : std::min(-std::nearbyint(low / step), most);
  for (size_t i = 0; i < merged.size(); ++i) {
    const float code = std::clamp(std::nearbyint(merged[i] / step) + zero, 0.f, most);
    EXPECT_EQ(read[i], (code - zero) * step) << i;
  }
}

class MergedWords : public MergedQuantized {
 protected:
  void make_base(const InWords& how) {
    for (const char* made : {"base", "adapter", "numbers", "codes"}) remove_all(out_ / made);
    const auto base = tiny_model({.sizes = {{"hidden_size", 64},
                                            {"num_attention_heads", 4},
                                            {"num_key_value_heads", 2},
                                            {"head_dim", 16},
                                            {"intermediate_size", 96}}});
    const Words words(how);
    Json config = base->config;
    config.set("quantization_config", Json::parse(how.config, ""));
    checkpoints::save_model(
        out_ / "base", base->decoder.parameters().table(),
        [&](const WeightSpec& spec) { return base->decoder.parameters().value(spec.name); }, config,
        {.dtype = DType::kF32, .encoded = &words});
    make_adapter({.rank = 2, .targets = {.names = {"down_proj", "k_proj"}}});
  }
};

TEST_F(MergedWords, FoldersOfGptqAndAwq) {
  for (const InWords& how : std::vector<InWords>{
           {R"({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"})", 4, true, false},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 32})"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true})", 4, false, true, true},
           {R"({"quant_method": "gptq", "bits": 3, "group_size": 32})", 3},
           {R"({"quant_method": "gptq", "bits": 2, "group_size": 64})", 2, false, true, false, true, 64},
           {R"({"quant_method": "gptq", "bits": 8, "group_size": 32, "checkpoint_format": "gptq_v2"})", 8,
            false, false}}) {
    SCOPED_TRACE(how.config);
    make_base(how);
    merge(MergedForm::kPlain, "numbers");
    merge(MergedForm::kAsBase, "codes");
    const auto numbers = load_model(out_ / "numbers", {}), codes = load_model(out_ / "codes", {});
    const Tensor merged = numbers->decoder.parameters().value("layers.0.mlp.down.weight");
    ASSERT_EQ(merged.shape(), (Shape{64, 96}));
    const Doubles read = values_of(codes->decoder.parameters().value("layers.0.mlp.down.weight"));
    for (int64_t row = 0; row < 64; ++row)
      for (int64_t first = 0; first < 96; first += how.group) {
        const auto at = static_cast<size_t>(row * 96 + first),
                   count = static_cast<size_t>(std::min(how.group, 96 - first));
        expect_group(merged.values<float>().subspan(at, count), std::span(read).subspan(at, count), how);
      }
    const ModelFolder before = open("base"), after = open("codes");
    EXPECT_EQ(after.config(), before.config());
    EXPECT_EQ(after.names().size(), before.names().size());
    for (const std::string& name : before.names()) {
      const checkpoints::TensorEntry *a = before.find(name), *b = after.find(name);
      ASSERT_NE(b, nullptr) << name;
      EXPECT_EQ(std::pair(a->dtype, a->shape), std::pair(b->dtype, b->shape)) << name;
      const bool changed =
                     name.find("down_proj") != std::string::npos || name.find("k_proj") != std::string::npos,
                 same = same_bytes(before.tensor(name), after.tensor(name));
      if (!changed || name.ends_with(".g_idx") || (how.symmetric && name.ends_with(".qzeros"))) {
        EXPECT_TRUE(same) << name;
      } else {
        EXPECT_FALSE(same) << name;
      }
    }
  }
}

TEST_F(MergedWords, ColumnsInTheOrderOfActivationsAreRefused) {
  make_base({R"({"quant_method": "gptq", "bits": 4, "group_size": 32})", 4, false, true, false, false});
  expect_has(error_of([&] { merge(MergedForm::kAsBase, "codes"); }),
             "is quantized as gptq, 4 bits, which is read, but not written: leave out --quantized");
}

}  // namespace
}  // namespace temper::models
