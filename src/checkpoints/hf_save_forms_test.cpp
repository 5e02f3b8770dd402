// How parameters, configurations and other files are written in a model's folder.
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/parameter_forms_test_support.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

// 1, 2, 3, …
Tensor ascending(const Shape& shape) {
  const Tensor all = Tensor::empty(shape, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i) all.data<float>()[i] = static_cast<float>(i + 1);
  return all;
}
std::vector<float> numbers_in(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

class SaveForms : public testing::Test {
 protected:
  void use(const ParameterForm& form) {
    table_ = {};
    table_.add(spec_of(form));
  }
  void save(const Json& config = Json::Object{}, const SaveOptions& options = {}) {
    save_model(
        target_, table_, [](const WeightSpec& spec) { return ascending(spec.shape); }, config, options);
  }
  Json saved_config(const Json& config, const SaveOptions& options = {}) {
    save(config, options);
    return Json::parse_file(join_path(target_, "config.json"));
  }
  // What is read again, which must be what was written.
  void expect_read_again() {
    Tensor to;
    load_weights(ModelFolder::open(target_), table_,
                 [&](const WeightSpec& spec) { return to = Tensor::zeros(spec.shape, DType::kF32); });
    EXPECT_EQ(numbers_in(to), numbers_in(ascending(to.shape())));
  }
  Tensor held(const std::string& name) { return ModelFolder::open(target_).tensor(name); }

  TemporaryDirectory folder_;
  std::string target_ = folder_ / "out";
  WeightTable table_;
};

TEST_F(SaveForms, ParametersInEachForm) {
  const std::vector<WeightSource> pair{{"m.0", 2}, {"m.1", 2}};
  struct Case {
    std::string what;
    ParameterForm form;
    std::string name;
    Shape shape;
    std::vector<float> first;  // in the file
  };
  for (const Case& each : std::vector<Case>{
           {"rows", {.shape = {4, 2}, .sources = pair}, "m.1", {2, 2}, {5, 6}},
           {"a vector", {.shape = {4}}, "m.x.weight", {4}, {1, 2}},
           {"three dimensions", {.shape = {2, 1, 3}}, "m.x.weight", {2, 1, 3}, {1, 2}},
           {"a transpose", {.shape = {2, 3}, .transposed = true}, "m.x.weight", {3, 2}, {1, 4}},
           {"rows of experts as columns",
            {.shape = {4, 3}, .transposed = true, .transposed_rows = 2},
            "m.x.weight",
            {2, 6},
            {1, 7}},
           {"rows of one expert",
            {.shape = {2, 3}, .transposed = true, .transposed_rows = 1},
            "m.x.weight",
            {2, 3},
            {1, 2}},
           {"experts' transposes", {.shape = {4, 3}, .experts_in_files = 2}, "m.x.weight", {2, 3, 2}, {1, 4}},
           {"halves in turns",
            {.shape = {8, 1}, .experts_in_files = 2, .alternating = true},
            "m.x.weight",
            {2, 1, 4},
            {1, 3}},
           {"biases of experts", {.shape = {4}, .experts_in_files = 2}, "m.x.weight", {2, 2}, {1, 2}}}) {
    SCOPED_TRACE(each.what);
    use(each.form);
    save();
    const Tensor file = held(each.name);
    EXPECT_EQ(file.shape(), each.shape);
    EXPECT_EQ(std::vector<float>(file.values<float>().begin(), file.values<float>().begin() + 2), each.first);
    expect_read_again();
  }
}

TEST_F(SaveForms, StackedExperts) {
  for (const bool transposed : {false, true}) {
    use({.shape = {4, 3},
         .sources = {{"m.0", 2}, {"m.1", 2}},
         .experts = 2,
         .stacked = "m.all",
         .stacked_shape = {2, 2, 3},
         .transposes_stacked = true});
    table_.set_stacked(true);
    table_.set_stacked_transposed(transposed);
    save();
    EXPECT_EQ(held("m.all").shape(), transposed ? (Shape{2, 3, 2}) : (Shape{2, 2, 3}));
    EXPECT_EQ(held("m.all").values<float>()[1], transposed ? 4.f : 2.f);
    expect_read_again();
  }
}

TEST_F(SaveForms, DtypesOfConfigurations) {
  use({.shape = {2}});
  const Json config(
      Json::Object{{"dtype", "float32"},
                   {"torch_dtype", "float32"},
                   {"text_config", Json::Object{{"torch_dtype", "float32"}, {"dtypes", "float32"}}},
                   {"other", Json::Object{{"dtype", "float32"}}}});
  EXPECT_EQ(saved_config(config), config) << "no dtype is asked for";
  EXPECT_EQ(held("m.x.weight").dtype(), DType::kF32);
  EXPECT_EQ(
      saved_config(config, {.dtype = DType::kBF16}),
      Json(Json::Object{{"dtype", "bfloat16"},
                        {"torch_dtype", "bfloat16"},
                        {"text_config", Json::Object{{"torch_dtype", "bfloat16"}, {"dtypes", "float32"}}},
                        {"other", Json::Object{{"dtype", "float32"}}}}));
  EXPECT_EQ(held("m.x.weight").dtype(), DType::kBF16);
  const Json text(Json::Object{{"text_config", "none"}});
  EXPECT_EQ(saved_config(text, {.dtype = DType::kBF16}), text);
}

// Numbers are no codes, whatever was read.
TEST_F(SaveForms, ConfigurationsOfNumbersSayNothingOfCodes) {
  use({.shape = {2}});
  EXPECT_EQ(
      saved_config(Json::Object{{"a", 1}, {"quantization_config", Json::Object{{"quant_method", "fp8"}}}}),
      Json(Json::Object{{"a", 1}}));
  const Json none(Json::Object{{"quantization_config", nullptr}});
  EXPECT_EQ(saved_config(none), none);
}

// Of a parameter that is encoded the folder has what EncodedParameters gives, and the configuration stays.
TEST_F(SaveForms, EncodedParameters) {
  struct Halves : EncodedParameters {
    std::vector<TensorInfo> list(const WeightSpec& spec) const override {
      if (spec.name != "x") return {};
      return {{"m.low", {2}, DType::kU8}, {"m.high", {2}, DType::kF32}};
    }
    std::vector<Tensor> encode(const WeightSpec&, const Tensor& value) const override {
      return {Tensor::from(std::vector<uint8_t>{7, 8}), value.narrow(0, 2, 2)};
    }
  };
  use({.shape = {4}});
  table_.add({.name = "plain", .shape = {2}, .axes = {"a"}, .sources = {{"m.plain", 2}}});
  const Halves halves;
  const Json config(Json::Object{{"quantization_config", Json::Object{{"quant_method", "own"}}}});
  SaveOptions options;
  options.encoded = &halves;
  options.json_files = {{"own.json", Json(Json::Object{{"a", 1}})}};
  save(config, options);
  EXPECT_EQ(Json::parse_file(join_path(target_, "config.json")), config);
  EXPECT_EQ(Json::parse_file(join_path(target_, "own.json")), Json(Json::Object{{"a", 1}}));
  const SafetensorsFile file(join_path(target_, "model.safetensors"));
  EXPECT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.tensor("m.low").values<uint8_t>()[1], 8);
  EXPECT_EQ(file.tensor("m.high").values<float>()[0], 3.f);
  EXPECT_EQ(file.tensor("m.plain").values<float>()[1], 2.f);
}

TEST_F(SaveForms, TemplatesAndTermsOfUse) {
  use({.shape = {2}});
  const TemporaryDirectory original;
  make_directories(original / "additional_chat_templates");
  write_file(original / "additional_chat_templates/tool.jinja", "{{ x }}");
  write_file(original / "additional_chat_templates/notes.txt", "");
  make_directories(original / "licenses");
  write_file(original / "vocab.txt", "words");
  save(Json::Object{}, {.original = original.path()});
  EXPECT_EQ(list_directory(join_path(target_, "additional_chat_templates")),
            std::vector<std::string>{"tool.jinja"});
  EXPECT_EQ(read_file(join_path(target_, "additional_chat_templates/tool.jinja")), "{{ x }}");
  EXPECT_EQ(read_file(join_path(target_, "vocab.txt")), "words");
  EXPECT_FALSE(exists(join_path(target_, "licenses"))) << "a folder is no file of terms";
  // A folder that is there no longer has nothing to copy.
  save(Json::Object{}, {.original = original / "gone"});
  EXPECT_EQ(list_directory(target_), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST_F(SaveForms, Refusals) {
  use({.shape = {2}});
  const auto refused = [&](const Json& config, const SaveOptions& options) {
    return error_of([&] { save(config, options); });
  };
  EXPECT_EQ(refused(Json::Object{}, {.max_shard_bytes = 0}), "max_shard_bytes is 0, expected at least 1");
  EXPECT_EQ(refused(Json::Object{}, {.dtype = DType::kI32}),
            "cannot save a model as int32; expected float32, bfloat16 or float16");
  EXPECT_EQ(refused(Json::Array{}, {}), "[config.json] found an array, expected an object");
  EXPECT_FALSE(exists(target_));
  expect_has(error_of(
                 [&] {
                   save_model(target_, table_, [](const WeightSpec&) { return ascending({3}); },
                              Json::Object{}, {});
                 },
                 ErrorKind::kDefect),
             "the tensor to save for x must be [2]");
  expect_has(error_of(
                 [&] {
                   save_model(target_, table_, [](const WeightSpec&) { return Tensor(); }, Json::Object{},
                              {});
                 },
                 ErrorKind::kDefect),
             "the tensor to save for x must be [2]");
  const TemporaryDirectory original;
  expect_has(
      error_of([&] { save(Json::Object{}, {.original = original.path(), .extra_files = {"../secret"}}); },
               ErrorKind::kDefect),
      "the extra file '../secret' must be a plain name");
  make_directories(target_);  // an empty folder is replaced
  save();
  expect_read_again();
}

}  // namespace
}  // namespace temper::checkpoints
