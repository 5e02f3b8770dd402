#include "formats/row_writer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace temper::formats {
namespace {

constexpr double kSecondsBetweenReports = 10;

}  // namespace

void fail_to_keep(const std::string& name, const Error& error) {
  throw Error(fmt::format("[{}] its rows cannot be kept: {}; XDG_CACHE_HOME names another folder for them",
                          name, error.what()),
              error.kind());
}

RowWriter::RowWriter(const std::string& path, const std::string& name)
    : name_(name), file_(path), next_report_(seconds_now() + kSecondsBetweenReports) {}

void RowWriter::write(std::string_view text) {
  try {
    file_.write(text);
  } catch (const Error& error) {
    fail_to_keep(name_, error);
  }
  hasher_.update(text.data(), text.size());
  bytes_ += static_cast<int64_t>(text.size());
}

void RowWriter::progress(double fraction) {
  if (seconds_now() < next_report_) return;
  log_info(fmt::format("reading {}: {:.0f} %, {} of rows", name_, 100 * fraction, format_bytes(bytes_)));
  next_report_ = seconds_now() + kSecondsBetweenReports;
}

void RowWriter::close() try { file_.close(); } catch (const Error& error) {
  fail_to_keep(name_, error);
}

}  // namespace temper::formats
