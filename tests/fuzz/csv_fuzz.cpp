// The input is a CSV file. Its records are found and read; what they hold, written again, reads the same.
#include <cstdint>

#include "formats/csv/records.h"

#include "base/error.h"

namespace temper::formats {
namespace {

std::string written(const std::vector<std::string>& fields, char separator) {
  std::string out;
  for (const std::string& field : fields) {
    if (!out.empty()) out += separator;
    out += '"';
    for (const char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += '"';
  }
  return out;
}

void try_records(std::string_view text) {
  const char separator = separator_of(text);
  Records records(separator);
  for (size_t at = 0; at < text.size();) {
    const size_t end = records.skip(text, at);
    if (end == std::string_view::npos) {
      invariant(records.problem_at() <= text.size() && !records.problem().empty(), "a problem has a place");
      return;
    }
    invariant(end > at && end <= text.size(), "a record ends behind its beginning");
    const std::vector<std::string> fields = records.read(text, at);
    const std::string again = written(fields, separator);
    invariant(records.skip(again, 0) == again.size(), "what was written ends elsewhere");
    invariant(records.read(again, 0) == fields, "what was written reads otherwise");
    at = end;
  }
}

}  // namespace
}  // namespace temper::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  temper::formats::try_records({reinterpret_cast<const char*>(data), size});
  return 0;
}
