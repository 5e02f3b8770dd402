// Folders of models that also read pictures: what is read of them, and what is written back.
#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "models/export.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_amax.h"

namespace temper::models {
namespace {

std::string golden(const std::string& name) {
  return std::string(TEMPER_SOURCE_DIR "/tests/goldens/pictures/") + name;
}

Json config_of(const std::string& name) { return Json::parse_file(join_path(golden(name), "config.json")); }

Json described(const Json& config) { return layers::describe(configure(config, "config.json")); }

void write(const std::string& path, const std::string& text) {
  FileWriter writer(path);
  writer.write(text);
  writer.close();
}

// A golden's folder with other names for its tensors; those that become "" are left out.
void write_renamed(const std::string& folder, const std::string& case_name, const Json& config,
                   const std::function<std::string(const std::string&)>& renamed) {
  make_directories(folder);
  write(join_path(folder, "config.json"), config.dump());
  const checkpoints::SafetensorsFile file(join_path(golden(case_name), "model.safetensors"));
  std::vector<checkpoints::TensorInfo> infos;
  std::vector<Tensor> tensors;
  for (const checkpoints::TensorEntry& entry : file.entries()) {
    const std::string name = renamed(entry.name);
    if (name.empty()) continue;
    tensors.push_back(file.tensor(entry.name));
    infos.push_back({name, tensors.back().shape(), tensors.back().dtype()});
  }
  checkpoints::SafetensorsWriter writer(join_path(folder, "model.safetensors"), infos);
  for (const Tensor& tensor : tensors) writer.add(tensor);
  writer.close();
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

size_t num_of_tower(const checkpoints::SafetensorsFile& file) {
  size_t count = 0;
  for (const checkpoints::TensorEntry& entry : file.entries()) count += is_of_tower(entry.name) ? 1 : 0;
  return count;
}

// Every tensor of the tower in `before` is in `after`, as it was.
void expect_tower(const std::string& before_folder, const std::string& after_folder) {
  const checkpoints::SafetensorsFile before(join_path(before_folder, "model.safetensors")),
      after(join_path(after_folder, "model.safetensors"));
  EXPECT_GT(num_of_tower(before), 0u);
  EXPECT_EQ(num_of_tower(before), num_of_tower(after));
  for (const checkpoints::TensorEntry& entry : before.entries()) {
    if (!is_of_tower(entry.name)) continue;
    ASSERT_NE(after.find(entry.name), nullptr) << entry.name;
    EXPECT_TRUE(same_bytes(before.tensor(entry.name), after.tensor(entry.name))) << entry.name;
  }
}

TEST(TextOfPictures, IsTheFamilyOfTheText) {
  Json text = config_of("qwen3_5").at("text_config");
  EXPECT_EQ(described(config_of("qwen3_5")), described(text));
  // Keys that are not there are those of the class, and text_config may not say whose text it is.
  Json gemma = config_of("gemma3");
  const Json means = described(gemma);
  for (auto& [key, value] : gemma.as_object())
    if (key == "text_config")
      std::erase_if(value.as_object(), [](const auto& entry) { return entry.first == "model_type"; });
  EXPECT_EQ(described(gemma), means);
  // A flat file, and as transformers 5 writes it.
  Json flat = config_of("qwen2_5_vl"), nested = Json::Object{{"model_type", "qwen2_5_vl"}};
  Json::Object own;
  for (const auto& [key, value] : flat.as_object())
    if (key != "model_type" && key != "vision_config" && key.find("token_id") == std::string::npos)
      own.emplace_back(key, value);
  nested.set("text_config", own);
  nested.set("tie_word_embeddings", flat.at("tie_word_embeddings"));
  EXPECT_EQ(described(nested), described(flat));
}

TEST(TextOfPictures, ConfigurationsThatAreNotReadAreRefused) {
  const auto refusal = [&](const std::string& name, const Json& text) {
    Json config = config_of(name);
    config.set("text_config", text);
    return error_of([&] { configure(config, "config.json"); });
  };
  expect_has(refusal("mistral3", Json::Object{{"model_type", "ministral3"}}),
             "[config.json: text_config] model_type 'ministral3' is not supported; supported are [");
  EXPECT_EQ(
      refusal("mistral3", Json::Object{{"model_type", "gemma3"}}),
      "[config.json: text_config] model_type is of a model that reads pictures, expected that of a text");
  EXPECT_EQ(refusal("qwen3_vl", 5), "[config.json] text_config is an integer, expected an object");
  expect_has(refusal("qwen3_vl", Json::Object{{"vocab_size", 40}}),
             "[config.json: text_config] hidden_size is missing");
}

// Libraries look at one of two places for whether the head is the embedding: both say it when it is written.
TEST(TextOfPictures, TyingStandsInBothPlaces) {
  for (const char* place : {"top", "text"}) {
    Json config = config_of("qwen3_vl"), text = config.at("text_config");
    ASSERT_EQ(text.at("tie_word_embeddings"), Json(true));
    std::erase_if((place == std::string("top") ? text : config).as_object(),
                  [](const auto& entry) { return entry.first == "tie_word_embeddings"; });
    config.set("text_config", text);
    EXPECT_EQ(described(config).at("tie_word_embeddings"), Json(true)) << place;
    const Json written = config_in_files(config, configure(config, "config.json"));
    EXPECT_EQ(written.at("tie_word_embeddings"), Json(true)) << place;
    EXPECT_EQ(written.at("text_config").at("tie_word_embeddings"), Json(true)) << place;
  }
  Json config = config_of("qwen3_vl");
  config.set("tie_word_embeddings", false);
  EXPECT_EQ(described(config).at("tie_word_embeddings"), Json(false));
  testing::internal::CaptureStderr();
  report_unused(config, "config.json");
  expect_has(
      testing::internal::GetCapturedStderr(),
      "[config.json] tie_word_embeddings is false and text_config.tie_word_embeddings is not: the head "
      "is read as a tensor of its own");
}

// Each way of naming the text is read in each family, and written as it was.
TEST(TextOfPictures, NamesAreThoseOfTheFolder) {
  const TemporaryDirectory out;
  const auto expected = load_model(golden("gemma3"), {});
  int number = 0;
  for (const auto& [text, tower] :
       {std::pair{"language_model.model.", ""}, {"model.language_model.", "model."}, {"model.", ""}}) {
    const std::string folder = out / std::to_string(number++), saved = folder + "_saved";
    write_renamed(folder, "gemma3", config_of("gemma3"), [&](const std::string& name) {
      const std::string from = "language_model.model.";
      return name.starts_with(from) ? text + name.substr(from.size()) : tower + name;
    });
    const auto model = load_model(folder, {});
    for (size_t i = 0; i < expected->decoder.parameters().size(); ++i)
      EXPECT_TRUE(same_bytes(model->decoder.parameters()[i].value, expected->decoder.parameters()[i].value));
    save_model(*model, saved, folder);
    const checkpoints::SafetensorsFile before(join_path(folder, "model.safetensors")),
        after(join_path(saved, "model.safetensors"));
    EXPECT_EQ(before.entries().size(), after.entries().size());
    for (const checkpoints::TensorEntry& entry : before.entries())
      EXPECT_NE(after.find(entry.name), nullptr) << entry.name;
    expect_tower(folder, saved);
  }
}

TEST(TextOfPictures, TensorsThatAreNobodysOrTwiceThereAreNamed) {
  const TemporaryDirectory out;
  write_renamed(out / "unknown", "gemma3", config_of("gemma3"), [](const std::string& name) {
    return name == "multi_modal_projector.mm_soft_emb_norm.weight" ? "audio_tower.norm.weight" : name;
  });
  expect_has(error_of([&] { load_model(out / "unknown", {}); }), "1 unknown: 'audio_tower.norm.weight'");
  write_renamed(out / "missing", "gemma3", config_of("gemma3"), [](const std::string& name) {
    return name == "language_model.model.norm.weight" ? "" : name;
  });
  expect_has(error_of([&] { load_model(out / "missing", {}); }),
             "1 missing: language_model.model.norm.weight");
  write_renamed(out / "twice", "gemma3", config_of("gemma3"), [](const std::string& name) {
    return name == "multi_modal_projector.mm_soft_emb_norm.weight" ? "model.language_model.norm.weight"
                                                                   : name;
  });
  expect_has(error_of([&] { load_model(out / "twice", {}); }), "are names of one tensor; keep one of them");
}

// The tower's codes cannot be saved together with a text part that is not quantized.
TEST(TextOfPictures, ATowerInCodesIsNotSaved) {
  const TemporaryDirectory out;
  Json config = config_of("gemma3");
  config.set("quantization_config", Json::Object{{"quant_method", "fp8"}});
  const std::string code = "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight_scale_inv";
  write_renamed(out / "codes", "gemma3", config, [&](const std::string& name) {
    return name == "multi_modal_projector.mm_soft_emb_norm.weight" ? code : name;
  });
  testing::internal::CaptureStderr();
  const auto model = load_model(out / "codes", {});
  expect_has(testing::internal::GetCapturedStderr(),
             "mlp.fc1.weight_scale_inv' belongs to codes of a tower that is quantized: adapters can be "
             "trained, but");
  expect_has(
      error_of([&] { save_model(*model, out / "saved", out / "codes"); }),
      "belongs to codes of a tower that is quantized, which a saved model of numbers has no place for");
}

TEST(TextOfPictures, OneLineSaysThatTheTowerIsKept) {
  testing::internal::CaptureStderr();
  load_model(golden("qwen3_5"), {});
  const std::string said = testing::internal::GetCapturedStderr();
  const checkpoints::SafetensorsFile file(join_path(golden("qwen3_5"), "model.safetensors"));
  expect_has(said,
             fmt::format("[{}] text of a model that also reads pictures; {} tensors of the tower are kept "
                         "as they are\n",
                         golden("qwen3_5"), num_of_tower(file)));
  expect_has(said, "'mtp.");
}

// Adapters name modules as the classes of transformers do, whatever the folder does; others are read, too.
TEST(TextOfPictures, AdaptersAreThoseOfTheClass) {
  const TemporaryDirectory out;
  const auto model = load_model(golden("gemma3"), {});
  const auto adapter =
      new_adapter(*model, {.rank = 2, .targets = {.names = {"q_proj", "down_proj"}}}, 1, "[lora]");
  for (size_t i = 0; i < adapter->parameters().size(); ++i)
    for (float& value : adapter->parameters()[i].value.values<float>()) value += 0.25F;
  save_adapter(*adapter, out / "adapter", golden("gemma3"));
  const checkpoints::SafetensorsFile file(out / "adapter/adapter_model.safetensors");
  for (const checkpoints::TensorEntry& entry : file.entries())
    EXPECT_TRUE(entry.name.starts_with("base_model.model.model.language_model.layers.")) << entry.name;

  std::vector<checkpoints::TensorInfo> infos;
  for (const checkpoints::TensorEntry& entry : file.entries()) {
    std::string name = entry.name;
    const std::string from = "model.language_model.";
    name.replace(name.find(from), from.size(), "language_model.model.");
    infos.push_back({name, Shape(entry.shape), DType::kF32});
  }
  make_directories(out / "older");
  write(out / "older/adapter_config.json", read_file(out / "adapter/adapter_config.json"));
  checkpoints::SafetensorsWriter writer(out / "older/adapter_model.safetensors", infos);
  for (const checkpoints::TensorEntry& entry : file.entries()) writer.add(file.tensor(entry.name));
  writer.close();
  const auto older = load_adapter(*model, out / "older");
  ASSERT_EQ(older->parameters().size(), adapter->parameters().size());
  for (size_t i = 0; i < older->parameters().size(); ++i)
    EXPECT_TRUE(same_bytes(older->parameters()[i].value, adapter->parameters()[i].value));

  for (const char* each : {"adapter", "older"}) {
    const std::string merged = out / (std::string(each) + "_merged");
    merge_adapter(out / each, golden("gemma3"), merged, int64_t{1} << 30);
    expect_tower(golden("gemma3"), merged);
    const checkpoints::SafetensorsFile after(join_path(merged, "model.safetensors")),
        before(join_path(golden("gemma3"), "model.safetensors"));
    const std::string changed = "language_model.model.layers.0.mlp.down_proj.weight",
                      kept = "language_model.model.layers.0.mlp.up_proj.weight";
    EXPECT_FALSE(same_bytes(before.tensor(changed), after.tensor(changed)));
    EXPECT_TRUE(same_bytes(before.tensor(kept), after.tensor(kept)));
  }
}

// What LoRA would otherwise reach in a tower: SigLIP has modules q_proj, too.
TEST(TextOfPictures, AdaptersLeaveTheTowerAlone) {
  const TemporaryDirectory out;
  const auto model = load_model(golden("gemma3"), {});
  save_adapter(*new_adapter(*model, {.rank = 2, .targets = {.names = {"q_proj"}}}, 1, "[lora]"),
               out / "adapter", golden("gemma3"));
  const Json config = Json::parse_file(out / "adapter/adapter_config.json");
  EXPECT_EQ(config.at("exclude_modules"), Json(".*(visual|vision_tower|multi_modal_projector)\\..*"));
  load_adapter(*model, out / "adapter");
}

TEST(TextOfPictures, ExportedFoldersKeepTheTower) {
  const TemporaryDirectory out;
  for (const char* name : {"gemma3", "qwen3_5"}) {
    for (const ExportForm form : {ExportForm::kModelopt, ExportForm::kCompressedTensors}) {
      BuildOptions options;
      options.quantize = {"FP8_DEFAULT"};
      const auto model = load_model(golden(name), options);
      set_made_up_amax(*model);
      const std::string folder = out / fmt::format("{}_{}", name, static_cast<int>(form));
      export_model(*model, folder, golden(name), form);
      expect_tower(golden(name), folder);
      const Json how = Json::parse_file(join_path(folder, "config.json")).at("quantization_config");
      const std::string ignored = how.at("ignore").dump();
      const bool is_gemma = name == std::string("gemma3");
      for (const char* module :
           is_gemma ? std::vector{"vision_tower.vision_model.encoder.layers.0.mlp.fc1",
                                  "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1", "lm_head"}
                    : std::vector{"model.visual.blocks.0.attn.qkv", "lm_head"})
        expect_has(ignored, fmt::format("\"{}\"", module));
      const auto again = load_model(folder, {});
      EXPECT_EQ(again->decoder.config().published.text,
                configure(config_of(name), "config.json").published.text);
    }
  }
}

// Transposes of experts' matrices, as Qwen3-VL's mixtures have them, and as transformers 5 saves them.
TEST(TextOfPictures, StackedExpertsAreReadInBothForms) {
  const TemporaryDirectory out;
  const auto expected = load_model(golden("qwen3_vl_moe"), {});
  save_model(*expected, out / "same", golden("qwen3_vl_moe"));
  const std::string name = "model.language_model.layers.0.mlp.experts.down_proj";
  const checkpoints::SafetensorsFile before(join_path(golden("qwen3_vl_moe"), "model.safetensors")),
      after(out / "same/model.safetensors");
  EXPECT_TRUE(same_bytes(before.tensor(name), after.tensor(name)));
  auto model = load_model(golden("qwen3_vl_moe"), {});
  model->decoder.parameters().set_stacked_transposed(false);
  save_model(*model, out / "turned", golden("qwen3_vl_moe"));
  const checkpoints::SafetensorsFile turned(out / "turned/model.safetensors");
  EXPECT_TRUE(same_bytes(before.tensor(name).transpose(1, 2).contiguous(), turned.tensor(name)));
  // A new model is written as the published ones are.
  const Json config = config_of("qwen3_vl_moe");
  const auto fresh = build_model(config, "config.json", {});
  fresh->decoder.parameters().initialize(1, 0.02);
  save_model(*fresh, out / "new", "");
  const checkpoints::SafetensorsFile made(out / "new/model.safetensors");
  for (const checkpoints::TensorEntry& entry : before.entries()) {
    if (is_of_tower(entry.name)) continue;
    ASSERT_NE(made.find(entry.name), nullptr) << entry.name;
    EXPECT_EQ(made.find(entry.name)->shape, entry.shape) << entry.name;
  }
  const auto again = load_model(out / "turned", {});
  for (size_t i = 0; i < expected->decoder.parameters().size(); ++i)
    EXPECT_TRUE(same_bytes(again->decoder.parameters()[i].value, expected->decoder.parameters()[i].value))
        << expected->decoder.parameters().spec(i).name;
}

}  // namespace
}  // namespace temper::models
