#pragma once

namespace temper {

// More are refused wherever a number of threads is set: OpenMP ends the process where it cannot start them.
constexpr int kMaxThreads = 1024;

}  // namespace temper
