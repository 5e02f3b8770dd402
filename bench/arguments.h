#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "primitives/frozen.h"
#include "startup.h"
#include "tensor/dtype.h"

// The command lines of benchmarks: options with a value, flags, and one word that stands alone. --help lists
// the options by asking for each of them, as any other word does.
namespace temper {

inline bool asks_for_help(std::string_view argument) { return argument == "--help" || argument == "-h"; }

class BenchArguments {
 public:
  BenchArguments(int argc, char** argv, std::string& word) : argc_(argc), argv_(argv), word_(&word) {}
  BenchArguments(int argc, char** argv, std::vector<std::string>& words)
      : argc_(argc), argv_(argv), words_(&words) {}
  // To the next option; false at the end.
  bool next() {
    while (++at_ < argc_) {
      if (argv_[at_][0] == '-') return true;
      if (words_ != nullptr)
        words_->push_back(argv_[at_]);
      else if (std::exchange(has_word_, true))
        fail("unknown argument '{}'; --help says what there is", argv_[at_]);
      else
        *word_ = argv_[at_];
    }
    return false;
  }
  bool take(const char* name, std::string& value) { return take_text(name, value, value); }
  bool take(const char* name, int64_t& value, int64_t lowest = 1) {
    std::string text;
    if (!take_text(name, std::to_string(value), text)) return false;
    value = std::atoll(text.c_str());
    if (value < lowest) fail("{} is {}, must be a number from {} up", name, text, lowest);
    return true;
  }
  bool take(const char* name, double& value) {
    std::string text;
    if (!take_text(name, fmt::format("{:g}", value), text)) return false;
    value = std::atof(text.c_str());
    return true;
  }
  bool take(const char* name, DType& value) {
    std::string text;
    if (!take_text(name, std::string(to_string(value)), text)) return false;
    const auto dtype = dtype_from_string(text);
    if (!dtype) fail("{}: unknown dtype '{}'", name, text);
    value = *dtype;
    return true;
  }
  bool take(const char* name, std::optional<primitives::FrozenFormat>& value) {
    std::string text;
    if (!take_text(name, "", text)) return false;
    value = primitives::frozen_format_from_string(text);
    if (!value) fail("{}: '{}' is none of float8_e4m3fn, nf4 and nf4_double", name, text);
    return true;
  }
  // One of several words.
  template <class T>
  bool take(const char* name, T& value, const std::vector<std::pair<std::string, T>>& words) {
    std::string text, all;
    for (const auto& [word, meaning] : words) {
      if (meaning == value) text = word;
      all += fmt::format("{}{}", all.empty() ? "" : ", ", word);
    }
    if (!take_text(name, text, text)) return false;
    const auto found =
        std::find_if(words.begin(), words.end(), [&](const auto& each) { return each.first == text; });
    if (found == words.end()) fail("{}: '{}' is none of {}", name, text, all);
    value = found->second;
    return true;
  }
  bool take_flag(const char* name, bool& value) {
    if (!is(name)) {
      known_ += fmt::format("  {}\n", name);
      return false;
    }
    value = true;
    return true;
  }
  // For an option that was not used: an error, or the answer to --help.
  [[noreturn]] void refuse() const {
    if (!asks_for_help(argv_[at_]))
      fail("unknown option '{}'; --help lists those that there are", argv_[at_]);
    if (!known_.empty())
      std::printf("\nOptions, with the values that they have when left out:\n%s", known_.c_str());
    std::exit(0);
  }

 private:
  bool is(const char* name) const { return name == std::string_view(argv_[at_]); }
  bool take_text(const char* name, const std::string& otherwise, std::string& value) {
    if (!is(name)) {
      known_ += fmt::format("  {:<20} {}\n", name, otherwise.empty() ? "(none)" : otherwise);
      return false;
    }
    if (at_ + 1 == argc_) fail("{} needs a value", name);
    value = argv_[++at_];
    return true;
  }

  int argc_;
  char** argv_;
  std::string* word_ = nullptr;
  std::vector<std::string>* words_ = nullptr;
  bool has_word_ = false;
  int at_ = 0;
  std::string known_;  // lines of the options that were asked for
};

// What a benchmark's main does: an error is one line that names the program, and its exit code. --help prints
// `usage` first.
inline int run_benchmark(const char* program, const char* usage, int (*run)(int, char**), int argc,
                         char** argv) {
  try {
    if (std::any_of(argv, argv + argc, asks_for_help)) std::fputs(usage, stdout);
    register_everything();
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(error.kind());
  }
}

}  // namespace temper
