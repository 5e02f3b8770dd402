// The text of a model that also reads pictures, as a user trains and uses it: the same numbers as the text
// alone, and the tower as it was. The folder is the tiny model's, named and configured as Qwen3-VL's are.
#include <cstring>

#include "base/parts/rooms.h"
#include "checkpoints/files/safetensors.h"
#include "tests/cli/cli_fixture.h"
#include "weights/text_names.h"

namespace temper {
namespace {

using checkpoints::SafetensorsFile;

class PicturesCli : public Cli {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    std::filesystem::copy(text(), pictures());
    Json own = Json::parse_file(text() + "/config.json");
    own.set("model_type", "qwen3_vl_text");
    Json rope = own.at("rope_parameters");
    rope.set("mrope_section", Json::Array{4, 6, 6});
    rope.set("mrope_interleaved", true);
    own.set("rope_parameters", std::move(rope));
    Json config = Json::Object{{"architectures", Json::Array{"Qwen3VLForConditionalGeneration"}},
                               {"model_type", "qwen3_vl"},
                               {"image_token_id", 7},
                               {"vision_config", Json::Object{{"depth", 1}}}};
    config.set("tie_word_embeddings", own.at("tie_word_embeddings"));
    config.set("text_config", std::move(own));
    write_file(pictures() + "/config.json", config.dump(2));
    write_file(pictures() + "/preprocessor_config.json", "{\"patch_size\": 16}");
    const SafetensorsFile file(text() + "/model.safetensors");
    std::vector<checkpoints::TensorInfo> infos;
    std::vector<Tensor> tensors;
    for (const checkpoints::TensorEntry& entry : file.entries()) {
      tensors.push_back(file.tensor(entry.name));
      infos.push_back({name_in_table(entry.name), tensors.back().shape(), tensors.back().dtype()});
    }
    tensors.push_back(Tensor::from<float>(std::vector<float>{1.5F, -2, 0.25F, 3e-39F}, {2, 2}));
    infos.push_back({"model.visual.blocks.0.attn.qkv.weight", {2, 2}, DType::kF32});
    tensors.push_back(tensors.back().to(DType::kBF16));
    infos.push_back({"model.visual.merger.linear_fc1.weight", {2, 2}, DType::kBF16});
    checkpoints::SafetensorsWriter writer(pictures() + "/model.safetensors", infos);
    for (const Tensor& tensor : tensors) writer.add(tensor);
    writer.close();
  }

  static std::string text() { return folder() + "/model"; }
  static std::string pictures() { return folder() + "/pictures"; }
  static std::string train(const std::string& model, const std::string& name, const std::string& flags) {
    return "train " + yaml() + " --model.path " + model + " --output " + folder() + "/" + name + " " + flags;
  }
  static std::string with_adapter(const std::string& name) {
    write_file(folder() + "/" + name + ".yaml",
               read_file(yaml()) + "adapters:\n  - {name: a, rank: 4, lr: 1e-2}\n");
    return folder() + "/" + name + ".yaml";
  }

  // The folder has the tower and what belongs to it; with `plain`, its text is that folder's, bit for bit.
  static void expect_folder(const std::string& saved, const std::string& plain = "") {
    const SafetensorsFile before(pictures() + "/model.safetensors"), after(saved + "/model.safetensors");
    for (const checkpoints::TensorEntry& entry : before.entries()) {
      if (!is_of_tower(entry.name)) continue;
      ASSERT_NE(after.find(entry.name), nullptr) << saved << ": " << entry.name;
      const Tensor expected = before.tensor(entry.name), found = after.tensor(entry.name);
      EXPECT_EQ(found.dtype(), expected.dtype()) << entry.name;
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), static_cast<size_t>(expected.bytes())), 0)
          << entry.name;
    }
    EXPECT_EQ(read_file(saved + "/preprocessor_config.json"), "{\"patch_size\": 16}");
    const Json config = Json::parse_file(saved + "/config.json");
    EXPECT_EQ(config.at("model_type"), Json("qwen3_vl"));
    EXPECT_NE(config.find("vision_config"), nullptr);
    EXPECT_EQ(config.at("text_config").at("model_type"), Json("qwen3_vl_text"));
    if (plain.empty()) return;
    const SafetensorsFile own(plain + "/model.safetensors");
    for (const checkpoints::TensorEntry& entry : own.entries()) {
      ASSERT_NE(after.find(name_in_table(entry.name)), nullptr) << entry.name;
      const Tensor expected = own.tensor(entry.name), found = after.tensor(name_in_table(entry.name));
      ASSERT_EQ(found.bytes(), expected.bytes()) << entry.name;
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), static_cast<size_t>(expected.bytes())), 0)
          << entry.name;
    }
  }
};

TEST_F(PicturesCli, TrainsResumesAnswersAndIsSavedAsItsTextAlone) {
  ASSERT_EQ(run(train(text(), "plain", "")).code, 0);
  const Outcome whole = run(train(pictures(), "whole", "--explain-memory"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(
      whole.err.find("text of a model that also reads pictures; 2 tensors of the tower are kept as they are"),
      std::string::npos)
      << whole.err;
  EXPECT_EQ(losses(folder() + "/whole"), losses(folder() + "/plain"));
  expect_folder(folder() + "/whole/model", folder() + "/plain/model");
  ASSERT_EQ(run(train(pictures(), "parts", "--train.steps 5 --train.schedule.type constant")).code, 0);
  const Outcome resumed = run(train(pictures(), "parts", "--train.schedule.type constant"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  ASSERT_EQ(run(train(pictures(), "constant", "--train.schedule.type constant")).code, 0);
  EXPECT_EQ(losses(folder() + "/parts"), losses(folder() + "/constant"));
  expect_folder(folder() + "/parts/model");
  EXPECT_EQ(read_file(folder() + "/parts/model/model.safetensors"),
            read_file(folder() + "/constant/model/model.safetensors"));

  const std::string asked = " -q --greedy -n 6 -p 'What is 10 + 10?'";
  const Outcome answer = run("generate " + folder() + "/whole/model" + asked);
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, run("generate " + folder() + "/plain/model" + asked).out);
  const Outcome ops = run("ops " + pictures());
  EXPECT_EQ(ops.code, 0) << ops.err;
}

TEST_F(PicturesCli, RanksHaveNothingOfTheTower) {
  ASSERT_EQ(run(train(text(), "one", "--train.steps 3")).code, 0);
  for (const std::string flags :
       {"--ranks 2 --parallel.shard 2 --parallel.shard_level 3", "--ranks 2 --parallel.tensor 2"}) {
    const std::string name = "ranks_" + std::to_string(flags.size());
    const Outcome outcome = run(train(pictures(), name, "--train.steps 3 " + flags));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_folder(folder() + "/" + name + "/model");
    const std::vector<Json> found = metrics(folder() + "/" + name), expected = metrics(folder() + "/one");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const Json* loss = expected[i].find("loss");
      if (loss == nullptr) continue;
      EXPECT_NEAR(found[i].at("loss").as_double(), loss->as_double(), 1e-4) << flags;
    }
  }
  const Outcome verified = run("verify-layout " + yaml() + " --model.path " + pictures() + " --ranks 2");
  EXPECT_EQ(verified.code, 0) << verified.err;
}

TEST_F(PicturesCli, AdaptersAreTrainedUsedAndMerged) {
  for (const std::string base : {"", " --model.base_dtype nf4", " --model.base_dtype float8_e4m3fn"}) {
    const std::string name = "lora" + std::to_string(base.size());
    const Outcome outcome = run("train " + with_adapter(name) + " --model.path " + pictures() + " --output " +
                                folder() + "/" + name + base);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::string adapter = folder() + "/" + name + "/adapters/a/adapter";
    const SafetensorsFile file(adapter + "/adapter_model.safetensors");
    for (const checkpoints::TensorEntry& entry : file.entries())
      EXPECT_TRUE(entry.name.starts_with("base_model.model.model.language_model.layers.")) << entry.name;
    EXPECT_NE(Json::parse_file(adapter + "/adapter_config.json").at("exclude_modules").dump().find("visual"),
              std::string::npos);
    const Outcome merged = run("merge " + adapter + " " + folder() + "/" + name + "_merged");
    ASSERT_EQ(merged.code, 0) << merged.err;
    expect_folder(folder() + "/" + name + "_merged");
    if (!base.empty()) continue;
    const std::string asked = " -q --greedy -n 6 -p 'What is 10 + 10?'";
    const Outcome answer = run("generate " + pictures() + " --adapter " + adapter + asked);
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_EQ(answer.out, run("generate " + folder() + "/" + name + "_merged" + asked).out);
  }
}

TEST_F(PicturesCli, AQuantizedRunIsExportedWithTheTower) {
  const Outcome trained =
      run(train(pictures(), "fp8", "--quantize.preset FP8 --train.steps 2 --model.dtype bfloat16"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const std::string form : {"modelopt", "compressed-tensors"}) {
    const std::string exported = folder() + "/exported_" + form;
    const Outcome outcome = run("export " + folder() + "/fp8 " + exported + " --form " + form);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_folder(exported);
    const std::string how = Json::parse_file(exported + "/config.json").at("quantization_config").dump();
    EXPECT_NE(how.find("\"model.visual.blocks.0.attn.qkv\""), std::string::npos) << how;
    EXPECT_EQ(run("generate " + exported + " -q --greedy -n 3 -p x").code, 0);
  }
}

// Rollouts are of the text alone, too.
TEST_F(PicturesCli, APolicyLearnsAsItsTextAlone) {
  write_file(folder() + "/prompts.jsonl", R"({"prompt": [{"role": "user", "content": "What is 1 + 2?"}]})"
                                          "\n");
  write_file(folder() + "/grpo.yaml",
             "recipe: grpo\ndata: {train: [" + folder() +
                 "/prompts.jsonl], max_length: 48}\ngrpo: {group_size: 4, prompts_per_rollout: 1, "
                 "sampling: {max_new_tokens: 7}, rewards: [{type: pattern, pattern: '[0-9a-f]'}]}\n"
                 "train: {steps: 2, optimizer: {lr: 1e-3}}\n");
  for (const std::string& model : {text(), pictures()}) {
    const Outcome outcome =
        run("train " + folder() + "/grpo.yaml --model.path " + model + " --output " + model + "_grpo");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  expect_folder(pictures() + "_grpo/model", text() + "_grpo/model");
}

// Training it in full would leave nothing.
TEST_F(PicturesCli, ATowerInCodesIsRefusedBeforeTraining) {
  const std::string coded = folder() + "/coded";
  std::filesystem::copy(pictures(), coded);
  Json config = Json::parse_file(coded + "/config.json");
  config.set("quantization_config", Json::Object{{"quant_method", "fp8"}});
  write_file(coded + "/config.json", config.dump(2));
  const SafetensorsFile file(pictures() + "/model.safetensors");
  std::vector<checkpoints::TensorInfo> infos;
  for (const checkpoints::TensorEntry& entry : file.entries())
    infos.push_back({entry.name, file.tensor(entry.name).shape(), file.tensor(entry.name).dtype()});
  infos.push_back({"model.visual.blocks.0.attn.qkv.weight_scale_inv", {1, 1}, DType::kF32});
  checkpoints::SafetensorsWriter writer(coded + "/model.safetensors", infos);
  for (const checkpoints::TensorEntry& entry : file.entries()) writer.add(file.tensor(entry.name));
  writer.add(Tensor::from<float>(std::vector<float>{1}, {1, 1}));
  writer.close();
  for (const std::string flags : {"--dry-run", "--train.steps 2"}) {
    expect_refused(train(coded, "coded_run", flags), 2,
                   "belongs to codes of a tower that is quantized, which a saved model of numbers has no "
                   "place for; train adapters, or the original model");
    EXPECT_FALSE(std::filesystem::exists(folder() + "/coded_run"));
  }
  const Outcome adapters = run("train " + with_adapter("coded_lora") + " --model.path " + coded +
                               " --output " + folder() + "/coded_lora --train.steps 2");
  EXPECT_EQ(adapters.code, 0) << adapters.err;
}

TEST_F(PicturesCli, ANewModelIsTheTextAlone) {
  const Outcome made = run("init " + pictures() + " " + folder() + "/new");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.err.find("is of a model that also reads pictures: the text alone is made, without a tower"),
            std::string::npos)
      << made.err;
  const SafetensorsFile file(folder() + "/new/model.safetensors");
  EXPECT_NE(file.find("model.language_model.embed_tokens.weight"), nullptr);
  EXPECT_EQ(run("generate " + folder() + "/new -q --greedy -n 3 -p x").code, 0);
}

TEST_F(PicturesCli, RowsWithPicturesAreRefusedByName) {
  const auto refused = [&](const std::string& row, const std::string& message) {
    write_file(folder() + "/rows.jsonl", row + "\n");
    expect_refused(train(pictures(), "none", "--dry-run --data.train [" + folder() + "/rows.jsonl]"), 2,
                   message);
  };
  const std::string messages =
      R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  refused("{" + messages + R"(, "images": ["a.png"]})",
          "has images, which is not read: models learn from text alone");
  refused(R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}, )"
          R"({"role": "assistant", "content": "b"}]})",
          "only text can be trained on");
  write_file(folder() + "/rows.jsonl", "{" + messages + R"(, "images": []})" + "\n");
  EXPECT_EQ(run(train(pictures(), "none", "--dry-run --data.train [" + folder() + "/rows.jsonl]")).code, 0);
}

// Rows with pictures are refused for training; an inspection says what a model would get of them.
TEST_F(PicturesCli, PicturesOfRowsAreInspected) {
  if (!is_built("media", "jpeg")) GTEST_SKIP() << "this build reads no JPEG";
  const std::string own = folder() + "/inspected",
                    jpeg = TEMPER_SOURCE_DIR "/tests/goldens/decoded_pictures/turned_6.jpg";
  std::filesystem::copy(pictures(), own);
  write_file(own + "/preprocessor_config.json",
             R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "min_pixels": 1024})");
  make_directories(folder() + "/rows");
  write_file(folder() + "/rows/a.jpg", read_file(jpeg));
  write_file(folder() + "/rows/cut.jpg", read_file(jpeg).substr(0, 400));
  const auto row = [](const std::string& images) {
    return R"({"images": [)" + images + R"(], "messages": [{"role": "user", "content": "<image> <image>"},)" +
           R"({"role": "assistant", "content": "x"}]})" + "\n";
  };
  write_file(folder() + "/rows/rows.jsonl",
             R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]})"
             "\n" +
                 row(R"("a.jpg", "cut.jpg")") + row(R"("a.jpg")"));
  const std::string data = " --data.train " + folder() + "/rows/rows.jsonl --data.on_bad_row skip";
  const Outcome outcome = run("data inspect --model.path " + own + data);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string line = "  picture images[0] (a.jpg): 31 x 45 pixels";
  for (const std::string& expected :
       {std::string("has images, which is not read"),
        line + ", resized to 32 x 32, a grid of 1 x 2 x 2 patches, 1 tokens\n",
        std::string(
            "  picture bad: images[1]: [cut.jpg] is truncated after 400 bytes; get the whole file again"),
        std::string(
            "  pictures: the number of pictures in images is 1, and the text names 2; write <image>")})
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << " in " << outcome.out;
  // A model of text alone says nothing of grids.
  EXPECT_NE(run("data inspect --model.path " + text() + data).out.find(line + "\n"), std::string::npos);
  expect_refused("train " + yaml() + " --data.train " + folder() + "/rows/rows.jsonl", 2,
                 "has images, which is not read");
}

}  // namespace
}  // namespace temper
