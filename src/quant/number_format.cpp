#include "quant/number_format.h"

#include "base/error.h"
#include "base/text.h"

namespace temper::quant {

const Format& format_named(std::string_view name, std::string_view where) {
  if (const Format* format = formats().find(name)) return *format;
  std::vector<std::string> known;
  for (const auto& entry : formats().entries()) known.push_back(entry.name);
  const std::string nearest = nearest_name(name, known);
  fail("{} '{}' is not a number format{}; formats are {}", where, name,
       nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), join(known));
}

}  // namespace temper::quant
