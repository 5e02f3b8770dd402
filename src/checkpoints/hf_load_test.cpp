// Forms that a folder's tensors may have, and those that do not fit a model.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/kept_codes.h"
#include "checkpoints/parameter_forms_test_support.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

using Values = std::vector<float>;
using Tensors = std::vector<std::pair<std::string, Tensor>>;

// 0, 1, 2, … plus `first`.
Tensor counted(const Shape& shape, float first = 0) {
  const Tensor all = Tensor::empty(shape, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < all.numel(); ++i) all.data<float>()[i] = first + static_cast<float>(i);
  return all;
}
Values values_of(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

class Loads : public testing::Test {
 protected:
  ModelFolder folder_of(const Tensors& tensors, const std::string& config = "{}") {
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
    SafetensorsWriter writer(path_ / "model.safetensors", infos);
    for (const auto& [name, tensor] : tensors) writer.add(tensor);
    writer.close();
    write_file(path_ / "config.json", config);
    return ModelFolder::open(path_.path());
  }
  Values loaded(const ModelFolder& folder, const std::string& name) {
    Values values;
    load_weights(folder, table_, [&](const WeightSpec& spec) {
      const Tensor to = Tensor::zeros(spec.shape, DType::kF32, MemoryTag::kData);
      all_[spec.name] = to;
      return to;
    });
    return values_of(all_.at(name));
  }
  std::string refusal(const ModelFolder& folder) {
    return error_of([&] { check_weights(folder, table_); });
  }
  // Two experts [2, 3] each, in files by themselves or as "NAME.all".
  void add_experts(const std::string& name, bool transposes) {
    table_.add({.name = name,
                .shape = {4, 3},
                .axes = {"experts*expert_width", "hidden"},
                .sources = {{name + ".0", 2}, {name + ".1", 2}},
                .experts = 2,
                .stacked = name + ".all",
                .stacked_shape = {2, 2, 3},
                .transposes_stacked = transposes});
  }
  void add_matrix(const ParameterForm& form) {
    table_ = {};
    table_.add(spec_of(form));
  }
  TemporaryDirectory path_;
  WeightTable table_;
  std::map<std::string, Tensor> all_;
};

TEST_F(Loads, ExpertsByThemselvesStackedOrTransposed) {
  add_experts("a", true);
  const Values rows = values_of(counted({4, 3}));
  EXPECT_EQ(loaded(folder_of({{"a.0", counted({2, 3})}, {"a.1", counted({2, 3}, 6)}}), "a"), rows);
  const ModelFolder stacked = folder_of({{"a.all", counted({2, 2, 3})}});
  EXPECT_EQ(loaded(stacked, "a"), rows);
  EXPECT_TRUE(holds_stacked(stacked, table_));
  EXPECT_FALSE(holds_transposed(stacked, table_));
  const ModelFolder turned = folder_of({{"a.all", counted({2, 2, 3}).transpose(1, 2).contiguous()}});
  EXPECT_EQ(loaded(turned, "a"), rows);
  EXPECT_TRUE(holds_transposed(turned, table_));
  // Those that may not be transposes are of another shape.
  table_ = {};
  add_experts("a", false);
  expect_has(refusal(turned), "1 of another shape or dtype: 'a.all' is [2, 3, 2], expected [2, 2, 3]");
}

TEST_F(Loads, ExpertsInTwoForms) {
  add_experts("a", true);
  add_experts("b", true);
  const Tensor all = counted({2, 2, 3}), one = counted({2, 3});
  expect_has(refusal(folder_of({{"a.all", all}, {"a.1", one}, {"b.all", all}})),
             "1 in two forms; keep one of them: 'a.1' and 'a.all'");
  expect_has(refusal(folder_of({{"a.all", all}, {"b.0", one}, {"b.1", one}})),
             "1 of single experts, where others are stacked; write all in one form: 'b.0'");
  EXPECT_EQ(refusal(folder_of({{"a.all", all}, {"b.all", all}})), "");
}

TEST_F(Loads, WhatMayBeNewIsZero) {
  add_matrix({.shape = {2, 3}, .may_be_new = true});
  table_.add({.name = "y", .shape = {2}, .axes = {"a"}, .sources = {{"m.y", 2}}});
  EXPECT_EQ(loaded(folder_of({{"m.y", counted({2})}}), "x"), Values(6, 0));
  EXPECT_EQ(loaded(folder_of({{"m.y", counted({2})}, {"m.x.weight", counted({2, 3})}}), "x"),
            values_of(counted({2, 3})));
  EXPECT_EQ(all_.at("y").values<float>()[1], 1.f);
  expect_has(refusal(folder_of({})), "1 missing: m.y");
}

TEST_F(Loads, TransposesInFiles) {
  add_matrix({.shape = {2, 3}, .transposed = true});
  EXPECT_EQ(loaded(folder_of({{"m.x.weight", counted({3, 2})}}), "x"), (Values{0, 2, 4, 1, 3, 5}));
  expect_has(refusal(folder_of({{"m.x.weight", counted({2, 3})}})),
             "'m.x.weight' is [2, 3], expected [3, 2]");
}

TEST_F(Loads, NumbersThatAreNoneAreRefusedByTheirPlace) {
  const Tensor numbers = counted({2, 3});
  numbers.data<float>()[4] = -HUGE_VALF;
  add_matrix({.shape = {2, 3}});
  expect_has(error_of([&] {
               loaded(folder_of({{"m.x.weight", numbers}}), "x");
             }),
             "tensor 'm.x.weight': found -inf at [1, 1], expected finite numbers; the file is damaged");
  numbers.data<float>()[4] = -std::nanf("");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    expect_has(error_of([&] {
                 loaded(folder_of({{"m.x.weight", numbers.to(dtype)}}), "x");
               }),
               "found nan at [1, 1]");
  add_matrix({.shape = {3, 2}, .transposed = true});
  expect_has(error_of([&] { loaded(folder_of({{"m.x.weight", numbers}}), "x"); }), "found nan at [1, 1]");
}

TEST_F(Loads, CodesOfWhatHasNoRowsInFilesAreRefused) {
  const std::string config =
      R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W8A16"}})";
  const Tensors codes{{"m.x.weight_scale", counted({4})}, {"m.x.weight", Tensor::zeros({4, 3}, DType::kI8)}};
  const std::string said =
      "'m.x.weight' has codes, which are read only of matrices that files hold by themselves";
  add_matrix({.shape = {4, 3}});
  EXPECT_EQ(refusal(folder_of(codes, config)), "");
  for (const ParameterForm& form :
       {ParameterForm{.shape = {4, 3}, .transposed = true}, ParameterForm{.shape = {4}},
        ParameterForm{.shape = {4, 3}, .experts_in_files = 2}}) {
    add_matrix(form);
    expect_has(refusal(folder_of(codes, config)), said);
  }
  table_ = {};
  table_.add({.name = "x",
              .shape = {4, 3},
              .axes = {"a", "b"},
              .sources = {{"m.0.weight", 2}, {"m.1.weight", 2}},
              .stacked = "m.x.weight",
              .stacked_shape = {2, 2, 3}});
  expect_has(refusal(folder_of(codes, config)), said);
}

// A tower that is kept as it is: its tensors are handed on, unless they are codes.
TEST_F(Loads, KeptTensors) {
  add_matrix({.shape = {2, 3}});
  table_.keep("tower.");
  const std::pair<std::string, Tensor> own{"m.x.weight", counted({2, 3})};
  const ModelFolder plain = folder_of({own, {"tower.a.weight", counted({2})}});
  EXPECT_EQ(kept_names(plain, table_), std::vector<std::string>{"tower.a.weight"});
  EXPECT_EQ(kept_code(plain, table_), "");
  EXPECT_EQ(error_of([&] { check_kept(plain, table_); }), "");
  const std::string config =
      R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W8A16"}})";
  const ModelFolder unquantized = folder_of({own, {"tower.a.weight", counted({2})}}, config);
  EXPECT_EQ(kept_code(unquantized, table_), "");
  const ModelFolder codes = folder_of({own, {"tower.a.weight_scale", counted({2})}}, config);
  EXPECT_EQ(kept_code(codes, table_), "tower.a.weight_scale");
  expect_has(error_of([&] { check_kept(codes, table_); }),
             "'tower.a.weight_scale' belongs to codes of a tower that is quantized");
}

TEST_F(Loads, KeptTensorsOfDtypesThatAreNotWritten) {
  add_matrix({.shape = {2}});
  table_.keep("tower.");
  const std::string header = R"({"m.x.weight":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
                             R"("tower.a":{"dtype":"F64","shape":[2],"data_offsets":[16,32]}})";
  const uint64_t length = header.size();
  write_file(path_ / "model.safetensors",
             std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(32, '\0'));
  const std::string said = refusal(ModelFolder::open(path_.path()));
  expect_has(said, "'tower.a' is F64, which cannot be written back");
  expect_has(said, "'m.x.weight' is F64, expected F32, BF16 or F16");
}

TEST_F(Loads, DtypesOfParametersThatKeepTheirOwn) {
  add_matrix({.shape = {2, 3}});
  table_.add({.name = "own", .shape = {2}, .axes = {"a"}, .sources = {{"m.own", 2}}, .dtype = DType::kF32});
  table_.add({.name = "buffer",
              .shape = {2},
              .axes = {"a"},
              .sources = {{"m.buffer", 2}},
              .dtype = DType::kF32,
              .buffer = true});
  const ModelFolder folder =
      folder_of({{"m.own", counted({2})}, {"m.buffer", counted({2})}, {"m.x.weight", counted({2, 3})}});
  EXPECT_EQ(read_dtypes(folder, table_), (std::unordered_map<std::string, DType>{{"own", DType::kF32}}));
}

// An expert that is as wide as it is high does not tell; another one does.
TEST_F(Loads, TransposesOfSquareExperts) {
  table_.add({.name = "x",
              .shape = {6, 3},
              .axes = {"a", "b"},
              .sources = {{"x.0", 3}, {"x.1", 3}},
              .experts = 2,
              .stacked = "x.all",
              .stacked_shape = {2, 3, 3},
              .transposes_stacked = true});
  EXPECT_FALSE(holds_transposed(folder_of({{"x.all", counted({2, 3, 3})}}), table_));
  add_experts("b", true);
  const Tensor all = counted({2, 3, 3}).transpose(1, 2).contiguous(),
               other = counted({2, 2, 3}).transpose(1, 2).contiguous();
  EXPECT_EQ(loaded(folder_of({{"x.all", all}, {"b.all", other}}), "x"), values_of(counted({6, 3})));
}

TEST_F(Loads, NamesOfAnAdapterThatAreNotPefts) {
  add_matrix({.shape = {2, 3}});
  folder_of({{"own", counted({2})}, {"base_model.model.m.x.weight", counted({2, 3})}});
  rename_path(path_ / "model.safetensors", path_ / "adapter_model.safetensors");
  EXPECT_EQ(ModelFolder::open_adapter(path_.path(), table_).names(),
            (std::vector<std::string>{"own", "base_model.model.m.x.weight"}));
}

TEST_F(Loads, DestinationsThatDoNotFitAreDefects) {
  add_matrix({.shape = {2, 3}});
  const ModelFolder folder = folder_of({{"m.x.weight", counted({2, 3})}});
  const Tensor turned = Tensor::zeros({3, 2}, DType::kF32).transpose(0, 1);
  for (const Tensor& to : {Tensor(), Tensor::zeros({3, 2}, DType::kF32), turned})
    expect_has(error_of([&] { load_weights(folder, table_, [&](const WeightSpec&) { return to; }); },
                        ErrorKind::kDefect),
               "the destination of x must be a contiguous [2, 3]");
}

// Names of texts in files that also read pictures, in each of the ways.
TEST_F(Loads, NamesOfTextsBesidePictures) {
  add_matrix({.shape = {2}});
  table_ = {};
  table_.add(
      {.name = "x", .shape = {2}, .axes = {"a"}, .sources = {{"model.language_model.norm.weight", 2}}});
  const std::string config = R"({"model_type": "qwen2_5_vl"})";
  for (const char* name :
       {"model.language_model.norm.weight", "language_model.model.norm.weight", "model.norm.weight"}) {
    const ModelFolder folder = folder_of({{name, counted({2})}}, config);
    ASSERT_TRUE(folder.text_names()) << name;
    EXPECT_EQ(loaded(folder, "x"), (Values{0, 1})) << name;
    EXPECT_EQ(folder.name_in_files("model.language_model.norm.weight"), name);
  }
  expect_has(error_of([&] {
               folder_of(
                   {{"model.norm.weight", counted({2})}, {"model.language_model.norm.weight", counted({2})}},
                   config);
             }),
             "are names of one tensor; keep one of them");
  // Of a model that has none of them, and one whose type says nothing.
  EXPECT_TRUE(folder_of({{"other", counted({2})}}, config).text_names());
  for (const char* plain : {"{}", "[]", R"({"model_type": 3})", R"({"model_type": "llama"})"})
    EXPECT_FALSE(folder_of({{"model.norm.weight", counted({2})}}, plain).text_names()) << plain;
}

}  // namespace
}  // namespace temper::checkpoints
