#include "checkpoints/hf_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

// A safetensors file with float tensors [2, 3] of these names.
void write_tensors(const std::string& path, const std::vector<std::string>& names,
                   DType dtype = DType::kF32) {
  std::vector<TensorInfo> infos;
  for (const std::string& name : names) infos.push_back({name, {2, 3}, dtype});
  SafetensorsWriter writer(path, infos);
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor values = Tensor::from(std::vector<float>(6, static_cast<float>(i))).reshape({2, 3});
    writer.add(is_float(dtype) ? values.to(dtype) : Tensor::zeros({2, 3}, dtype));
  }
  writer.close();
}

class HfFolder : public testing::Test {
 protected:
  void write_index(const std::string& weight_map) {
    write_file(folder / "model.safetensors.index.json",
               fmt::format(R"({{"metadata":{{}},"weight_map":{}}})", weight_map));
  }
  std::string open_error() {
    return error_of([&] { ModelFolder::open(folder.path()); });
  }
  TemporaryDirectory folder;
};

TEST_F(HfFolder, OpensSingleFilesAndShards) {
  write_tensors(folder / "model-00001-of-00002.safetensors", {"a", "b"});
  write_tensors(folder / "model-00002-of-00002.safetensors", {"c"});
  write_index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors",)"
              R"("c":"model-00002-of-00002.safetensors"})");
  const ModelFolder sharded = ModelFolder::open(folder.path());
  EXPECT_EQ(sharded.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(sharded.tensor("b").values<float>()[5], 1.f);
  EXPECT_EQ(sharded.find("d"), nullptr);
  expect_has(error_of([&] { sharded.tensor("bb"); }), "nearest name is 'b'");
  write_tensors(folder / "model.safetensors", {"x"});
  EXPECT_EQ(ModelFolder::open(folder.path()).names(), std::vector<std::string>{"x"});
}

// A run's folder is given where the model in it was meant.
TEST_F(HfFolder, NamesTheModelOfARun) {
  write_file(folder / "config.yaml", "");
  const auto said = [&] { return error_of([&] { read_model_config(folder.path()); }); };
  expect_has(said(),
             "is the folder of a run, expected a model's with config.json; it has no model: temper export ");
  // Adapters that were trained, by their real folders.
  const auto add_adapter = [&](const std::string& name, const std::string& config) {
    const std::string adapter = join_path(join_path(folder / "adapters", name), "adapter");
    make_directories(adapter);
    write_file(join_path(adapter, "adapter_config.json"), config);
    return adapter;
  };
  const std::string law = add_adapter("law", R"({"base_model_name_or_path": "models/base"})");
  expect_has(said(),
             "it trained an adapter: name its base model's folder, models/base, and the adapter with "
             "--adapter " +
                 law);
  expect_has(error_of([&] { read_model_config(law); }),
             "is an adapter's folder, expected a model's with config.json; name its base model's folder, "
             "models/base, and the adapter with --adapter " +
                 law);
  const std::string art = add_adapter("art", R"({"base_model_name_or_path": null})");
  expect_has(said(),
             fmt::format("it trained adapters: name its base model's folder, and the adapter with --adapter "
                         "{} (there are {}, {})",
                         art, art, law));
  make_directories(folder / "model");
  EXPECT_EQ(said(),
            fmt::format("[{}] is the folder of a run, expected a model's with config.json; its model is "
                        "{}",
                        folder.path(), folder / "model"));
  write_file(folder / "config.json", R"({"model_type": "llama"})");
  EXPECT_EQ(said(), "");
}

TEST_F(HfFolder, AdviceForAdaptersThatDoNotNameTheirBase) {
  expect_has(error_of([&] { read_model_config(folder.path()); }), "config.json");
  const auto said = [&](const std::string& config) {
    write_file(folder / "adapter_config.json", config);
    return error_of([&] { read_model_config(folder.path()); });
  };
  const std::string unknown =
      "; name its base model's folder, and the adapter with --adapter " + folder.path();
  for (const char* config :
       {"[]", "{}", R"({"base_model_name_or_path": 3})", R"({"base_model_name_or_path": ""})"})
    expect_has(said(config), unknown);
  expect_has(said(R"({"base_model_name_or_path": "a/b"})"),
             "; name its base model's folder, a/b, and the adapter");
}

TEST_F(HfFolder, PathsThatAreNoFolders) {
  const std::string said = "is not a folder; expected a model in Hugging Face format";
  EXPECT_EQ(no_model_folder("/some/where/else"), said);
  EXPECT_TRUE(no_model_folder("Qwen/Qwen3-0.6B").starts_with(said + "; "))
      << no_model_folder("Qwen/Qwen3-0.6B");
}

TEST_F(HfFolder, SaysWhatAFolderWithoutWeightsHolds) {
  expect_has(error_of([&] { ModelFolder::open(folder / "none"); }), "no such folder");
  expect_has(open_error(), "found no weights");
  write_file(folder / "x.gguf", "");
  expect_has(open_error(), "found only x.gguf");
  write_file(folder / "a.pth", "");
  expect_has(open_error(), "found only a.pth, expected model.safetensors");
  write_file(folder / "b.pt", "");
  expect_has(open_error(), "found only a.pth, b.pt, expected model.safetensors");
  remove_all(folder / "a.pth");
  remove_all(folder / "b.pt");
  write_file(folder / "pytorch_model.bin", "");
  expect_has(open_error(), "found only pytorch_model.bin, expected model.safetensors");
  expect_has(open_error(), "convert to safetensors");
  write_file(folder / "adapter_model.safetensors", "");
  expect_has(open_error(), "found an adapter");
  write_file(folder / "weights.safetensors", "");
  expect_has(open_error(), "found weights.safetensors");
  expect_has(error_of([&] { ModelFolder::open(folder / "x.gguf"); }), "is a file, expected the model folder");
}

TEST_F(HfFolder, RefusesBadIndexes) {
  write_tensors(folder / "s.safetensors", {"a", "b"});
  write_index("[]");
  expect_has(open_error(), "found no object 'weight_map'");
  write_file(folder / "model.safetensors.index.json", "{}");
  expect_has(open_error(), "found no object 'weight_map'");
  write_index(R"({"a":1})");
  expect_has(open_error(), "tensor 'a': found an integer, expected a file name");
  for (const char* bad : {"../s.safetensors", "/etc/passwd", "x/s.safetensors", "..", ".", "", "x\\s"}) {
    write_index(Json(Json::Object{{"a", bad}}).dump());
    expect_has(open_error(), "expected a plain name inside the folder");
  }
  write_index(R"({"a":"s.safetensors","b":"t.safetensors","c":"u.safetensors"})");
  expect_has(open_error(), "2 of 3 shards are missing: t.safetensors, u.safetensors");
  write_index(R"({"a":"s.safetensors","b":"s.safetensors","c":"s.safetensors"})");
  expect_has(open_error(), "the tensors c are expected in");
  write_index(R"({"a":"s.safetensors"})");
  expect_has(open_error(), "the tensors b are found in");
  write_tensors(folder / "t.safetensors", {"a"});
  write_index(R"({"a":"s.safetensors","b":"t.safetensors"})");
  expect_has(open_error(), "tensors b are");
}

WeightTable fused_table() {
  WeightTable table;
  table.add({"ab", {4, 3}, {"heads*head_dim", "hidden"}, {{"layers.0.a", 2}, {"layers.0.b", 2}}});
  table.add({"c", {2, 3}, {"vocab", "hidden"}, {{"c", 2}}});
  table.ignore("tied", "tied to c");
  return table;
}

TEST_F(HfFolder, LoadsFusedAndConverted) {
  write_tensors(folder / "model.safetensors", {"tied", "layers.0.b", "layers.0.a", "c"}, DType::kBF16);
  const WeightTable table = fused_table();
  std::vector<Tensor> loaded;
  load_weights(ModelFolder::open(folder.path()), table, [&](const WeightSpec& spec) {
    return loaded.emplace_back(Tensor::zeros(spec.shape, DType::kF32));
  });
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_EQ(loaded[0].values<float>()[5], 2.f);
  EXPECT_EQ(loaded[0].values<float>()[6], 1.f);
  EXPECT_EQ(loaded[1].values<float>()[0], 3.f);
}

TEST_F(HfFolder, RefusesWeightsThatAreNoFloats) {
  for (const auto& [dtype, name] : {std::pair(DType::kI32, "I32"), std::pair(DType::kF8E4M3, "F8_E4M3")}) {
    write_tensors(folder / "model.safetensors", {"layers.0.b", "layers.0.a", "c"}, dtype);
    expect_has(error_of([&] { check_weights(ModelFolder::open(folder.path()), fused_table()); }),
               fmt::format("'layers.0.a' is {}, expected F32, BF16 or F16", name));
  }
}

TEST_F(HfFolder, ListsAllMisfitsAtOnceAndLoadsNothing) {
  WeightTable table = fused_table();
  table.add({"d", {7}, {"hidden"}, {{"d", 7}}});
  for (int i = 0; i < 20; ++i)
    table.add({fmt::format("m{}", i), {1}, {"hidden"}, {{fmt::format("model.layers.{}.norm", i), 1}}});
  write_tensors(folder / "model.safetensors",
                {"layers.0.a", "layers.0.bb", "c", "d", "model.layers.17.nrom"});
  const std::string error = error_of([&] {
    load_weights(ModelFolder::open(folder.path()), table, [](const WeightSpec&) -> Tensor { throw 1; });
  });
  expect_has(error, "21 missing: layers.0.b, model.layers.0.norm");
  expect_has(error, "and 11 more");
  expect_has(error,
             "2 unknown: 'layers.0.bb' (nearest: 'layers.0.b'), 'model.layers.17.nrom' (nearest: "
             "'model.layers.17.norm')");
  expect_has(error, "1 of another shape or dtype: 'd' is [2, 3], expected [7]");
}

}  // namespace
}  // namespace temper::checkpoints
