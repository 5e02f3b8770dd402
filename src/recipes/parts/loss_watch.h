#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temper::recipes {

// Looks at losses and gradients for signs that a run learns nothing any more, though all its numbers are
// finite.
class LossWatch {
 public:
  // What is to be said of this update; each kind once.
  std::vector<std::string> after(int64_t step, double loss, double grad_norm);

 private:
  std::optional<double> first_;
  int64_t without_gradient_ = 0;  // updates in a row
  bool said_exploded_ = false, said_no_gradient_ = false;
};

}  // namespace temper::recipes
