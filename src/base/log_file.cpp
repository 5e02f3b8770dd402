#include "base/log_file.h"

#include "base/error.h"
#include "base/log.h"

namespace temper {
namespace {

// A process before this one that could not write all, or was killed.
bool ends_within_a_line(const std::string& path) {
  return exists(path) && file_size(path) > 0 && !MappedFile(path).text().ends_with('\n');
}

}  // namespace

LogFile::LogFile() {
  set_log_copy([this](std::string_view text) { kept_ += text; });
}

LogFile::~LogFile() { set_log_copy(nullptr); }

void LogFile::open(const std::string& path, const std::string& heading) {
  set_log_copy(nullptr);
  try {
    lines_are_missing_ = ends_within_a_line(path);
    file_ = std::make_unique<FileWriter>(path, /*append=*/true);
    write(heading + "\n" + kept_);
    set_log_copy([this](std::string_view text) { write(text); });
  } catch (const Error&) {
    // Nothing is kept.
  }
  kept_.clear();
}

void LogFile::write(std::string_view text) {
  try {
    if (lines_are_missing_) file_->write("\n--- lines are missing here: this file could not be written\n");
    lines_are_missing_ = false;
    file_->write(text);
  } catch (const Error&) {
    lines_are_missing_ = true;
  }
}

}  // namespace temper
