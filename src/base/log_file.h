#pragma once
#include <string>
#include <string_view>

namespace temper {

// Keeps what is logged while it lives: in memory, and from open() on at the end of a file. One at a time. The
// file is a convenience: where it cannot be written, logging goes on without it.
class LogFile {
 public:
  LogFile();
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void open(const std::string& path);

 private:
  void keep(std::string_view text);

  bool opened_ = false;
  std::string kept_;  // before open()
  int file_ = -1;
};

}  // namespace temper
