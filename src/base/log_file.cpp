#include "base/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

namespace temper {

LogFile::LogFile() {
  set_log_copy([this](std::string_view line) { keep(line); });
}

LogFile::~LogFile() {
  set_log_copy(nullptr);
  if (file_ >= 0) ::close(file_);
}

void LogFile::open(const std::string& path) {
  set_log_copy(nullptr);
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  opened_ = true;
  keep(kept_);
  kept_.clear();
  set_log_copy([this](std::string_view line) { keep(line); });
}

void LogFile::keep(std::string_view text) {
  if (!opened_) kept_ += text;
  while (file_ >= 0 && !text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace temper
