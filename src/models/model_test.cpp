#include "models/model.h"

#include <gtest/gtest.h>

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

TEST_F(ModelFolderOnDisk, WeightsThatDoNotFitAreReportedBeforeMemoryIsTaken) {
  set("intermediate_size", int64_t{1} << 24);
  set("num_hidden_layers", 4096);
  set("hidden_size", int64_t{1} << 20);
  expect_has(error_of([&] { load_model(path, {}); }), "the weights do not fit the model");
}

}  // namespace
}  // namespace temper::models
