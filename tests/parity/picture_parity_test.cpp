// Pictures as transformers' image processors make them with Pillow: what is decoded, sizes, grids and bytes
// are equal, values up to the rounding of float32.
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/parts/rooms.h"
#include "checkpoints/files/safetensors.h"
#include "media/open_picture.h"
#include "preprocessing/pixel_values.h"
#include "tests/parity/golden_case.h"
#include "tests/support/crc32.h"

namespace temper::parity {
namespace {

using media::Picture;
using media::Size;
using preprocessing::PictureSettings;

class PictureParity : public testing::Test {
 protected:
  PictureParity() {
    for (const char* room : {"jpeg", "png"})
      if (!temper::is_built("media", room)) reason_ = fmt::format("no media/{} in this build", room);
  }

  static std::string path(const std::string& name) {
    return join_path(TEMPER_SOURCE_DIR "/tests/goldens/vision/pictures", name);
  }
  size_t size() const { return names().size(); }
  const Json::Array& names() const { return golden_.at("files").as_array(); }
  Picture picture(size_t index) const {
    const std::string name = path(names()[index].as_string());
    return media::read_picture({media::read_picture_file(name), name});
  }
  const Json::Object& settings() const { return golden_.at("settings").as_object(); }

  // As preprocessor_config.json has it.
  static PictureSettings settings_of(const Json& recorded) {
    Json config = recorded;
    config.set("image_processor_type", config.at("class"));
    config.set("resample", config.at("resample") == Json("bicubic") ? 3 : 2);
    return preprocessing::picture_settings_of(config, "golden.json");
  }

  static std::vector<Picture> resized(const Picture& whole, const PictureSettings& settings) {
    const auto shape = preprocessing::shape_of(whole.size(), settings, "");
    std::vector<Picture> parts;
    for (int64_t part = 0; part <= shape.crops; ++part)
      parts.push_back(preprocessing::resized_part(whole, settings, shape, part));
    return parts;
  }

  // Bytes of red, green and blue of several pictures, as recorded tensors have them.
  static std::vector<uint8_t> colors_of(const std::vector<Picture>& pictures) {
    std::vector<uint8_t> bytes;
    for (const Picture& picture : pictures)
      for (int64_t i = 0; i < picture.bytes(); ++i)
        if (i % Picture::kPixelBytes < Picture::kColors) bytes.push_back(picture.row(0)[i]);
    return bytes;
  }
  static int64_t crc32_of(const std::vector<uint8_t>& bytes) {
    Crc32 crc;
    for (const uint8_t byte : bytes) crc.add(byte);
    return crc.value();
  }
  // False where the tensor is not recorded.
  bool is_recorded(const std::string& name) const { return tensors_.find(name) != nullptr; }
  std::vector<uint8_t> recorded(const std::string& name) const {
    const checkpoints::TensorEntry& entry = *tensors_.find(name);
    std::vector<uint8_t> bytes(static_cast<size_t>(entry.end - entry.begin));
    std::memcpy(bytes.data(), tensors_.bytes(entry), bytes.size());
    return bytes;
  }

  std::string reason_;
  Json golden_ = Json::parse_file(path("golden.json"));
  checkpoints::SafetensorsFile tensors_{path("golden.safetensors")};
};

TEST_F(PictureParity, DecodedBytesAreEqual) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  ASSERT_EQ(size(), 16U);
  for (size_t i = 0; i < size(); ++i) {
    std::vector<Picture> pictures;
    pictures.push_back(picture(i));
    EXPECT_EQ(colors_of(pictures), recorded(fmt::format("decoded.{}", i))) << names()[i].as_string();
  }
}

// All pictures in all settings of whole pictures.
TEST_F(PictureParity, GridsSizesAndBytesAreEqual) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  int compared = 0;
  for (const auto& [name, setting] : settings()) {
    if (!setting.find("crc32_of_pil_bytes") || setting.at("config").find("do_pan_and_scan")) continue;
    const PictureSettings settings = settings_of(setting.at("config"));
    for (size_t i = 0; i < size(); ++i) {
      const Picture whole = picture(i);
      const auto shape = preprocessing::shape_of(whole.size(), settings, name);
      const Json::Array& size = setting.at("resized").as_array()[i].as_array();
      EXPECT_EQ(shape.resized, (Size{size[1].as_int(), size[0].as_int()})) << name << " " << i;
      if (shape.grid) {
        const Json::Array& grid = setting.at("grids").as_array()[i].as_array();
        EXPECT_EQ(*shape.grid, (preprocessing::Grid{grid[0].as_int(), grid[1].as_int(), grid[2].as_int()}));
      }
      const auto bytes = colors_of(resized(whole, settings));
      EXPECT_EQ(crc32_of(bytes), setting.at("crc32_of_pil_bytes").as_array()[i].as_int()) << name << " " << i;
      const std::string tensor = fmt::format("{}.resized.{}", name, i);
      if (is_recorded(tensor)) {
        EXPECT_EQ(bytes, recorded(tensor)) << tensor;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6 * 16);
}

TEST_F(PictureParity, PanAndScanCutsTheSameCrops) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  const Json& setting = golden_.at("settings").at("gemma3_pan_and_scan");
  const PictureSettings settings = settings_of(setting.at("config"));
  for (size_t i = 0; i < 2; ++i) {
    const Json& grid = setting.at("grids").as_array()[i];
    const auto index = static_cast<size_t>(grid.at("picture").as_int());
    const Picture whole = picture(index);
    const auto shape = preprocessing::shape_of(whole.size(), settings, "");
    EXPECT_EQ(shape.crops, grid.at("num_crops").as_array()[0].as_int());
    const auto bytes = colors_of(resized(whole, settings));
    EXPECT_EQ(bytes, recorded(fmt::format("gemma3_pan_and_scan.resized.{}", index)));
  }
}

TEST_F(PictureParity, PatchesStandInTheModelsOrder) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  for (const std::string name : {"qwen2_5_vl_small", "qwen3_vl_small"}) {
    const PictureSettings settings = settings_of(golden_.at("settings").at(name).at("config"));
    const preprocessing::PixelValues made = preprocessing::prepare(picture(1), settings, name);
    const Tensor expected = tensors_.tensor(name + ".pixel_values.1");
    ASSERT_EQ(expected.shape(), (Shape{made.shape.rows, made.shape.columns}));
    float largest = 0;
    for (int64_t i = 0; i < expected.numel(); ++i)
      largest =
          std::max(largest, std::abs(made.values()[static_cast<size_t>(i)] - expected.data<float>()[i]));
    EXPECT_LE(largest, 2e-6F) << name;
  }
}

// Gemma's values are (channel, row, column) of bytes that are compared above.
TEST_F(PictureParity, PicturesOfOneSizeStandAsPlanes) {
  if (!reason_.empty()) GTEST_SKIP() << reason_;
  const PictureSettings settings = settings_of(golden_.at("settings").at("gemma3_small").at("config"));
  const preprocessing::PixelValues made = preprocessing::prepare(picture(1), settings, "");
  const std::vector<uint8_t> bytes = recorded("gemma3_small.resized.1");
  ASSERT_EQ(made.values().size(), bytes.size());
  const size_t area = bytes.size() / 3;
  for (size_t i = 0; i < bytes.size(); ++i)
    EXPECT_NEAR(made.values()[i % 3 * area + i / 3], static_cast<float>(bytes[i]) / 127.5F - 1, 2e-6F);
}

// 300 sizes, some of which are refused.
TEST_F(PictureParity, SizesOfTheTableAreEqual) {
  std::ifstream lines(path("smart_resize.jsonl"));
  int compared = 0;
  int64_t refused = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line, "");
    if (row.find("frames")) continue;  // of a video
    const preprocessing::PatchLayout layout = {.patch_size = row.at("factor").as_int(),
                                               .merge_size = 1,
                                               .min_pixels = row.at("min_pixels").as_int(),
                                               .max_pixels = row.at("max_pixels").as_int()};
    const Size size = {row.at("width").as_int(), row.at("height").as_int()};
    const Json& expected = row.at("resized");
    try {
      const Size made = preprocessing::smart_resize(size, layout, "");
      ASSERT_TRUE(expected.is_array()) << line;
      EXPECT_EQ(made, (Size{expected.as_array()[1].as_int(), expected.as_array()[0].as_int()})) << line;
    } catch (const Error&) {
      EXPECT_TRUE(expected.is_null()) << line;
      ++refused;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 300);
  EXPECT_EQ(refused, golden_.at("refused_in_tables").as_array()[0].as_int());
}

}  // namespace
}  // namespace temper::parity
