// Folders of the other quantizers whose configuration or tensors do not fit.
#include "checkpoints/quantized_test_support.h"
#include "foreign/matrix_writers.h"

namespace temper::foreign {
namespace {

using checkpoints::Values;
using checkpoints::zeros;

class Refusals : public checkpoints::Quantized {
 protected:
  void replace(const std::string& name, const Tensor& tensor) {
    std::erase_if(tensors_, [&](const auto& each) { return each.first == name; });
    add(name, tensor);
  }
  std::string name_of_form() {
    write();
    return ModelFolder::open(folder_.path()).form()->name();
  }
  void use(const std::string& name) {
    const Json all =
        Json::parse_file(std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/quantizers/folders.json");
    const Json::Array& sizes = all.at(name).at("shape").as_array();
    shape(sizes[0].as_int(), sizes[1].as_int());
    for (const auto& [part, tensor] : all.at(name).at("tensors").as_object())
      add("m.x." + part, checkpoints::recorded(tensor));
    config(all.at(name).at("config").dump());
  }
};

// Messages of configurations; "": it is read.
using Said = std::vector<std::pair<std::string, std::string>>;

TEST_F(Refusals, ConfigurationsOfFp8) {
  shape(2, 16);
  add("m.x.weight", zeros({2, 16}, DType::kF32));
  const auto tile = [&](const std::string& size) {
    config(R"({"quant_method": "fp8", "weight_block_size": )" + size + "}");
  };
  for (const char* size : {"128", "[]", "[128]", "[128, 128, 1]", "[\"128\", 128]", "[128, 1.5]", "[0, 128]",
                           "[128, -1]", "[1000001, 128]", "[128, 1000001]"}) {
    tile(size);
    expect_has(load_error(), "expected [rows, columns] of a tile or null");
  }
  tile("[128, 64]");
  EXPECT_EQ(name_of_form(), "fp8 in tiles of 128 × 64");
  EXPECT_EQ(load_error(), "") << "a matrix that has plain values";
  tile("null");
  EXPECT_EQ(name_of_form(), "fp8");
  config(R"("fp8")");
  EXPECT_EQ(name_of_form(), "fp8");
}

TEST_F(Refusals, ScalesOfFp8) {
  const Tensor codes = zeros({2, 16}, DType::kU8);
  for (int64_t i = 0; i < 32; ++i)
    codes.data<uint8_t>()[i] = static_cast<uint8_t>(0x38 + i % 3);  // 1, 1.125, 1.25
  const auto owner = std::make_shared<Tensor>(codes);
  const Tensor weight = Tensor::borrow(owner->raw(), {2, 16}, DType::kF8E4M3, owner);
  config(R"({"quant_method": "fp8"})");
  const auto value_with = [&](const std::string& name, const Tensor& scale) {
    shape(2, 16);
    add("m.x.weight", weight);
    add(name, scale);
    add("m.x.input_scale", zeros({}, DType::kF32));
    const Values read = load();
    return std::pair(read[1], read[17]);
  };
  using Pair = std::pair<float, float>;
  EXPECT_EQ(value_with("m.x.weight_scale", Tensor::from<float>(Values{2}, {1})), Pair(2.25f, 2.5f));
  EXPECT_EQ(value_with("m.x.weight_scale_inv", Tensor::from<float>(Values{2}, {1}).reshape({})),
            Pair(2.25f, 2.5f));
  EXPECT_EQ(value_with("m.x.weight_scale", Tensor::from<float>(Values{2, 4}, {2}).to(DType::kBF16)),
            Pair(2.25f, 5.f));
  EXPECT_EQ(value_with("m.x.weight_scale", Tensor::from<float>(Values{2, 4}, {2, 1})), Pair(2.25f, 5.f));
  replace("m.x.weight_scale", zeros({1, 2}, DType::kF32));
  expect_has(load_error(),
             "'m.x.weight_scale' is F32 [1, 2], expected F32 or BF16 or F16 [] or [1] or [2] or [2, 1]");
  shape(2, 16);
  add("m.x.weight", weight);
  expect_has(load_error(), "'m.x.weight_scale_inv' is missing, but the other parts of its matrix exist");
  shape(2, 16);
  add("m.x.weight_scale_inv", zeros({1}, DType::kF32));
  expect_has(load_error(), "'m.x.weight' is missing, but the other parts of its matrix exist");
  add("m.x.weight", zeros({2, 16}, DType::kI8));
  expect_has(load_error(), "'m.x.weight' is I8 [2, 16], expected F8_E4M3 [2, 16]");
}

TEST_F(Refusals, NamesOfBitsandbytes) {
  shape(2, 16);
  add("m.x.weight", zeros({2, 16}, DType::kF32));
  for (const auto& [more, name] :
       Said{{"", "bitsandbytes fp4"},
            {R"(, "load_in_8bit": true)", "bitsandbytes int8"},
            {R"(, "_load_in_8bit": true, "load_in_8bit": false)", "bitsandbytes int8"},
            {R"(, "bnb_4bit_quant_type": "fp4")", "bitsandbytes fp4"},
            {R"(, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true)",
             "bitsandbytes nf4 with double quantization"}}) {
    config(R"({"quant_method": "bitsandbytes")" + more + "}");
    EXPECT_EQ(name_of_form(), name);
    EXPECT_EQ(load_error(), "") << "a matrix that has plain values";
  }
  config(R"("bitsandbytes")");
  EXPECT_EQ(name_of_form(), "bitsandbytes fp4");
}

TEST_F(Refusals, StatesOfBitsandbytes) {
  const std::string nf4 = "bitsandbytes nf4", state = "m.x.weight.quant_state.bitsandbytes__nf4";
  const auto text = [](const std::string& letters) {
    return Tensor::from(std::vector<uint8_t>(letters.begin(), letters.end()));
  };
  for (const auto& [json, said] :
       Said{{R"({"quant_type": "nf4", "dtype": 3, "blocksize": 64, "shape": [24, 40]})", ""},
            {R"({"quant_type": "nf4", "blocksize": "64", "shape": [24, 40]})",
             "'blocksize' is \"64\", expected a size"},
            {R"({"quant_type": "nf4", "blocksize": 1073741825, "shape": [24, 40]})",
             "'blocksize' is 1073741825, expected a size"},
            {R"({"quant_type": "nf4", "blocksize": 64, "shape": [24, 41]})",
             "'m.x.weight' is of a matrix [24, 41], expected [24, 40]"}}) {
    use(nf4);
    replace(state, text(json));
    if (said.empty())
      EXPECT_EQ(load_error(), "");
    else
      expect_has(load_error(), said);
  }
  use(nf4);
  replace(state, zeros({8, 2}, DType::kU8));
  expect_has(load_error(), "'" + state + "' is uint8 [8, 2], expected U8 of one dimension");
  replace(state, zeros({16}, DType::kI32));
  expect_has(load_error(), "'" + state + "' is int32 [16], expected U8 of one dimension");
}

TEST_F(Refusals, CodesOfBitsandbytes) {
  use("bitsandbytes nf4");
  for (const auto& [codes, said] : std::vector<std::pair<Tensor, std::string>>{
           {zeros({240, 1}, DType::kF16), ""},
           {zeros({120, 1}, DType::kF32), ""},
           {zeros({480}, DType::kU8), "'m.x.weight' is U8 [480], expected U8 [480, 1]"},
           {zeros({240, 2}, DType::kU8), "'m.x.weight' is U8 [240, 2], expected U8 [480, 1]"},
           {zeros({480, 1}, DType::kF16), "'m.x.weight' is F16 [480, 1], expected U8 [480, 1]"}}) {
    replace("m.x.weight", codes);
    if (said.empty())
      EXPECT_EQ(load_error(), "");
    else
      expect_has(load_error(), said);
  }
  use("bitsandbytes int8");
  replace("m.x.weight", zeros({24, 39}, DType::kI8));
  expect_has(load_error(), "'m.x.weight' is I8 [24, 39], expected I8 [24, 40]");
  for (const Tensor& format : {zeros({}, DType::kI32), zeros({2}, DType::kU8)}) {
    use("bitsandbytes int8");
    replace("m.x.weight_format", format);
    expect_has(load_error(), "'m.x.weight_format' is not 0: the codes are in an order of one kind of GPU");
  }
  std::erase_if(tensors_, [](const auto& each) { return each.first == "m.x.weight_format"; });
  EXPECT_EQ(load_error(), "");
}

// Any part of double quantization asks for the others.
TEST_F(Refusals, DoubleQuantizationByOneOfItsParts) {
  const std::string missing = " is missing, but the other parts of its matrix exist";
  for (const auto& [part, tensor, said] : std::vector<std::tuple<std::string, Tensor, std::string>>{
           {"absmax", zeros({15}, DType::kU8), "'m.x.weight.nested_quant_map'" + missing},
           {"nested_quant_map", zeros({256}, DType::kF32), "nested_blocksize"},
           {"nested_absmax", zeros({1}, DType::kF32), "'m.x.weight.nested_quant_map'" + missing}}) {
    use("bitsandbytes nf4");
    replace("m.x.weight." + part, tensor);
    expect_has(load_error(), said);
  }
  use("bitsandbytes nf4");
  std::erase_if(tensors_, [](const auto& each) { return each.first == "m.x.weight.absmax"; });
  expect_has(load_error(), "'m.x.weight.absmax'" + missing);
}

// Only what quant/nf4.h keeps is handed over as it is.
TEST_F(Refusals, MatricesOfBitsandbytesThatAreNoNf4OfOurs) {
  const auto nf4 = [&] {
    write();
    const ModelFolder folder = ModelFolder::open(folder_.path());
    const Shape& shape = table_.find("x")->shape;
    return folder.form()->nf4(folder, {"m.x.weight", shape[0], shape[1]});
  };
  use("bitsandbytes nf4");
  ASSERT_TRUE(nf4());
  EXPECT_FALSE(nf4()->is_double());
  use("bitsandbytes nf4 with double quantization");
  ASSERT_TRUE(nf4());
  EXPECT_TRUE(nf4()->is_double());
  EXPECT_EQ(nf4()->codes.shape(), (Shape{24, 20}));
  replace("m.x.weight.nested_quant_map", zeros({256}, DType::kF32));
  EXPECT_FALSE(nf4()) << "other magnitudes";
  use("bitsandbytes nf4 with double quantization");
  const std::string other =
      R"({"quant_type": "nf4", "blocksize": 64, "shape": [24, 40], "nested_blocksize": 128,)"
      R"( "nested_offset": 0.5})";
  replace("m.x.weight.quant_state.bitsandbytes__nf4",
          Tensor::from(std::vector<uint8_t>(other.begin(), other.end())));
  EXPECT_FALSE(nf4()) << "other blocks of magnitudes";
  use("bitsandbytes nf4");
  replace("m.x.weight.quant_map", zeros({16}, DType::kF32));
  EXPECT_FALSE(nf4()) << "other numbers";
  {
    const ModelFolder folder = ModelFolder::open(folder_.path());
    EXPECT_EQ(folder.form()->writer(folder, {"m.x.weight", 24, 40}), nullptr) << "which are only read";
    EXPECT_FALSE(folder.form()->nf4(folder, {"m.x.weight", 40, 25})) << "an odd number of columns";
  }
  const std::string wide = R"({"quant_type": "nf4", "blocksize": 128, "shape": [24, 40]})";
  use("bitsandbytes nf4");
  replace("m.x.weight.quant_state.bitsandbytes__nf4",
          Tensor::from(std::vector<uint8_t>(wide.begin(), wide.end())));
  replace("m.x.weight.absmax", zeros({8}, DType::kF32));
  EXPECT_EQ(load_error(), "");
  EXPECT_FALSE(nf4()) << "other blocks";
  use("bitsandbytes int8");
  EXPECT_FALSE(nf4());
  use("awq");
  EXPECT_FALSE(nf4());
}

// A matrix that is not kept so is read by its rows.
TEST_F(Refusals, Nf4IsOfferedBeforeItsRows) {
  const auto rows_read = [&](bool take, int& offered) {
    int64_t rows = 0;
    load_rows(
        ModelFolder::open(folder_.path()), table_, Layout(table_),
        [&](const WeightSpec&, int64_t first, const Tensor& some) {
          EXPECT_EQ(first, rows);
          rows += some.dim(0);
        },
        [&](const WeightSpec& spec, int64_t first, const quant::Nf4& matrix) {
          EXPECT_EQ(spec.name, "x");
          EXPECT_EQ(first, 0);
          EXPECT_EQ(matrix.codes.shape(), (Shape{24, 20}));
          ++offered;
          return take;
        });
    return rows;
  };
  int offered = 0;
  use("bitsandbytes nf4");
  write();
  EXPECT_EQ(rows_read(true, offered), 0);
  EXPECT_EQ(rows_read(false, offered), 24);
  EXPECT_EQ(offered, 2);
  use("bitsandbytes int8");
  write();
  EXPECT_EQ(rows_read(true, offered), 24);
  EXPECT_EQ(offered, 2) << "codes of 8 bits are no NF4";
}

TEST_F(Refusals, ConfigurationsOfGptqAndAwq) {
  use("gptq 4 bits");
  const std::string gptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 16)";
  for (const auto& [rest, said] : Said{{R"(, "dynamic": null})", ""},
                                       {R"(, "is_marlin_format": false})", ""},
                                       {R"(, "format": "gptq"})", ""},
                                       {R"(, "checkpoint_format": null})", ""},
                                       {R"(, "pack_dtype": "int32"})", ""},
                                       {R"(, "pack_dtype": null})", ""}}) {
    config(gptq + rest);
    EXPECT_EQ(load_error(), said) << rest;
  }
  for (const auto& [json, said] :
       Said{{R"("gptq")", "group_size is missing"},
            {R"({"quant_method": "gptq", "bits": "4", "group_size": 16})",
             "bits is \"4\", expected one of [2, 3, 4, 8]"},
            {R"({"quant_method": "gptq", "bits": 4, "group_size": "16"})", "group_size is \"16\", expected"},
            {R"({"quant_method": "gptq", "bits": 4, "group_size": -2})", "group_size is -2, expected"},
            {R"({"quant_method": "gptq", "bits": 4, "group_size": 1000001})",
             "group_size is 1000001, expected"},
            {R"({"quant_method": "gptq", "bits": 4, "group_size": 16, "is_marlin_format": true,
                "checkpoint_format": "gptq"})",
             "checkpoint_format is \"gptq\", expected one of [gptq, gptq_v2]; convert"}}) {
    config(json);
    expect_has(load_error(), said);
  }
  use("awq");
  const Values values = load();
  for (const char* rest : {"", R"(, "version": "GEMM")", R"(, "format": "gemm")", R"(, "version": null)"}) {
    config(fmt::format(R"({{"quant_method": "awq", "w_bit": 4, "q_group_size": 16{}}})", rest));
    EXPECT_EQ(load(), values) << rest;
  }
  config(R"({"quant_method": "awq", "bits": 4, "group_size": 16, "version": 3})");
  expect_has(load_error(), "version is 3, whose codes lie otherwise, expected \"gemm\"");
}

TEST_F(Refusals, ScalesOfGptqAndAwq) {
  use("gptq 4 bits");
  replace("m.x.scales", zeros({2, 31}, DType::kF16));
  expect_has(load_error(), "'m.x.scales' is F16 [2, 31], expected F16 or BF16 or F32 [2, 32]");
  replace("m.x.scales", zeros({64}, DType::kF16));
  expect_has(load_error(), "'m.x.scales' is F16 [64], expected F16 or BF16 or F32 [2, 32]");
  use("gptq 4 bits");
  replace("m.x.g_idx", zeros({32}, DType::kF32));
  expect_has(load_error(), "'m.x.g_idx' is F32 [32], expected I32 [32]");
  // A bias of codes is no bias of zeros.
  use("gptq 4 bits");
  add("m.x.bias", zeros({32}, DType::kI32));
  expect_has(load_error(), "1 unknown: 'm.x.bias'");
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    replace("m.x.bias", zeros({32}, dtype));
    EXPECT_EQ(load_error(), "");
  }
  use("awq");
  replace("m.x.scales", zeros({1, 32}, DType::kF16));
  expect_has(load_error(), "'m.x.scales' is F16 [1, 32], expected F16 or BF16 or F32 [2, 32]");
  // One group of all columns.
  config(R"({"quant_method": "awq", "bits": 4, "group_size": -1})");
  replace("m.x.qzeros", zeros({1, 4}, DType::kI32));
  EXPECT_EQ(load_error(), "");
  shape(32, 24);
  config(R"({"quant_method": "awq", "bits": 4, "group_size": 16})");
  add("m.x.qweight", zeros({24, 4}, DType::kI32));
  expect_has(load_error(), "'m.x.weight' is [32, 24], expected rows in eights and columns in groups of 16");
  // Neither words down nor words across.
  shape(31, 32);
  config(R"({"quant_method": "gptq", "bits": 4, "group_size": 16})");
  add("m.x.qweight", zeros({4, 31}, DType::kI32));
  expect_has(load_error(), "'m.x.weight' is [31, 32], which codes of 4 bits do not pack in words of 32");
}

}  // namespace
}  // namespace temper::foreign
