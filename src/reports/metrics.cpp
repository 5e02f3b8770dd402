#include "reports/metrics.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace temper::reports {
namespace {

// The lines of `text` that a run resumed after `last_step` keeps.
std::string kept_lines(const std::string& text, int64_t last_step, bool evaluates_again,
                       const std::string& path) {
  std::string kept;
  int64_t before = -1;  // the step of the line before
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++number;
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    const bool is_last = end + 1 == text.size();
    begin = end + 1;
    const std::string where = fmt::format("{}:{}", path, number);
    Json values;
    try {
      values = Json::parse(line, where);
    } catch (const Error& error) {
      if (is_last) break;  // torn, by a file system that wrote the end first
      fail("{}; remove that line, and run the same command to resume", error.what());
    }
    const Json* step = values.find("step");
    if (step == nullptr || !step->is_int()) fail("[{}] expected an object with an integer \"step\"", where);
    const int64_t at = step->as_int(), previous = std::exchange(before, at);
    const bool comes_again = evaluates_again && at == last_step && at == previous;
    if (at <= last_step && !comes_again) kept += line;
  }
  return kept;
}

Json finite(const Json& value) {
  if (value.kind() == Json::Kind::kFloat && !std::isfinite(value.as_double())) return {};
  if (value.is_array()) {
    Json::Array items;
    for (const Json& item : value.as_array()) items.push_back(finite(item));
    return items;
  }
  if (value.is_object()) {
    Json::Object members;
    for (const auto& [key, member] : value.as_object()) members.emplace_back(key, finite(member));
    return members;
  }
  return value;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path, int64_t last_step, bool evaluates_again) {
  if (last_step >= 0 && exists(path)) {
    const std::string text = read_file(path);
    const std::string kept = kept_lines(text, last_step, evaluates_again, path);
    if (kept.size() != text.size()) write_file(path, kept);
  }
  file_ = std::make_unique<FileWriter>(path, /*append=*/last_step >= 0);
}

void MetricsWriter::write(int64_t step, const Json::Object& values) {
  Json::Object line{{"step", step}};
  for (const auto& [key, value] : values) {
    invariant(key != "step", "a metric is named step");
    line.emplace_back(key, finite(value));
  }
  file_->write(Json(std::move(line)).dump() + "\n");
}

void MetricsWriter::sync() { file_->sync(); }

void MetricsWriter::close() { file_->close(); }

}  // namespace temper::reports
