#include "checkpoints/files/element_runs.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json/json.h"

namespace temper::checkpoints {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 60;  // so that no sum overflows

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

std::vector<Columns> columns_of(std::span<const Slice> runs) {
  std::vector<Columns> all;
  for (const Slice& run : runs) {
    if (!all.empty() && run.count == all.back().first.count) {
      Columns& last = all.back();
      const int64_t distance = last.times == 1 ? run.whole - last.first.whole : last.distance;
      if (run.whole == last.first.whole + last.times * distance) {
        last.distance = distance;
        ++last.times;
        continue;
      }
    }
    all.push_back({run});
  }
  return all;
}

std::string format_elements(const Shape& whole, std::span<const Slice> runs) {
  std::vector<int64_t> shape;
  for (int d = 0; d < whole.ndim(); ++d) shape.push_back(whole[d]);
  std::vector<std::string> parts;
  for (const auto& [run, distance, times] : columns_of(runs))
    parts.push_back(times < 2 ? fmt::format("[{},{}]", run.whole, run.count)
                              : fmt::format("[{},{},{},{}]", run.whole, run.count, distance, times));
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
        fail("found {} elements from {} on, behind {} of {}; the tensor has {} of them", numbers[1], first,
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
