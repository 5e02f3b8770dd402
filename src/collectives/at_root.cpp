#include "collectives/at_root.h"

#include <optional>

namespace temper::collectives {
namespace {

// What was made, or the Error, as bytes; the Error stays with the rank that threw it.
struct Attempt {
  std::string bytes;
  std::optional<Error> error;
};

Attempt attempt(const std::function<std::string()>& make) {
  Attempt made;
  try {
    made.bytes = fmt::format("+{}", make());
  } catch (const Error& thrown) {
    made.error.emplace(thrown);
    made.bytes = fmt::format("{}{}", static_cast<int>(thrown.kind()), thrown.what());
  }
  return made;
}

// Of another rank's attempt. `who`: stands before an Error's text.
std::string result_of(std::string bytes, const std::string& who) {
  const char kind = bytes.at(0);
  bytes.erase(0, 1);
  if (kind != '+') throw Error(who + bytes, static_cast<ErrorKind>(kind - '0'));
  return bytes;
}

}  // namespace

std::string made_at_root(Group& group, std::string_view name, const std::function<std::string()>& make) {
  if (group.is_alone()) return make();
  Attempt made;
  if (group.rank() == 0) made = attempt(make);
  std::string bytes = group.broadcast_object(name, std::move(made.bytes), 0);
  if (made.error) throw Error(*made.error);
  return result_of(std::move(bytes), {});
}

void at_root(Group& group, std::string_view name, const std::function<void()>& act) {
  made_at_root(group, name, [&] {
    act();
    return std::string();
  });
}

std::vector<std::string> made_at_each(Group& group, std::string_view name,
                                      const std::function<std::string()>& make) {
  if (group.is_alone()) return {make()};
  std::vector<std::string> all = group.gather_objects(name, attempt(make).bytes);
  for (size_t rank = 0; rank < all.size(); ++rank)
    all[rank] = result_of(std::move(all[rank]), rank == 0 ? "" : fmt::format("rank {}: ", rank));
  return all;
}

}  // namespace temper::collectives
