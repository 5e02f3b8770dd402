#pragma once
#include <chrono>

namespace temper {

// Of a clock that never goes back; differences are what counts.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace temper
