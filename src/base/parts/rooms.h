#pragma once
#include <string>
#include <string_view>
#include <vector>

// The rooms that this build has, and those that it left out because something was missing where it was
// configured.
namespace temper {

struct Room {
  std::string_view kind, name;     // "backends", "cudnn"
  std::string_view left_out = {};  // why, and the command that brings it; empty: it is in this build
};

// In the order of the build files, which write the list (cmake/rooms.cmake).
const std::vector<Room>& rooms_of_build();

bool is_built(std::string_view kind, std::string_view name);
// " (cudnn_frontend.h is missing: run make setup-gpu && make build)"; empty where nothing is known of such a
// room.
std::string why_left_out(std::string_view kind, std::string_view name);
// One line for each reason, with the rooms that it left out: "backends/cudnn: cudnn_frontend.h is missing:
// …".
std::vector<std::string> left_out_lines(const std::vector<Room>& rooms);

}  // namespace temper
