#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoints/safetensors.h"

// The header of the safetensors format (huggingface.co/docs/safetensors): eight bytes with the little-endian
// length of a JSON text, that text, then the data of all tensors without holes.
namespace temper::checkpoints {

inline constexpr size_t kLengthBytes = 8;
inline constexpr size_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;
  size_t data_start = 0;  // the first byte after the header
};

// Checks every rule of the format over the bytes of a whole file; errors name `path` and the tensor.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& path);

// The eight bytes and the JSON text for tensors laid out in the order given, padded with spaces so that the
// data starts at a multiple of eight.
std::string format_safetensors_header(std::span<const TensorInfo> tensors, const std::string& path);

}  // namespace temper::checkpoints
