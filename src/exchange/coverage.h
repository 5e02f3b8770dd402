#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace temper::exchange {

// Which elements of a tensor have come. A rank's columns of a matrix are one entry, however many rows they
// have.
class Coverage {
 public:
  // `width`: of the tensor's rows, 1 or more.
  explicit Coverage(int64_t width) : width_(width) {}

  // `count` elements from `begin` on, and as many after every further `distance` elements, `times` in all. An
  // Error that names the tensor where one of them has come before; nothing is added then.
  void add(const std::string& name, int64_t begin, int64_t count, int64_t distance = 0, int64_t times = 1);
  int64_t count() const { return count_; }

 private:
  struct Interval {
    int64_t begin = 0, end = 0;
    auto operator<=>(const Interval&) const = default;
  };
  using Rows = std::map<int64_t, int64_t>;  // from, until; never two that touch
  void add_part(const std::string& name, Interval columns, Interval rows);

  int64_t width_, count_ = 0;
  std::map<Interval, Rows> rows_;  // of each set of columns that has come
};

}  // namespace temper::exchange
