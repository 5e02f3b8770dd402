#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>

#include "base/error.h"
#include "base/process.h"
#include "checkpoints/files/other_files.h"
#include "checkpoints/hf_folder.h"

namespace temper::checkpoints {
namespace {

std::string golden(const std::string& name) {
  return std::string(TEMPER_SOURCE_DIR) + "/tests/goldens/" + name;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? "" : text.replace(at, from.size(), to);
}

// Every tensor of the folder, with q|k|v and gate|up fused.
WeightTable table_of(const ModelFolder& folder) {
  WeightTable table;
  const auto add = [&](const std::string& name, const std::vector<std::string>& sources) {
    WeightSpec spec{name, Shape(folder.find(sources[0])->shape), {}, {}};
    spec.shape[0] = 0;
    for (const std::string& source : sources) {
      spec.sources.push_back({source, folder.find(source)->shape[0]});
      spec.shape[0] += spec.sources.back().rows;
    }
    spec.axes.assign(static_cast<size_t>(spec.shape.ndim()), "any");
    table.add(std::move(spec));
  };
  for (const std::string& name : folder.names()) {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("q_proj"))
      add(replaced(name, "q_proj", "qkv"),
          {name, replaced(name, "q_proj", "k_proj"), replaced(name, "q_proj", "v_proj")});
    else if (is("gate_proj"))
      add(replaced(name, "gate_proj", "gate_up"), {name, replaced(name, "gate_proj", "up_proj")});
    else if (!is("k_proj") && !is("v_proj") && !is("up_proj"))
      add(name, {name});
  }
  return table;
}

std::unordered_map<std::string, Tensor> load_all(const ModelFolder& folder, const WeightTable& table) {
  std::unordered_map<std::string, Tensor> weights;
  load_weights(folder, table, [&](const WeightSpec& spec) {
    return weights[spec.name] = Tensor::empty(spec.shape, DType::kF32, MemoryTag::kWeights);
  });
  return weights;
}

void expect_same_tensors(const ModelFolder& a, const ModelFolder& b) {
  EXPECT_EQ(a.names().size(), b.names().size());
  for (const std::string& name : a.names()) {
    const Tensor x = a.tensor(name), y = b.tensor(name);
    ASSERT_EQ(x.shape(), y.shape()) << name;
    ASSERT_EQ(x.dtype(), y.dtype()) << name;
    EXPECT_EQ(std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())), 0) << name;
  }
}

class HfSave : public testing::TestWithParam<const char*> {
 protected:
  void save(const SaveOptions& options) {
    save_model(
        target, table, [&](const WeightSpec& spec) { return weights.at(spec.name); }, model.config(),
        options);
  }
  void expect_only_target() { EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"out"}); }

  ModelFolder model = ModelFolder::open(golden(GetParam()));
  WeightTable table = table_of(model);
  std::unordered_map<std::string, Tensor> weights = load_all(model, table);
  TemporaryDirectory folder;
  std::string target = folder / "out";
};

TEST_P(HfSave, ReadingThenWritingKeepsEverything) {
  save({.original = golden(GetParam())});
  expect_same_tensors(model, ModelFolder::open(target));
  EXPECT_EQ(read_file(target + "/config.json"), read_file(golden(GetParam()) + "/config.json"));
  EXPECT_EQ(list_directory(target),
            (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors"}));
  EXPECT_EQ(file_size(target + "/model.safetensors"), file_size(golden(GetParam()) + "/model.safetensors"));
  expect_only_target();
}

// Whatever a saved file refers to is in the folder, or it refers to it no longer.
TEST_P(HfSave, ReferencesResolveInsideTheFolder) {
  const TemporaryDirectory original;
  const auto write = [&](const char* name, const char* text) { write_file(original / name, text); };
  write("configuration_own.py", "from .parts import *");
  write("parts.py", "");
  write("preprocessor_config.json", "{}");
  write("words.model", "w");
  const std::string tokenizer = R"({"auto_map": {"AutoTokenizer": ["gone.Slow", "configuration_own.Fast"],
      "AutoProcessor": "gone.Processor"}, "vocab_file": "words.model", "processor_class": "P",
      "special_tokens_map_file": "/home/someone/map.json", "name_or_path": "any"})";
  write("tokenizer_config.json", tokenizer.c_str());
  write("generation_config.json", R"({"eos_token_id":   1})");
  Json config = model.config();
  config.set("auto_map",
             Json::Object{{"AutoConfig", "configuration_own.Config"}, {"AutoModel", "hub/other--own.Model"}});
  config.set("custom_pipelines", Json::Object{{"p", Json::Object{{"impl", "gone.Pipeline"}}}});
  config.set("text_config", Json::Object{{"auto_map", Json::Object{{"AutoModel", "gone.Text"}}},
                                         {"own", Json::Object{{"words_file", "more.model"}}},
                                         {"index_file", "/elsewhere/index.json"},
                                         {"size", 3}});
  write("more.model", "m");
  testing::internal::CaptureStderr();
  save_model(target, table, [&](const WeightSpec& spec) { return weights.at(spec.name); }, config,
             {.original = original.path()});
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* dropped : {"auto_map.AutoModel (\"hub/other--own.Model\")", "custom_pipelines.p",
                              "auto_map.AutoProcessor", "text_config.auto_map.AutoModel (\"gone.Text\")",
                              "text_config.index_file (\"/elsewhere/index.json\")", "auto_map.AutoTokenizer",
                              "special_tokens_map_file (\"/home/someone/map.json\")"})
    EXPECT_NE(said.find(dropped), std::string::npos) << dropped << "\n" << said;
  const Json saved = Json::parse_file(target + "/config.json");
  EXPECT_EQ(saved.at("auto_map"), (Json::Object{{"AutoConfig", "configuration_own.Config"}}));
  EXPECT_EQ(saved.find("custom_pipelines"), nullptr);
  EXPECT_EQ(saved.at("text_config"),
            (Json::Object{{"own", Json::Object{{"words_file", "more.model"}}}, {"size", 3}}));
  const Json settings = Json::parse_file(target + "/tokenizer_config.json");
  EXPECT_EQ(settings,
            (Json::Object{
                {"auto_map", Json::Object{{"AutoTokenizer", Json::Array{nullptr, "configuration_own.Fast"}}}},
                {"vocab_file", "words.model"},
                {"processor_class", "P"},
                {"name_or_path", "any"}}));
  for (const char* copied : {"configuration_own.py", "parts.py", "preprocessor_config.json", "words.model",
                             "more.model", "generation_config.json"})
    EXPECT_EQ(read_file(join_path(target, copied)), read_file(original / copied)) << copied;
}

// Terms of use hold for a model that was made of another one; what describes other weights does not.
TEST_P(HfSave, FilesThatAreLeftOutAreReportedOnce) {
  const TemporaryDirectory original;
  for (const char* name : {"LICENSE", "Notice.txt", "USE_POLICY.md", "tokenizer.json", "tekken.json"})
    write_file(original / name, std::string("of ") + name);
  write_file(original / "LICENSE_of_all.txt", std::string((1 << 20) + 1, 'x'));
  for (const char* name : {"README.md", "own.json", ".gitattributes", "extra.safetensors",
                           "model-00001-of-00002.safetensors", "hf_quant_config.json"})
    write_file(original / name, "x");
  make_directories(original / "original");
  testing::internal::CaptureStderr();
  save({.original = original.path()});
  const std::string warning = testing::internal::GetCapturedStderr();
  for (const char* name : {"LICENSE", "Notice.txt", "USE_POLICY.md", "tokenizer.json", "tekken.json"})
    EXPECT_EQ(read_file(join_path(target, name)), std::string("of ") + name);
  EXPECT_NE(
      warning.find(fmt::format("[{}] of its files 5 are not in the folder of the model that is saved: "
                               "LICENSE_of_all.txt, README.md, extra.safetensors, original/, own.json\n",
                               original.path())),
      std::string::npos)
      << warning;
  testing::internal::CaptureStderr();
  save({.original = original.path()});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_P(HfSave, WeightsOfOtherFilesAreListed) {
  save({});
  EXPECT_EQ(unread_weights(target), std::vector<std::string>());
  for (const char* name :
       {"consolidated.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin", "original.gguf",
        "training_args.bin", "optimizer.pt", "rng_state.pth"})
    write_file(join_path(target, name), "x");
  EXPECT_EQ(unread_weights(target),
            (std::vector<std::string>{"consolidated.safetensors", "model-00002-of-00002.safetensors",
                                      "original.gguf", "pytorch_model.bin"}));
}

// Tensors that are no parameters of the model: of predictors of several tokens, say.
TEST_P(HfSave, KeptTensorsAreThoseOfTheOriginal) {
  WeightTable fewer;
  for (const WeightSpec& spec : table.specs())
    if (!spec.name.starts_with("model.layers.1.")) fewer.add(spec);
  EXPECT_THROW(check_weights(model, fewer), Error);
  fewer.keep("model.layers.1.");
  EXPECT_NO_THROW(check_weights(model, fewer));
  table = fewer;
  save({.dtype = DType::kBF16, .max_shard_bytes = 150'000, .kept = &model});
  const ModelFolder saved = ModelFolder::open(target);
  EXPECT_EQ(saved.names().size(), model.names().size());
  for (const std::string& name : model.names()) {
    const bool kept = name.starts_with("model.layers.1.");
    const Tensor expected = kept ? model.tensor(name) : model.tensor(name).to(DType::kBF16),
                 found = saved.tensor(name);
    ASSERT_EQ(found.dtype(), expected.dtype()) << name;
    EXPECT_EQ(std::memcmp(expected.raw(), found.raw(), static_cast<size_t>(found.bytes())), 0) << name;
  }
}

TEST_P(HfSave, CutsIntoShards) {
  save({.max_shard_bytes = 150'000});
  const ModelFolder sharded = ModelFolder::open(target);
  expect_same_tensors(model, sharded);
  const Json index = Json::parse_file(target + "/model.safetensors.index.json");
  int64_t bytes = 0, files = 0;
  for (const std::string& name : model.names()) bytes += model.tensor(name).bytes();
  EXPECT_EQ(index.at("metadata").at("total_size").as_int(), bytes);
  for (const std::string& name : list_directory(target)) files += name.ends_with(".safetensors") ? 1 : 0;
  const std::string first = fmt::format("model-00001-of-{:05}.safetensors", files);
  EXPECT_GT(files, 2);
  EXPECT_TRUE(exists(target + "/" + first));
  EXPECT_LE(bytes / files, 150'000);
}

TEST_P(HfSave, ConvertsAndEntersTheDType) {
  save({.dtype = DType::kBF16});
  EXPECT_EQ(Json::parse_file(target + "/config.json").at("dtype").as_string(), "bfloat16");
  const ModelFolder converted = ModelFolder::open(target);
  for (const std::string& name : model.names()) {
    const Tensor expected = model.tensor(name).to(DType::kBF16), found = converted.tensor(name);
    ASSERT_EQ(found.dtype(), DType::kBF16);
    EXPECT_EQ(std::memcmp(expected.raw(), found.raw(), static_cast<size_t>(found.bytes())), 0) << name;
  }
}

TEST_P(HfSave, ReplacesATargetOnlyWhenComplete) {
  save({});
  write_file(target + "/stale.txt", "x");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{300'000, before.rlim_max};
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  try {
    save({.dtype = DType::kF32});
    ADD_FAILURE() << "the file system was not full";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResources) << error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  expect_only_target();
  EXPECT_TRUE(exists(target + "/stale.txt"));
  expect_same_tensors(model, ModelFolder::open(target));
  ProcessName killed = this_process();
  killed.number = 999999999;
  make_directories(folder / (".tmp-out-" + to_string(killed)));
  save({.dtype = DType::kF16});
  expect_only_target();
  EXPECT_FALSE(exists(target + "/stale.txt"));
  EXPECT_EQ(ModelFolder::open(target).tensor("model.norm.weight").dtype(), DType::kF16);
}

TEST_P(HfSave, RefusesForeignTargets) {
  make_directories(target);
  write_file(target + "/thesis.txt", "x");
  EXPECT_THROW(save({}), Error);
  EXPECT_THROW(save_model(
                   target + "/thesis.txt", table, [&](const WeightSpec& s) { return weights.at(s.name); },
                   model.config()),
               Error);
  EXPECT_EQ(list_directory(target), std::vector<std::string>{"thesis.txt"});
}

INSTANTIATE_TEST_SUITE_P(Goldens, HfSave, testing::Values("llama", "qwen2", "qwen3"));

}  // namespace
}  // namespace temper::checkpoints
