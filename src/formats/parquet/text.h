#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// How values stand in a row of JSON.
namespace temper::formats {

void append_json_text(std::string_view text,
                      std::string& out);  // in quotes, with escapes; valid UTF-8 is kept

// ISO 8601: "2024-02-29", "23:59:59.25", "2024-02-29T23:59:59.25"; fractions as long as they need to be.
std::string iso_date(int64_t days_since_1970);
std::string iso_time(int64_t units, int64_t units_per_second);
std::string iso_timestamp(int64_t units_since_1970, int64_t units_per_second);

}  // namespace temper::formats
