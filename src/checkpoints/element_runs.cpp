#include "checkpoints/element_runs.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"

namespace temper::checkpoints {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 60;  // so that no sum overflows

// How many of `runs` are as long as the first one and as far apart as the first two.
size_t count_alike(std::span<const Slice> runs) {
  if (runs.size() < 2) return runs.size();
  const int64_t stride = runs[1].whole - runs[0].whole;
  size_t alike = 1;
  while (alike < runs.size() && runs[alike].count == runs[0].count &&
         runs[alike].whole - runs[alike - 1].whole == stride)
    ++alike;
  return alike;
}

// first, count, stride, times
std::vector<int64_t> numbers_of(const Json& value) {
  std::vector<int64_t> numbers;
  for (const Json& number : value.as_array()) numbers.push_back(number.as_int());
  if (numbers.size() == 2) numbers.insert(numbers.end(), {0, 1});
  if (numbers.size() != 4) fail("found a run of {} numbers, expected 2 or 4", numbers.size());
  if (numbers[2] < 0 || numbers[2] > kMostElements || numbers[3] < 1)
    fail("found a run of {} times, {} elements apart", numbers[3], numbers[2]);
  return numbers;
}

}  // namespace

std::string format_elements(const Shape& whole, std::span<const Slice> runs) {
  std::vector<int64_t> shape;
  for (int d = 0; d < whole.ndim(); ++d) shape.push_back(whole[d]);
  std::vector<std::string> parts;
  while (!runs.empty()) {
    const size_t alike = count_alike(runs);
    const auto& [first, own, count] = runs[0];
    parts.push_back(alike < 2 ? fmt::format("[{},{}]", first, count)
                              : fmt::format("[{},{},{},{}]", first, count, runs[1].whole - first, alike));
    runs = runs.subspan(alike);
  }
  return fmt::format(R"({{"shape":[{}],"runs":[{}]}})", fmt::join(shape, ","), fmt::join(parts, ","));
}

HeldElements parse_elements(std::string_view text, int64_t count) {
  const Json json = Json::parse(text, "elements");
  std::vector<int64_t> sizes;
  int64_t elements = 1;
  for (const Json& size : json.at("shape").as_array()) {
    sizes.push_back(size.as_int());
    if (sizes.back() < 0 || __builtin_mul_overflow(elements, sizes.back(), &elements) ||
        elements > kMostElements)
      fail("found a shape of {} sizes that no tensor has", sizes.size());
  }
  if (sizes.size() > Shape::kMaxDims)
    fail("found {} dimensions, expected at most {}", sizes.size(), Shape::kMaxDims);
  HeldElements held{Shape(sizes), {}};
  int64_t own = 0, end = 0;  // of the run before
  for (const Json& run : json.at("runs").as_array()) {
    const std::vector<int64_t> numbers = numbers_of(run);
    int64_t first = numbers[0];
    for (int64_t i = 0; i < numbers[3]; ++i, first += numbers[2]) {
      if (first < end || numbers[1] < 1 || numbers[1] > elements - first || numbers[1] > count - own)
        fail("found {} elements from {} on, behind {} of {}, of which the tensor has {}", numbers[1], first,
             end, elements, count);
      held.runs.push_back({first, own, numbers[1]});
      own += numbers[1];
      end = first + numbers[1];
    }
  }
  if (own != count) fail("found {} elements in its runs, expected the {} of the tensor", own, count);
  return held;
}

}  // namespace temper::checkpoints
