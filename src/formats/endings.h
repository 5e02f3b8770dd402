#pragma once
#include <string>
#include <string_view>

// What a file's name and its first characters tell about text that could be anything.
namespace temper::formats {

std::string ending_of(std::string_view name);  // ".csv" of "A.CSV.gz"; "" without one

// Whether a text begins as JSON does; such a file is read as JSON whatever its name ends in.
bool begins_as_json(std::string_view text);

}  // namespace temper::formats
