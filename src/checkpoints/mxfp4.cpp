#include "checkpoints/mxfp4.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/threads/threads.h"
#include "checkpoints/files/finite.h"
#include "quant/element.h"

namespace temper::checkpoints {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr uint8_t kNanScale = 255;

std::string name_of(const WeightSpec& spec, std::string_view ending) {
  return spec.sources.front().name + std::string(ending);
}

std::array<float, 16> numbers() {
  std::array<float, 16> all{};
  for (uint8_t code = 0; code < all.size(); ++code) all[code] = quant::number_of(quant::kE2M1, code);
  return all;
}

float scale_of(uint8_t byte) {
  return byte == kNanScale ? std::nanf("") : std::ldexp(1.0f, static_cast<int>(byte) - 127);
}

// Where a row of an expert lies in files.
int64_t row_in_files(const WeightSpec& spec, int64_t row, int64_t rows) {
  return spec.alternating ? row % (rows / 2) * 2 + row / (rows / 2) : row;
}

}  // namespace

bool holds_mxfp4(const ModelFolder& folder, const WeightSpec& spec) {
  return spec.mxfp4 &&
         (folder.find(name_of(spec, kBlocks)) != nullptr || folder.find(name_of(spec, kScales)) != nullptr);
}

bool holds_mxfp4(const ModelFolder& folder, const WeightTable& table) {
  return std::any_of(table.specs().begin(), table.specs().end(),
                     [&](const WeightSpec& spec) { return holds_mxfp4(folder, spec); });
}

const WeightSpec* find_mxfp4(const WeightTable& table, std::string_view hf_name) {
  for (const std::string_view ending : {kBlocks, kScales}) {
    if (!hf_name.ends_with(ending)) continue;
    const WeightSpec* spec = table.find_source(hf_name.substr(0, hf_name.size() - ending.size())).spec;
    if (spec != nullptr && spec->mxfp4) return spec;
  }
  return nullptr;
}

std::vector<std::string> misfits_of_mxfp4(const ModelFolder& folder, const WeightSpec& spec) {
  const int64_t rows = spec.shape[0] / spec.experts_in_files, blocks = spec.shape[1] / kMxfp4Block;
  std::vector<std::string> misfits;
  if (spec.shape[1] % kMxfp4Block != 0)
    misfits.push_back(fmt::format("'{}' is in blocks of {}, but has {} columns", spec.sources.front().name,
                                  kMxfp4Block, spec.shape[1]));
  const auto check = [&](std::string_view ending, const std::vector<int64_t>& shape) {
    const std::string name = name_of(spec, ending);
    const TensorEntry* entry = folder.find(name);
    if (entry == nullptr)
      misfits.push_back(fmt::format("'{}' is missing, but its other half exists", name));
    else if (entry->shape != shape || entry->dtype != "U8")
      misfits.push_back(fmt::format("'{}' is {} [{}], expected U8 [{}]", name, entry->dtype,
                                    fmt::join(entry->shape, ", "), fmt::join(shape, ", ")));
  };
  check(kBlocks, {spec.experts_in_files, rows, blocks, kMxfp4Block / 2});
  check(kScales, {spec.experts_in_files, rows, blocks});
  return misfits;
}

Tensor read_mxfp4(const ModelFolder& folder, const WeightSpec& spec, int64_t expert) {
  const int64_t rows = spec.shape[0] / spec.experts_in_files, columns = spec.shape[1],
                blocks = columns / kMxfp4Block;
  const std::string name = name_of(spec, kBlocks), of_scales = name_of(spec, kScales);
  const Tensor codes = folder.tensor(name).narrow(0, expert, 1),
               scales = folder.tensor(of_scales).narrow(0, expert, 1);
  const Tensor read = Tensor::empty({rows, columns}, DType::kF32, MemoryTag::kWorkspace);
  static const std::array<float, 16> kNumbers = numbers();
  parallel_for(rows, [&](int64_t row) {
    const int64_t first = row_in_files(spec, row, rows) * blocks;
    const uint8_t* code = codes.data<uint8_t>() + first * (kMxfp4Block / 2);
    float* to = read.data<float>() + row * columns;
    for (int64_t block = 0; block < blocks; ++block) {
      const float scale = scale_of(scales.data<uint8_t>()[first + block]);
      for (int64_t pair = 0; pair < kMxfp4Block / 2; ++pair, ++code) {
        *to++ = kNumbers[*code & 15] * scale;
        *to++ = kNumbers[*code >> 4] * scale;
      }
    }
  });
  check_finite(read, expert * rows, name, folder.path());
  folder.release(name, codes);
  folder.release(of_scales, scales);
  return read;
}

}  // namespace temper::checkpoints
