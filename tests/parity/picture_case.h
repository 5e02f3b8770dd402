#pragma once
#include "base/files.h"
#include "tests/parity/golden_case.h"

namespace temper::parity {

inline std::string picture_folder(const std::string& name) {
  return std::string(TEMPER_SOURCE_DIR "/tests/goldens/pictures/") + name;
}

// A published folder of a model that reads pictures, by its name, with "eager" or fast kernels, and what was
// recorded of it, row by row.
class PictureCase : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  explicit PictureCase(const std::string& recorded) : golden_(recorded) {}

  std::string family() const { return std::get<0>(GetParam()); }
  std::string folder() const { return picture_folder(family()); }
  std::unique_ptr<models::Model> load() const {
    models::BuildOptions options;
    options.dtype = DType::kF32;
    if (std::get<1>(GetParam()) == "eager") options.ops = ops::OpsConfig{.fallback = "eager"};
    return models::load_model(folder(), options);
  }
  bool has(const std::string& name) const { return golden_.find(name) != nullptr; }
  static std::string row(size_t i, const std::string& what) { return fmt::format("row.{}.{}", i, what); }
  std::vector<int32_t> of_row(size_t i, const char* what) const { return ints(golden_.tensor(row(i, what))); }

  const checkpoints::SafetensorsFile golden_;
};

}  // namespace temper::parity
