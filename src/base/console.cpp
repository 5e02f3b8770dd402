#include "base/console.h"

#include <unistd.h>

#include <cstdio>

namespace temper {

void print_exactly(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_answer(std::string_view text) {
  print_exactly(isatty(STDOUT_FILENO) != 0 ? shown(text) : std::string(text));
  std::fflush(stdout);
}

}  // namespace temper
