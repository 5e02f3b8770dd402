#include "cli/arguments/line_reader.h"

#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "base/parts/dynamic_library.h"

namespace temper::cli {

// libedit's interface of GNU readline (editline/readline.h), as far as it is used.
struct LineReader::Editing {
  explicit Editing(const DynamicLibrary& library) {
    library.look_up("readline", readline);
    library.look_up("add_history", add_history);
  }
  char* (*readline)(const char* prompt);
  int (*add_history)(const char* line);
};

namespace {

const std::vector<std::string> kLibraries{"libedit.so.2", "libedit.so.0"};

// libedit reads characters as the locale says, and a C++ program starts without the user's locale.
void read_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

std::string line_editing_here() {
  return DynamicLibrary(kLibraries).opened()
             ? "edits lines in temper chat"
             : "not installed: lines in temper chat are not edited (make setup)";
}

LineReader::LineReader() : terminal_(isatty(STDIN_FILENO) != 0) {
  if (!terminal_ || isatty(STDOUT_FILENO) == 0) return;
  const DynamicLibrary library(kLibraries);
  if (!library.opened()) {
    missing_ = "lines are not edited: install libedit2 (make setup)";
    return;
  }
  read_utf8();
  editing_ = std::make_unique<Editing>(library);
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read(const std::string& prompt) {
  if (editing_) {
    const std::unique_ptr<char, void (*)(void*)> line(editing_->readline(prompt.c_str()), std::free);
    if (!line) return std::nullopt;
    if (*line != '\0') editing_->add_history(line.get());
    return line.get();
  }
  if (terminal_) std::fputs(prompt.c_str(), stdout), std::fflush(stdout);
  std::string line;
  return std::getline(std::cin, line) ? std::optional(line) : std::nullopt;
}

}  // namespace temper::cli
