#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace temper::recipes {

// What an update took: part of it depends on its tokens, part of it, the optimizer's above all, does not.
struct TimedUpdate {
  double tokens = 0, seconds = 0;
};

// Of an update with `tokens`, not fewer than those that were timed: by the straight line through the last two
// of them; of one alone, as if all of it depended on its tokens. Never less than the last one took.
double estimate_update(const std::vector<TimedUpdate>& timed, double tokens);

// An update that is to be timed.
struct UpdateToTime {
  int64_t rows = 0;                             // of all of it
  int64_t fewest = 1;                           // that an update needs
  std::function<double(int64_t rows)> tokens;   // of its first rows
  std::function<double(int64_t rows)> measure;  // trains on its first rows; the seconds that this took
};

// The seconds of the update: measured where that is quick, otherwise estimated from two parts of it.
double time_update(const UpdateToTime& update);

}  // namespace temper::recipes
