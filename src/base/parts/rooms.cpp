#include "base/parts/rooms.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace temper {
namespace {

const Room* find(std::string_view kind, std::string_view name) {
  const auto& all = rooms_of_build();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Room& room) { return room.kind == kind && room.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

bool is_built(std::string_view kind, std::string_view name) {
  const Room* const room = find(kind, name);
  return room != nullptr && room->left_out.empty();
}

std::string why_left_out(std::string_view kind, std::string_view name) {
  const Room* const room = find(kind, name);
  return room == nullptr || room->left_out.empty() ? std::string() : fmt::format(" ({})", room->left_out);
}

std::vector<std::string> left_out_lines(const std::vector<Room>& rooms) {
  std::vector<std::pair<std::string_view, std::vector<std::string>>> reasons;
  for (const Room& room : rooms) {
    if (room.left_out.empty()) continue;
    auto reason = std::find_if(reasons.begin(), reasons.end(),
                               [&](const auto& known) { return known.first == room.left_out; });
    if (reason == reasons.end()) reason = reasons.insert(reason, {room.left_out, {}});
    reason->second.push_back(fmt::format("{}/{}", room.kind, room.name));
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : reasons) lines.push_back(fmt::format("{}: {}", join(names), reason));
  return lines;
}

}  // namespace temper
