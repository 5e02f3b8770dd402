#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

// The files of a model's folder that are neither weights that are read nor part of every model.
namespace temper::checkpoints {

// Files with weights, in whatever library's form, that are not among those that ModelFolder reads.
std::vector<std::string> unread_weights(const std::string& folder);

// The terms of use, which hold for a model that was made of another one.
bool is_of_license(std::string_view name);

// Says once in a process which files of the folder `original` are not in a folder that is saved; `saved` are
// those that are.
void report_left_out(const std::string& original, const std::set<std::string>& saved);

}  // namespace temper::checkpoints
