#include "collectives/at_root.h"

#include <optional>

namespace temper::collectives {

std::string made_at_root(Group& group, std::string_view name, const std::function<std::string()>& make) {
  if (group.is_alone()) return make();
  std::optional<Error> error;
  std::string made;
  if (group.rank() == 0) {
    try {
      made = fmt::format("+{}", make());
    } catch (const Error& thrown) {
      error.emplace(thrown);
      made = fmt::format("{}{}", static_cast<int>(thrown.kind()), thrown.what());
    }
  }
  made = group.broadcast_object(name, std::move(made), 0);
  if (error) throw Error(*error);
  const char kind = made.at(0);
  made.erase(0, 1);
  if (kind != '+') throw Error(made, static_cast<ErrorKind>(kind - '0'));
  return made;
}

void at_root(Group& group, std::string_view name, const std::function<void()>& act) {
  made_at_root(group, name, [&] {
    act();
    return std::string();
  });
}

}  // namespace temper::collectives
