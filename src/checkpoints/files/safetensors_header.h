#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/files/safetensors.h"

// The header of the safetensors format (huggingface.co/docs/safetensors): eight bytes with the little-endian
// length of a JSON text, that text, then the data of all tensors without holes.
namespace temper::checkpoints {

inline constexpr size_t kLengthBytes = 8;
inline constexpr size_t kMaxHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // in the order of their data
  Metadata metadata;
  size_t data_start = 0;  // the first byte after the header
};

// Checks every rule of the format over the bytes of a whole file; errors name `path` and the tensor.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& path);

// The eight bytes and the JSON text for tensors laid out in the order given, padded with spaces so that the
// data starts at a multiple of eight. `metadata`: what the file says besides "format": "pt".
std::string format_safetensors_header(std::span<const TensorInfo> tensors, const std::string& path,
                                      const Metadata& metadata = {});

}  // namespace temper::checkpoints
