#include "checkpoints/files/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <unordered_set>

#include <fmt/ranges.h>

#include "base/json/json.h"
#include "base/text.h"

namespace temper::checkpoints {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

struct FormatDType {
  std::string_view name;
  int64_t bits;
};
constexpr FormatDType kFormatDTypes[] = {
    {"F32", 32},        {"BF16", 16},       {"F16", 16},    {"I32", 32},    {"I64", 64},    {"U8", 8},
    {"F64", 64},        {"I8", 8},          {"I16", 16},    {"U16", 16},    {"U32", 32},    {"U64", 64},
    {"BOOL", 8},        {"F8_E4M3", 8},     {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4},      {"C64", 64},
};

std::string_view format_name(DType dtype) {
  static constexpr std::string_view kNames[] = {"F32", "BF16", "F16", "I32", "I64", "U8", "F8_E4M3", "I8"};
  return kNames[static_cast<size_t>(dtype)];
}

constexpr std::string_view kCutShort = "the file is damaged or was cut short; download or write it again";

// Where an error happened: the file, and the tensor once it is known.
struct Place {
  const std::string& path;
  std::string_view tensor;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string message = fmt::format(format, std::forward<Args>(args)...);
    if (tensor.empty()) throw Error(fmt::format("[{}] {}", path, message));
    throw Error(fmt::format("[{}] tensor '{}': {}", path, tensor, message));
  }
};

std::string_view header_text(std::string_view file, const Place& place) {
  if (file.starts_with("version https://git-lfs"))
    place.fail("found a Git LFS pointer, expected the file itself; run `git lfs pull` in its folder");
  if (file.size() < kLengthBytes)
    place.fail("found {} bytes, expected at least the {} of the header's length; {}", file.size(),
               kLengthBytes, kCutShort);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    place.fail("found a header of {} bytes, expected at most {}; this is not a safetensors file", length,
               kMaxHeaderBytes);
  if (length > file.size() - kLengthBytes)
    place.fail("found {} bytes after the header's length, expected {}; {}", file.size() - kLengthBytes,
               length, kCutShort);
  const std::string_view text = file.substr(kLengthBytes, length);
  if (!text.starts_with('{'))
    place.fail("found a header that does not start with '{{', expected JSON; this is not a safetensors file");
  return text;
}

std::vector<std::pair<std::string, std::string>> parse_metadata(const Json& value, const Place& place) {
  if (!value.is_object())
    place.fail("__metadata__: found {}, expected an object of strings", value.kind_name());
  std::vector<std::pair<std::string, std::string>> metadata;
  for (const auto& [key, text] : value.as_object()) {
    if (!text.is_string())
      place.fail("__metadata__ '{}': found {}, expected a string", key, text.kind_name());
    metadata.emplace_back(key, text.as_string());
  }
  return metadata;
}

const Json& field(const Json& value, std::string_view key, const Place& place) {
  const Json* found = value.find(key);
  if (found == nullptr) place.fail("found no '{}', expected dtype, shape and data_offsets", key);
  return *found;
}

// An array of integers that are not negative.
std::vector<int64_t> sizes_of(const Json& value, std::string_view key, const Place& place) {
  if (!value.is_array()) place.fail("{}: found {}, expected an array of integers", key, value.kind_name());
  std::vector<int64_t> sizes;
  for (const Json& size : value.as_array()) {
    if (!size.is_int() || size.as_int() < 0)
      place.fail("{}: found {}, expected integers from 0 to 2^63-1", key, size.dump());
    sizes.push_back(size.as_int());
  }
  return sizes;
}

int64_t bytes_of(const std::vector<int64_t>& shape, std::string_view dtype, const Place& place) {
  const auto* known = std::find_if(std::begin(kFormatDTypes), std::end(kFormatDTypes),
                                   [&](const FormatDType& each) { return each.name == dtype; });
  if (known == std::end(kFormatDTypes))
    place.fail("dtype: found '{}', expected one of the format's, for example 'F32' or 'BF16'", dtype);
  int64_t bits = known->bits, extent = known->bits;  // extent: as if no size were 0, so that strides fit too
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent))
      place.fail("shape: found [{}], expected fewer than 2^63 bits of {}", fmt::join(shape, ", "), dtype);
    bits *= size;
  }
  if (bits % 8 != 0)
    place.fail("shape: found [{}], which ends inside a byte of {}; expected whole bytes",
               fmt::join(shape, ", "), dtype);
  return bits / 8;
}

TensorEntry parse_entry(std::string name, const Json& value, int64_t data_bytes, const std::string& path) {
  const Place place{path, name};
  if (!value.is_object())
    place.fail("found {}, expected an object with dtype, shape and data_offsets", value.kind_name());
  const Json& dtype = field(value, "dtype", place);
  if (!dtype.is_string()) place.fail("dtype: found {}, expected a string", dtype.kind_name());
  TensorEntry entry{{}, dtype.as_string(), sizes_of(field(value, "shape", place), "shape", place)};
  const std::vector<int64_t> offsets = sizes_of(field(value, "data_offsets", place), "data_offsets", place);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    place.fail("data_offsets: found [{}], expected [begin, end] with begin <= end", fmt::join(offsets, ", "));
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const int64_t expected = bytes_of(entry.shape, entry.dtype, place);
  if (entry.end - entry.begin != expected)
    place.fail("data_offsets: found {} bytes, expected {} for {} [{}]", entry.end - entry.begin, expected,
               entry.dtype, fmt::join(entry.shape, ", "));
  if (entry.end > data_bytes)
    place.fail("found {} bytes of data in the file, expected at least {}; {}", data_bytes, entry.end,
               kCutShort);
  entry.name = std::move(name);
  return entry;
}

// The data of the tensors must follow one another and end with the file.
void check_layout(std::vector<TensorEntry>& entries, int64_t data_bytes, const std::string& path) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  int64_t at = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != at)
      Place{path, entry.name}.fail(
          "found data from byte {}, expected from {} ({}); the file is damaged: download it again, or save "
          "the model again",
          entry.begin, at, entry.begin > at ? "a hole before it" : "it overlaps another tensor");
    at = entry.end;
  }
  if (at != data_bytes)
    Place{path, {}}.fail(
        "found {} bytes of data, expected the {} of its tensors; the file is damaged: download it again, or "
        "save the model again",
        data_bytes, at);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& path) {
  const Place place{path, {}};
  const std::string_view text = header_text(file, place);
  Json root = Json::parse(text, path);
  SafetensorsHeader header;
  header.data_start = kLengthBytes + text.size();
  const auto data_bytes = static_cast<int64_t>(file.size() - header.data_start);
  header.entries.reserve(root.as_object().size());
  for (auto& [name, value] : root.as_object()) {
    if (name == "__metadata__")
      header.metadata = parse_metadata(value, place);
    else
      header.entries.push_back(parse_entry(std::move(name), value, data_bytes, path));
  }
  check_layout(header.entries, data_bytes, path);
  return header;
}

std::string format_safetensors_header(std::span<const TensorInfo> tensors, const std::string& path,
                                      const Metadata& metadata) {
  std::string text = R"({"__metadata__":{"format":"pt")";
  for (const auto& [name, value] : metadata)
    text += fmt::format(",{}:{}", Json(name).dump(), Json(value).dump());
  text += '}';
  std::unordered_set<std::string_view> names;
  int64_t at = 0;
  for (const TensorInfo& info : tensors) {
    const Place place{path, info.name};
    if (!names.insert(info.name).second || info.name == "__metadata__")
      place.fail("this name is already taken");
    const int64_t end = at + checked_multiply(info.shape.numel(), size_of(info.dtype));
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", Json(info.name).dump(),
                        format_name(info.dtype), fmt::join(info.shape, ","), at, end);
    at = end;
  }
  text += '}';
  if (valid_utf8_prefix(text) != text.size())
    Place{path, {}}.fail("the names of its tensors are not all valid UTF-8");
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes)
    Place{path, {}}.fail(
        "found {} tensors that need a header of {} bytes, expected at most {}; use several files",
        tensors.size(), text.size(), kMaxHeaderBytes);
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

std::optional<DType> supported_dtype(const TensorEntry& entry) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8,
                            DType::kF8E4M3, DType::kI8})
    if (entry.dtype == format_name(dtype)) return dtype;
  return std::nullopt;
}

}  // namespace temper::checkpoints
