// gpt-oss: what its config.json may say, and its experts in files, as numbers and in MXFP4.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "models/config_test_support.h"
#include "tests/support/op_testing.h"
#include "tests/support/relative_error.h"

namespace temper::models {
namespace {

using checkpoints::ModelFolder;
using op_testing::values_of;

constexpr const char* kGateUp = "model.layers.1.mlp.experts.gate_up_proj";
constexpr int64_t kGptExperts = 4, kGptHidden = 32, kGptWidth = 32;

class GptOss : public testing::Test {
 protected:
  // Widths in whole blocks of MXFP4.
  static Json config() { return with("gpt_oss", R"({"intermediate_size": 32})"); }
  std::string saved() {
    const auto model = build_model(config(), "tiny", {});
    auto& parameters = model->decoder.parameters();
    parameters.initialize(7, 0.5);
    for (size_t i = 0; i < parameters.size(); ++i)
      if (parameters.spec(i).name.ends_with(".bias"))
        for (float& value : parameters[i].value.values<float>())
          value = static_cast<float>(&value - parameters[i].value.data<float>());
    save_model(*model, folder / "model", "");
    return folder / "model";
  }
  // The folder's tensors and configuration, some left out, added or changed.
  using Tensors = std::map<std::string, Tensor>;
  void rewrite(const std::string& path, const std::function<void(Tensors&)>& change) {
    Tensors tensors;
    {
      const ModelFolder files = ModelFolder::open(path);
      for (const std::string& name : files.names()) tensors[name] = files.tensor(name).clone();
    }
    change(tensors);
    std::vector<checkpoints::TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
    std::stable_sort(infos.begin(), infos.end(),
                     [](const auto& a, const auto& b) { return size_of(a.dtype) > size_of(b.dtype); });
    checkpoints::SafetensorsWriter writer(join_path(path, "model.safetensors"), infos);
    for (const auto& info : infos) writer.add(tensors.at(info.name));
    writer.close();
  }
  // Puts codes that count up in the place of one layer's gate_up_proj.
  void use_mxfp4(const std::string& path) {
    rewrite(path, [](Tensors& tensors) {
      tensors.erase(kGateUp);
      Tensor codes = Tensor::zeros({kGptExperts, 2 * kGptWidth, 1, 16}, DType::kU8),
             scales = Tensor::zeros({kGptExperts, 2 * kGptWidth, 1}, DType::kU8);
      for (int64_t i = 0; i < codes.numel(); ++i) codes.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
      for (int64_t i = 0; i < scales.numel(); ++i)
        scales.data<uint8_t>()[i] = static_cast<uint8_t>(120 + i % 11);
      tensors[std::string(kGateUp) + "_blocks"] = codes;
      tensors[std::string(kGateUp) + "_scales"] = scales;
    });
    Json json = checkpoints::read_model_config(path);
    json.set("quantization_config", Json::Object{{"quant_method", "mxfp4"}});
    write_file(join_path(path, "config.json"), json.dump(2, true));
  }

  TemporaryDirectory folder;
};

void expect_equal_weights(const Model& a, const Model& b) {
  const auto &left = a.decoder.parameters(), &right = b.decoder.parameters();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i)
    EXPECT_EQ(values_of(left[i].value), values_of(right[i].value)) << left.spec(i).name;
}

// Files: [experts, hidden, 2 width], columns of gate and up in turns. Memory: gate's rows, then up's.
TEST_F(GptOss, FilesHaveTransposesWithGateAndUpInTurns) {
  const std::string path = saved();
  const auto model = load_model(path, {});
  const ModelFolder files = ModelFolder::open(path);
  const Tensor held = files.tensor(kGateUp), bias = files.tensor(std::string(kGateUp) + "_bias"),
               down = files.tensor("model.layers.1.mlp.experts.down_proj");
  const auto memory = [&](const char* name) {
    return values_of(model->decoder.parameters().value(std::string("layers.1.mlp.experts.") + name));
  };
  const auto gate_up = memory("gate_up.weight"), gate_up_bias = memory("gate_up.bias"),
             of_down = memory("down.weight");
  ASSERT_EQ(held.shape(), (Shape{kGptExperts, kGptHidden, 2 * kGptWidth}));
  ASSERT_EQ(bias.shape(), (Shape{kGptExperts, 2 * kGptWidth}));
  ASSERT_EQ(down.shape(), (Shape{kGptExperts, kGptWidth, kGptHidden}));
  for (int64_t e = 0; e < kGptExperts; ++e)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t i = 0; i < kGptWidth; ++i) {
        const auto row = static_cast<size_t>((e * 2 + half) * kGptWidth + i);
        EXPECT_EQ(gate_up_bias[row],
                  bias.values<float>()[static_cast<size_t>((e * kGptWidth + i) * 2 + half)]);
        for (int64_t c = 0; c < kGptHidden; ++c)
          ASSERT_EQ(gate_up[row * kGptHidden + static_cast<size_t>(c)],
                    held.data<float>()[(e * kGptHidden + c) * 2 * kGptWidth + 2 * i + half]);
      }
  for (int64_t e = 0; e < kGptExperts; ++e)
    for (int64_t i = 0; i < kGptHidden; ++i)
      for (int64_t c = 0; c < kGptWidth; ++c)
        ASSERT_EQ(of_down[static_cast<size_t>((e * kGptHidden + i) * kGptWidth + c)],
                  down.data<float>()[(e * kGptWidth + c) * kGptHidden + i]);
  save_model(*model, folder / "again", "");
  EXPECT_EQ(read_file(join_path(path, "model.safetensors")),
            read_file(join_path(folder / "again", "model.safetensors")));
}

// The lower four bits first; sign, two bits of exponent, one of mantissa.
TEST_F(GptOss, Mxfp4IsReadAsItIsAndWrittenAsNumbers) {
  const std::string path = saved();
  use_mxfp4(path);
  testing::internal::CaptureStderr();
  const auto model = load_model(path, {.dtype = DType::kBF16});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the experts are in MXFP4"), std::string::npos) << log;
  BuildOptions again;
  again.quantize = {"", {{"layers.*.attention.*", quantizers::QuantizerKind{"fp8"}}}};
  expect_has(error_of([&] { load_model(path, again); }), "is quantized already (mxfp4)");
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const auto found = values_of(model->decoder.parameters().value("layers.1.mlp.experts.gate_up.weight"));
  for (int64_t e = 0; e < kGptExperts; ++e)
    for (int64_t in_file = 0; in_file < 2 * kGptWidth; ++in_file)
      for (int64_t c = 0; c < kGptHidden; ++c) {
        const int64_t row = e * 2 * kGptWidth + in_file, at = row * 16 + c / 2;
        const int code = (static_cast<uint8_t>(at * 7) >> (c % 2 * 4)) & 15;
        const double number = std::ldexp(kNumbers[code & 7], static_cast<int>(120 + row % 11) - 127);
        const int64_t in_memory = e * 2 * kGptWidth + in_file % 2 * kGptWidth + in_file / 2;
        ASSERT_EQ(found[static_cast<size_t>(in_memory * kGptHidden + c)], code >= 8 ? -number : number);
      }
  save_model(*model, folder / "again", "");
  EXPECT_EQ(checkpoints::read_model_config(folder / "again").find("quantization_config"), nullptr);
  const ModelFolder files = ModelFolder::open(folder / "again");
  EXPECT_EQ(files.find(std::string(kGateUp) + "_blocks"), nullptr);
  expect_equal_weights(*load_model(folder / "again", {}), *model);
}

TEST_F(GptOss, Mxfp4ThatDoesNotFitIsRefused) {
  const std::string path = saved(), blocks = std::string(kGateUp) + "_blocks",
                    scales = std::string(kGateUp) + "_scales";
  const auto expect = [&](const std::function<void(Tensors&)>& change, const std::string& message) {
    Tensors kept;
    rewrite(path, [&](Tensors& tensors) {
      kept = tensors;
      change(tensors);
    });
    const std::string error = error_of([&] { load_model(path, {}); });
    EXPECT_NE(error.find(message), std::string::npos) << error;
    rewrite(path, [&](Tensors& tensors) { tensors = kept; });
  };
  use_mxfp4(path);
  expect([&](Tensors& t) { t.erase(scales); },
         fmt::format("'{}' is missing, but its other half exists", scales));
  expect(
      [&](Tensors& t) {
        t[blocks] = Tensor::zeros({4, 64, 2, 8}, DType::kU8);
      },
      fmt::format("'{}' is U8 [4, 64, 2, 8], expected U8 [4, 64, 1, 16]", blocks));
  expect(
      [&](Tensors& t) {
        t[kGateUp] = Tensor::zeros({4, 32, 64}, DType::kF32);
      },
      fmt::format("in two forms; keep one of them: '{0}' and '{0}_blocks'", kGateUp));
  expect([&](Tensors& t) { t[scales].data<uint8_t>()[0] = 255; }, blocks);
}

Tensor gpt_oss_logits(const Model& model, const layers::Adapter* adapter) {
  const std::vector<int32_t> ids{3, 9, 1, 40, 22, 5, 17, 8, 30, 2, 11, 45}, lengths{7, 5};
  layers::Decoder::Options options;
  options.adapters = {{adapter, static_cast<int64_t>(ids.size())}};
  Tape tape(false);
  const Var hidden = model.decoder.forward(tape, layers::make_input(ids, lengths), options);
  return model.decoder.logits(tape, hidden, adapter).value;
}

TEST_F(GptOss, AdaptersOfAttentionAndRoutersAreMerged) {
  for (const bool mxfp4 : {false, true}) {
    SCOPED_TRACE(mxfp4 ? "MXFP4" : "numbers");
    const std::string path = saved(), merged = folder / (mxfp4 ? "from_mxfp4" : "from_numbers");
    if (mxfp4) use_mxfp4(path);
    const auto model = load_model(path, {.dtype = DType::kF32});
    LoraConfig config{.rank = 2, .alpha = 4};
    config.targets = {.names = {"q_proj", "o_proj", "router"}};
    const auto adapter = new_adapter(*model, config, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i)
      for (float& value : adapter->parameters()[i].value.values<float>()) value += 0.1f;
    const Tensor expected = gpt_oss_logits(*model, adapter.get());
    EXPECT_GE(relative_error(expected, gpt_oss_logits(*model, nullptr)), 1e-3);
    save_adapter(*adapter, folder / "adapter", path);
    merge_adapter(folder / "adapter", path, merged, int64_t{1} << 30);
    EXPECT_LE(relative_error(gpt_oss_logits(*load_model(merged, {.dtype = DType::kF32}), nullptr), expected),
              1e-5);
  }
}

TEST_F(GptOss, ExpertsAreNotAdapted) {
  const auto model = build_model(config(), "tiny", {});
  LoraConfig lora;
  lora.parameters = {"mlp.experts.gate_up_proj"};
  const std::string error = error_of([&] { plan_lora(model->decoder.parameters().table(), lora, "lora."); });
  EXPECT_NE(error.find("no parameter is called 'mlp.experts.gate_up_proj'"), std::string::npos) << error;
}

TEST(GptOssConfig, Windows) {
  EXPECT_EQ(described("gpt_oss").at("sliding_window"), Json(Json::Array{5, 0}));
  expect_refused("gpt_oss", R"({"sliding_window": null})", "sliding_window is null");
  expect_refused("gpt_oss", R"({"sliding_window": 0})", "sliding_window is 0");
}

TEST(GptOssConfig, Refusals) {
  expect_refused("gpt_oss", R"({"rope_scaling": null})", "rope_scaling is missing");
  expect_refused("gpt_oss", R"({"swiglu_limit": 0})", "swiglu_limit is 0, expected a positive number");
  expect_refused("gpt_oss", R"({"hidden_act": "gelu"})", "hidden_act is 'gelu'");
  expect_refused("gpt_oss", R"({"quantization_config": {"quant_method": "hqq"}})", "quantization_config");
  expect_refused("llama", R"({"quantization_config": {"quant_method": "mxfp4"}})", "quantization_config");
}

}  // namespace
}  // namespace temper::models
