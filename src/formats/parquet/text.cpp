#include "formats/parquet/text.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>

namespace temper::formats {
namespace {

constexpr int64_t kSecondsOfDay = 86400;

void append_escape(char c, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  }
}

bool needs_escape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

// Whether none of the next eight characters needs an escape; "no" may be wrong, "yes" is not.
bool plain_word(std::string_view text, size_t at) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
  uint64_t word = 0;
  if (text.size() - at < sizeof word) return false;
  std::memcpy(&word, text.data() + at, sizeof word);
  const auto below = [&](uint64_t bytes, uint64_t limit) {
    return (bytes - kOnes * limit) & ~bytes & kHighs;
  };
  return (below(word, 0x20) | below(word ^ (kOnes * '"'), 1) | below(word ^ (kOnes * '\\'), 1)) == 0;
}

// Rounded down, so that what is left is not negative before 1970.
int64_t floor_div(int64_t value, int64_t by) { return value / by - (value % by < 0); }

}  // namespace

void append_json_text(std::string_view text, std::string& out) {
  out += '"';
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    if (plain_word(text, at)) {
      at += sizeof(uint64_t);
      continue;
    }
    const size_t here = at++;
    if (!needs_escape(text[here])) continue;
    out += text.substr(begin, here - begin);
    append_escape(text[here], out);
    begin = at;
  }
  out += text.substr(begin);
  out += '"';
}

std::string iso_date(int64_t days_since_1970) {
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{days_since_1970}}};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

std::string iso_time(int64_t units, int64_t units_per_second) {
  const int64_t seconds = units / units_per_second;
  std::string text = fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  int64_t fraction = units % units_per_second;
  if (fraction == 0) return text;
  text += '.';
  for (int64_t scale = units_per_second / 10; fraction > 0; scale /= 10) {
    text += static_cast<char>('0' + fraction / scale);
    fraction %= scale;
  }
  return text;
}

std::string iso_timestamp(int64_t units_since_1970, int64_t units_per_second) {
  const int64_t day = kSecondsOfDay * units_per_second;
  const int64_t days = floor_div(units_since_1970, day);
  return iso_date(days) + "T" + iso_time(units_since_1970 - days * day, units_per_second);
}

}  // namespace temper::formats
