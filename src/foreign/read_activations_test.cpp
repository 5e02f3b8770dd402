// What quantized folders say of values that pass: inputs, keys and values.
#include <cmath>

#include "checkpoints/quantized_test_support.h"
#include "foreign/forms.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;

std::string text_of(const std::optional<RoundedValues>& found) {
  if (!found) return "as they are";
  std::string text = found->format;
  if (found->by_token) text += " by token";
  if (!found->symmetric) text += " with zero points";
  if (found->dynamic) return text + " dynamic";
  text += fmt::format(" to {}", found->amax);
  return found->symmetric ? text : text + fmt::format(" from {}", found->low);
}

Tensor one(float number, const Shape& shape = {}) {
  return Tensor::from<float>(Values{number}, {1}).reshape(shape);
}
Tensor small(int8_t number) { return Tensor::from<int8_t>(std::vector<int8_t>{number}, {1}); }

class Activations : public checkpoints::Quantized {
 protected:
  RoundedActivations activations() {
    write();
    const ModelFolder folder = ModelFolder::open(folder_.path());
    return folder.form()->activations(folder, {"m.x.weight", 4, 32});
  }
  std::string input() { return text_of(activations().input); }
  std::string refusal() {
    return error_of([&] { activations(); });
  }
  void replace(const std::string& name, const Tensor& tensor) {
    std::erase_if(tensors_, [&](const auto& each) { return each.first == name; });
    add(name, tensor);
  }
  void compressed(const std::string& groups) {
    config(R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": )" +
           groups + "}");
  }
  void group(const std::string& inputs, const std::string& targets = R"(["Linear"])") {
    compressed(fmt::format(R"({{"group_0": {{"targets": {}, "input_activations": {}}}}})", targets, inputs));
  }
};

TEST_F(Activations, OfModeloptByAlgorithm) {
  struct Case {
    std::string algorithm, without_scale, with_scale;  // of 0.5
  };
  for (const Case& each :
       std::vector<Case>{{"FP8", "as they are", "fp8 to 224"},
                         {"FP8_PER_CHANNEL_PER_TOKEN", "fp8 by token dynamic", "fp8 to 224"},
                         {"fp8_pb_wo", "as they are", "as they are"},
                         {"W8A8_SQ_PER_CHANNEL", "as they are", "int8 to 63.5"},
                         {"W8A16", "as they are", "as they are"},
                         {"W4A8_AWQ", "as they are", "fp8 to 224"},
                         {"NVFP4", "as they are", "nvfp4 to 1344"},
                         {"MXFP8", "mxfp8 dynamic", "mxfp8 to 1344"},
                         {"W4A8_MXFP4_FP8", "fp8 dynamic", "fp8 to 224"}}) {
    SCOPED_TRACE(each.algorithm);
    tensors_.resize(0);
    algorithm(each.algorithm);
    EXPECT_EQ(input(), each.without_scale);
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}}) {
      replace("m.x.input_scale", one(0.5f, shape));
      EXPECT_EQ(input(), each.with_scale);
    }
  }
}

TEST_F(Activations, PreQuantScaleBelongsToInputsThatAreRounded) {
  algorithm("W8A8_SQ_PER_CHANNEL");
  const Tensor before = Tensor::from<float>(Values(32, 3.f), {32}).to(DType::kBF16);
  add("m.x.pre_quant_scale", before);
  EXPECT_FALSE(activations().pre_quant_scale.defined());
  add("m.x.input_scale", one(0.5f));
  const Tensor found = activations().pre_quant_scale;
  ASSERT_TRUE(found.defined());
  EXPECT_EQ(found.dtype(), DType::kF32);
  EXPECT_EQ(found.values<float>()[31], 3.f);
}

TEST_F(Activations, KeysAndValuesAreKeptInFp8) {
  for (const char* ending : {"k_scale", "v_scale"}) {
    tensors_.resize(0);
    algorithm("W8A16");
    EXPECT_EQ(text_of(activations().kept), "as they are");
    add(std::string("m.x.") + ending, one(0.5f).to(DType::kF16));
    EXPECT_EQ(text_of(activations().kept), "fp8 to 224") << ending;
    compressed("{}");
    EXPECT_EQ(text_of(activations().kept), "fp8 to 224") << ending;
  }
}

TEST_F(Activations, ScalesThatAreNoneAreRefused) {
  algorithm("FP8");
  for (const auto& [scale, said] : std::vector<std::pair<Tensor, std::string>>{
           {one(0), "'m.x.input_scale' is 0, expected a number above 0; write the folder again"},
           {one(-1), "is -1, expected a number above 0"},
           {one(std::nanf("")), "is nan, expected a number above 0"},
           {one(HUGE_VALF), "is inf, expected a number above 0"},
           {Tensor::zeros({2}, DType::kF32),
            "is F32 [2], expected F32 or BF16 or F16 [] or [1] or [1, 1]; write"},
           {Tensor::zeros({1}, DType::kI32), "is I32 [1], expected F32 or BF16 or F16"}}) {
    replace("m.x.input_scale", scale);
    expect_has(refusal(), said);
  }
}

TEST_F(Activations, OfCompressedTensorsByWhatTheGroupSays) {
  add("m.x.input_scale", one(0.5f));
  add("m.x.input_global_scale", one(0.125f));
  add("m.x.input_zero_point", small(-3));
  struct Case {
    std::string inputs, expected;
  };
  for (const Case& each : std::vector<Case>{
           {"null", "as they are"},
           {R"("dynamic")", "as they are"},
           {R"({"num_bits": 8, "type": "float", "strategy": "tensor"})", "fp8 to 224"},
           {R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": true})", "fp8 dynamic"},
           {R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": "local"})", "fp8 to 224"},
           {R"({"num_bits": 8, "type": "float", "strategy": "token"})", "fp8 by token dynamic"},
           {R"({"num_bits": 8, "type": "int", "strategy": "token", "symmetric": false})",
            "int8 by token with zero points dynamic"},
           {R"({"num_bits": 8, "type": "int", "strategy": "tensor"})", "int8 to 63.5"},
           {R"({"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": false})",
            "int8 with zero points to 65 from -62.5"},
           {R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                "dynamic": "local"})",
            "nvfp4 to 21504"},
           {R"({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32})", "mxfp4 dynamic"},
           {R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32})", "mxfp8 dynamic"}}) {
    SCOPED_TRACE(each.inputs);
    group(each.inputs);
    EXPECT_EQ(input(), each.expected);
    EXPECT_EQ(activations().unread, "");
  }
}

TEST_F(Activations, WhatThisProgramCannotRoundIsHandedOn) {
  for (const char* inputs : {R"({"num_bits":8,"type":"float","strategy":"tensor","symmetric":false})",
                             R"({"num_bits":8,"type":"float","strategy":"token","symmetric":false})",
                             R"({"num_bits":4,"type":"int","strategy":"token"})",
                             R"({"num_bits":16,"type":"float","strategy":"tensor"})",
                             R"({"num_bits":4,"type":"float","strategy":"tensor_group","group_size":32})",
                             R"({"num_bits":8,"type":"float","strategy":"tensor_group","group_size":16})",
                             R"({"num_bits":4,"type":"int","strategy":"tensor_group","group_size":16})",
                             R"({"num_bits":6,"type":"float","strategy":"group","group_size":32})",
                             R"({"num_bits":8,"type":"int","strategy":"group","group_size":32})",
                             R"({"num_bits":8,"type":"float","strategy":"group","group_size":128})",
                             R"({"num_bits":8,"type":"float","strategy":"channel"})",
                             R"({"num_bits":"8","type":"float","strategy":"tensor"})",
                             R"({"num_bits":8,"type":8,"strategy":"tensor"})", R"({"num_bits":8})", "{}"}) {
    group(inputs);
    EXPECT_EQ(input(), "as they are") << inputs;
    EXPECT_EQ(Json::parse(activations().unread, "inputs"), Json::parse(inputs, "inputs"));
  }
}

TEST_F(Activations, ZeroPointsThatAreNoneAreRefused) {
  add("m.x.input_scale", one(0.5f));
  group(R"({"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": false})");
  expect_has(refusal(),
             "'m.x.input_zero_point' is missing, but the other parts of its matrix exist; write the folder");
  replace("m.x.input_zero_point", Tensor::zeros({1}, DType::kU8));
  expect_has(refusal(),
             "'m.x.input_zero_point' is U8 [1], expected I8 [] or [1] or [1, 1]; write the folder again");
  replace("m.x.input_zero_point", small(-128));
  EXPECT_EQ(input(), "int8 with zero points to 127.5 from 0");
}

TEST_F(Activations, TargetsAreNamesExpressionsOrKinds) {
  const std::string fp8 = R"({"num_bits": 8, "type": "float", "strategy": "token"})";
  for (const auto& [targets, is] : std::vector<std::pair<std::string, bool>>{{R"(["Linear"])", true},
                                                                             {R"(["Embedding"])", false},
                                                                             {R"(["m.x"])", true},
                                                                             {R"(["m"])", false},
                                                                             {R"(["re:.*x"])", true},
                                                                             {R"(["re:m\\.x"])", true},
                                                                             {R"(["re:x"])", false},
                                                                             {R"(["re:y", 3, "m.x"])", true},
                                                                             {R"("Linear")", false},
                                                                             {"[]", false}}) {
    group(fp8, targets);
    EXPECT_EQ(input(), is ? "fp8 by token dynamic" : "as they are") << targets;
  }
  group(fp8, R"(["re:("])");
  expect_has(error_of([&] { activations(); }), "[group_0] targets");
  // Without targets, or no object.
  compressed(R"({"group_0": {"input_activations": null}, "group_1": {}})");
  EXPECT_EQ(input(), "as they are");
}

// A name decides over "Linear", whichever group comes first.
TEST_F(Activations, NamesDecideOverKinds) {
  const std::string linear =
      R"("g_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8, "type": "int", "strategy": "token"}})";
  const std::string named =
      R"("g_1": {"targets": ["m.x"], "input_activations": {"num_bits": 8, "type": "float", "strategy": "token"}})";
  compressed(fmt::format("{{{}, {}}}", linear, named));
  EXPECT_EQ(input(), "fp8 by token dynamic");
  compressed(fmt::format("{{{}, {}}}", named, linear));
  EXPECT_EQ(input(), "fp8 by token dynamic");
}

TEST_F(Activations, AMatrixOfNoGroupIsReportedOnce) {
  group(R"({"num_bits": 8, "type": "float", "strategy": "token"})", R"(["m.y"])");
  write();
  const ModelFolder folder = ModelFolder::open(folder_.path());
  const auto warning = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(text_of(folder.form()->activations(folder, {"m.x.weight", 4, 32}).input), "as they are");
    return testing::internal::GetCapturedStderr();
  };
  expect_has(warning(),
             "'m.x.weight' is quantized, but among the targets of no group of quantization_config");
  EXPECT_EQ(warning(), "");
}

}  // namespace
}  // namespace temper::foreign
