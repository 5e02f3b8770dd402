#pragma once
#include <functional>
#include <string_view>

#include "collectives/group.h"

namespace temper::collectives {

struct LaunchOptions {
  int ranks = 1;
  double deadline = 600;  // seconds that a rank waits for the others in one collective
};

// What a rank does.
using Body = std::function<void(Group& group)>;

// How a room makes the ranks of a program: it runs the body once for each of them that is in this process,
// and returns when all of these have. When a body throws, the other ranks learn of it (Group), and the first
// error is thrown here.
using Launch = std::function<void(const LaunchOptions& options, const Body& body)>;

// By the room's name: "local", "threads".
void launch(std::string_view room, const LaunchOptions& options, const Body& body);

}  // namespace temper::collectives
