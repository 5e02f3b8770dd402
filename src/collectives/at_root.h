#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/group.h"

namespace temper::collectives {

// What rank 0 makes, on all ranks; an Error of its is thrown on all of them.
std::string made_at_root(Group& group, std::string_view name, const std::function<std::string()>& make);

// What rank 0 alone does, such as writing files: all wait until it is done.
void at_root(Group& group, std::string_view name, const std::function<void()>& act);

// What each rank makes by itself, of all of them; an Error of one is thrown on all of them, the lowest
// rank's.
std::vector<std::string> made_at_each(Group& group, std::string_view name,
                                      const std::function<std::string()>& make);

}  // namespace temper::collectives
