// Runs a fuzz target on every line of a corpus (tools/fuzz_corpus.py says how a line is written). A crash or
// an input that takes more than a second is a failure; so is an empty corpus.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// The byte of two hexadecimal digits, or of a letter, behind a backslash; moves `at` behind them.
char escaped_byte(std::string_view line, size_t& at, const std::string& place) {
  constexpr std::string_view kLetters = "\\nrt", kBytes = "\\\n\r\t";
  const char letter = at < line.size() ? line[at++] : '\0';
  if (const size_t known = kLetters.find(letter); known != std::string_view::npos) return kBytes[known];
  unsigned byte = 0;
  const char* digits = line.data() + at;
  if (letter != 'x' || line.size() - at < 2 ||
      std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
    temper::fail("{}: a backslash stands before \\, n, r, t or x and two hexadecimal digits", place);
  at += 2;
  return static_cast<char>(byte);
}

std::string input_of(std::string_view line, const std::string& place) {
  std::string input;
  for (size_t at = 0; at < line.size();) {
    const char c = line[at++];
    input += c == '\\' ? escaped_byte(line, at, place) : c;
  }
  return input;
}

bool replay(const std::string& path) {
  const std::string corpus = temper::read_file(path);
  int inputs = 0;
  bool failed = false;
  for (size_t begin = 0; begin < corpus.size(); ++inputs) {
    const size_t end = std::min(corpus.find('\n', begin), corpus.size());
    const std::string place = fmt::format("{}:{}", path, inputs + 1);
    const std::string input = input_of(std::string_view(corpus).substr(begin, end - begin), place);
    begin = end + 1;
    fmt::print("{}\n", place);
    std::fflush(stdout);  // the last line names the input of a crash
    const double start = temper::seconds_now();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    const double seconds = temper::seconds_now() - start;
    if (seconds > 1) {
      fmt::print(stderr, "{}: took {:.1f} seconds, at most 1 is allowed\n", place, seconds);
      failed = true;
    }
  }
  fmt::print("{} inputs\n", inputs);
  return inputs > 0 && !failed;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} CORPUS.txt\n", argv[0]);
    return 2;
  }
  return replay(argv[1]) ? 0 : 1;
} catch (const temper::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
