#include "models/folder_config.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "checkpoints/files/safetensors.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

constexpr const char *kHead = "lm_head.weight", *kEmbedding = "model.embed_tokens.weight";

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

BuildOptions in_float32() {
  BuildOptions options;
  options.dtype = DType::kF32;
  return options;
}

// A copy of a saved model with a tied head, whose file holds this head as well.
void add_head(const std::string& folder, const std::function<Tensor(Tensor embedding)>& head_of) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const auto files = checkpoints::ModelFolder::open(folder);
    for (const std::string& name : files.names()) tensors.emplace_back(name, files.tensor(name).clone());
    tensors.emplace_back(kHead, head_of(files.tensor(kEmbedding).clone()));
  }
  std::vector<checkpoints::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
  checkpoints::SafetensorsWriter writer(join_path(folder, "model.safetensors"), infos);
  for (const auto& [name, tensor] : tensors) writer.add(tensor);
  writer.close();
}

std::string tied_folder(const TemporaryDirectory& out, const std::string& name,
                        const std::function<Tensor(Tensor)>& head_of) {
  const std::string folder = out / name;
  const auto model = tiny_model({.sizes = {{"tie_word_embeddings", true}}});
  save_model(*model, folder, "");
  add_head(folder, head_of);
  return folder;
}

std::string warning_of(const std::string& folder) {
  testing::internal::CaptureStderr();
  config_of_folder(folder);
  return testing::internal::GetCapturedStderr();
}

TEST(FolderConfig, AHeadOfEqualNumbersIsTied) {
  const TemporaryDirectory out;
  const std::string same = tied_folder(out, "same", [](Tensor embedding) { return embedding; });
  EXPECT_TRUE(config_of_folder(same).at("tie_word_embeddings").as_bool());
  EXPECT_EQ(warning_of(same), "");
  EXPECT_EQ(load_model(same, in_float32())->decoder.parameters().table().find("head.weight"), nullptr);
}

TEST(FolderConfig, AnotherHeadIsUsedSavedAndReportedOnce) {
  const TemporaryDirectory out;
  // The last row alone, and another dtype with other numbers.
  for (const char* name : {"last", "dtype"}) {
    const std::string folder = tied_folder(out, name, [&](Tensor embedding) {
      embedding.data<float>()[embedding.numel() - 1] += 1;
      return name == std::string("last") ? embedding : embedding.to(DType::kBF16);
    });
    const std::string warning = warning_of(folder);
    EXPECT_NE(warning.find("but the files hold another 'lm_head.weight'"), std::string::npos) << warning;
    EXPECT_EQ(warning_of(folder), "");
    const auto model = load_model(folder, in_float32());
    const auto files = checkpoints::ModelFolder::open(folder);
    const Tensor head = files.tensor(kHead).to(DType::kF32);
    EXPECT_TRUE(same_bits(model->decoder.parameters().value("head.weight"), head));
    const std::string saved = out / (std::string(name) + "_saved");
    save_model(*model, saved, folder);
    EXPECT_FALSE(checkpoints::read_model_config(saved).at("tie_word_embeddings").as_bool());
    EXPECT_TRUE(same_bits(checkpoints::ModelFolder::open(saved).tensor(kHead), head));
    EXPECT_EQ(warning_of(saved), "");
    // Merged, too.
    const auto adapter = new_adapter(*model, {.rank = 2, .alpha = 4}, 1, "");
    save_adapter(*adapter, out / "adapter", folder);
    merge_adapter(out / "adapter", folder, out / (std::string(name) + "_merged"), int64_t{1} << 30);
    EXPECT_TRUE(same_bits(
        checkpoints::ModelFolder::open(out / (std::string(name) + "_merged")).tensor(kHead).to(DType::kF32),
        head));
  }
}

TEST(FolderConfig, AHeadOfAnotherShapeIsAnErrorOfItsOwn) {
  const TemporaryDirectory out;
  const std::string folder =
      tied_folder(out, "short", [](Tensor embedding) { return embedding.narrow(0, 0, 4); });
  expect_has(error_of([&] { load_model(folder, in_float32()); }), "'lm_head.weight' is [4,");
}

}  // namespace
}  // namespace temper::models
