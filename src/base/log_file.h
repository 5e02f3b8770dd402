#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"

namespace temper {

// Keeps what is logged while it lives: in memory, and from open() on at the end of a file, the heading above
// it. One at a time. The file is a convenience: where it cannot be written, logging continues without it, and
// the next text that can be written says so, on a line of its own.
class LogFile {
 public:
  LogFile();
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void open(const std::string& path, const std::string& heading);

 private:
  void write(std::string_view text);

  std::string kept_;  // before open()
  std::unique_ptr<FileWriter> file_;
  bool lines_are_missing_ = false;  // the file may end within a line
};

}  // namespace temper
