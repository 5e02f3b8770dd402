#pragma once
#include <memory>
#include <optional>
#include <string>

namespace temper::cli {

std::string line_editing_here();  // for temper doctor

// Lines of standard input. On a terminal they are edited, with a history, where libedit is installed: it is
// opened at run time.
class LineReader {
 public:
  LineReader();
  ~LineReader();

  bool is_terminal() const { return terminal_; }
  const std::string& missing() const { return missing_; }  // why a terminal has no editing; empty: it has
  // Without its end; nothing at the end of input. `prompt` is shown on a terminal.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Editing;
  bool terminal_;
  std::string missing_;
  std::unique_ptr<Editing> editing_;  // null: none
};

}  // namespace temper::cli
