#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "checkpoints/files/safetensors_header.h"

namespace temper::checkpoints {
namespace {

std::string valid_file() {
  const std::vector<TensorInfo> infos = {{"layers.0.weight", {3, 5}, DType::kF32},
                                         {"layers.0.bias", {4}, DType::kBF16},
                                         {"empty", {0, 2}, DType::kI64},
                                         {"mask", {7}, DType::kU8}};
  std::string file = format_safetensors_header(infos, "fuzz");
  file.append(60 + 8 + 7, 'x');
  return file;
}

// Flips, inserts, removes, repeats or replaces; text of the format is spliced in to get past the parser.
std::string mutate(std::string file, uint64_t seed) {
  const Random random(seed, RandomPurpose::kData);
  static const std::vector<std::string> kPieces = {"0",
                                                   "-1",
                                                   "9223372036854775807",
                                                   "18446744073709551616",
                                                   "1e400",
                                                   "{",
                                                   "}",
                                                   "[]",
                                                   "[0,0]",
                                                   "null",
                                                   "\"F64\"",
                                                   "\"dtype\":",
                                                   ",",
                                                   "\xFF",
                                                   "\\u0000",
                                                   "4294967296,4294967296"};
  const uint64_t count = 1 + random.below(4, 0);
  for (uint64_t m = 0; m < count && !file.empty(); ++m) {
    const uint64_t key = 8 * (m + 1);
    const size_t at = random.below(file.size(), key);
    const size_t length = 1 + random.below(std::min<size_t>(16, file.size() - at), key + 1);
    switch (random.below(6, key + 2)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ (1 << random.below(8, key + 3)));
        break;
      case 1:
        file.insert(at, kPieces[random.below(kPieces.size(), key + 3)]);
        break;
      case 2:
        file.erase(at, length);
        break;
      case 3:
        file.insert(at, file.substr(at, length));
        break;
      case 4:
        file.replace(at, length, kPieces[random.below(kPieces.size(), key + 3)]);
        break;
      default:
        file.resize(at);
    }
  }
  // Half of the files get a length that fits again, so that mutations of the JSON are reached.
  const size_t end = file.rfind('}');
  if (random.below(2, 1) == 0 && end != std::string::npos && end >= kLengthBytes)
    for (size_t i = 0; i < kLengthBytes; ++i)
      file[i] = static_cast<char>((end + 1 - kLengthBytes) >> (8 * i));
  return file;
}

TEST(SafetensorsFuzz, MutatedFilesThrowOrOpen) {
  const std::string valid = valid_file();
  const TemporaryDirectory folder;
  int opened = 0, refused = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    const std::string bytes = mutate(valid, seed);
    try {
      const SafetensorsHeader header = parse_safetensors_header(bytes, "fuzz");
      ++opened;
      FileWriter writer(folder / "x.safetensors");
      writer.write(bytes);
      writer.close();
      const SafetensorsFile file(folder / "x.safetensors");
      for (const TensorEntry& entry : file.entries())
        if (supported_dtype(entry) && entry.shape.size() <= Shape::kMaxDims) file.tensor(entry.name).clone();
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace temper::checkpoints
