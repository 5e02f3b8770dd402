#include "models/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

class ModelFolderOnDisk : public testing::Test {
 protected:
  ModelFolderOnDisk() { save_model(*tiny_model(), path, ""); }

  Json config() const { return Json::parse_file(join_path(path, "config.json")); }
  void set(const char* key, Json value) {
    Json changed = config();
    changed.set(key, std::move(value));
    write_file(join_path(path, "config.json"), changed.dump(2));
  }

  TemporaryDirectory folder;
  std::string path = folder / "model";
};

TEST_F(ModelFolderOnDisk, KeysWithoutEffectAreListedOnceAndWrittenBack) {
  set("use_mrope", false);
  set("_comment", "from elsewhere");
  set("quantization_config", nullptr);
  testing::internal::CaptureStderr();
  const auto model = load_model(path, {});
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "[" + path + "/config.json] keys without effect, kept when the model is saved: use_mrope, _comment\n");
  const std::string saved = folder / "saved";
  save_model(*model, saved, "");
  Json expected = config();
  EXPECT_EQ(Json::parse_file(join_path(saved, "config.json")), expected);
}

// A NaN of either sign is `nan`; the element is the file's, not that of the parameter made of several
// tensors.
TEST_F(ModelFolderOnDisk, WeightsThatAreNotFiniteAreRefused) {
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  const auto refused = [&](float bad, DType dtype) {
    remove_all(path);
    const auto model = tiny_model({.dtype = dtype});
    auto& parameters = model->decoder.parameters();
    const WeightTable::Place place = parameters.table().find_source(name);
    const Tensor rows = Tensor::from(std::vector<float>(32, bad)).reshape({1, 32});
    parameters.at(place.spec->name)
        .value.narrow(0, place.row + 15, 1)
        .narrow(1, 31, 1)
        .copy_from(rows.narrow(1, 31, 1));
    save_model(*model, path, "");
    return error_of([&] { load_model(path, {}); });
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const auto& [bad, printed] : {std::pair(NAN, "nan"), std::pair(-NAN, "nan"),
                                       std::pair(INFINITY, "inf"), std::pair(-INFINITY, "-inf")})
      expect_has(refused(bad, dtype),
                 fmt::format("[{}] tensor '{}': found {} at [15, 31], expected finite numbers", path, name,
                             printed));
  EXPECT_EQ(refused(1e4f, DType::kF16), "");
}

TEST_F(ModelFolderOnDisk, WeightsThatDoNotFitAreReportedBeforeMemoryIsTaken) {
  set("intermediate_size", int64_t{1} << 24);
  set("num_hidden_layers", 4096);
  set("hidden_size", int64_t{1} << 20);
  expect_has(error_of([&] { load_model(path, {}); }), "the weights do not fit the model");
}

}  // namespace
}  // namespace temper::models
