#pragma once
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "primitives/frozen.h"
#include "startup.h"
#include "tensor/dtype.h"

// The command lines of benchmarks: options with a value, flags, and one word that stands alone.
namespace temper {

class BenchArguments {
 public:
  BenchArguments(int argc, char** argv, std::string& word) : argc_(argc), argv_(argv), word_(word) {}
  // To the next option; false at the end.
  bool next() {
    while (++at_ < argc_) {
      if (argv_[at_][0] == '-') return true;
      word_ = argv_[at_];
    }
    return false;
  }
  bool take(const char* name, std::string& value) {
    if (name != std::string_view(argv_[at_])) return false;
    if (at_ + 1 == argc_) fail("{} needs a value", name);
    value = argv_[++at_];
    return true;
  }
  bool take(const char* name, int64_t& value, int64_t lowest = 1) {
    std::string text;
    if (!take(name, text)) return false;
    value = std::atoll(text.c_str());
    if (value < lowest) fail("{} is {}, must be a number from {} up", name, text, lowest);
    return true;
  }
  bool take(const char* name, double& value) {
    std::string text;
    if (!take(name, text)) return false;
    value = std::atof(text.c_str());
    return true;
  }
  bool take(const char* name, DType& value) {
    std::string text;
    if (!take(name, text)) return false;
    const auto dtype = dtype_from_string(text);
    if (!dtype) fail("{}: unknown dtype '{}'", name, text);
    value = *dtype;
    return true;
  }
  bool take(const char* name, std::optional<primitives::FrozenFormat>& value) {
    std::string text;
    if (!take(name, text)) return false;
    value = primitives::frozen_format_from_string(text);
    if (!value) fail("{}: '{}' is none of float8_e4m3fn, nf4 and nf4_double", name, text);
    return true;
  }
  bool take_flag(const char* name, bool& value) {
    if (name != std::string_view(argv_[at_])) return false;
    value = true;
    return true;
  }
  [[noreturn]] void refuse() const { fail("unknown option '{}'", argv_[at_]); }

 private:
  int argc_;
  char** argv_;
  std::string& word_;
  int at_ = 0;
};

// What a benchmark's main does: an error is one line that names the program, and its exit code.
inline int run_benchmark(const char* program, int (*run)(int, char**), int argc, char** argv) {
  try {
    register_everything();
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(error.kind());
  }
}

}  // namespace temper
