#include "collectives/at_root.h"

#include <new>

#include "collectives/hosts.h"

namespace temper::collectives {
namespace {

// What was made, or the Error, as bytes.
struct Attempt {
  std::string bytes;
  std::optional<Error> error;
};

Attempt attempt(const std::function<std::string()>& make) {
  Attempt made;
  made.error = error_in([&] { made.bytes = fmt::format("+{}", make()); });
  if (made.error) made.bytes = fmt::format("{}{}", static_cast<int>(made.error->kind()), made.error->what());
  return made;
}

// Of another rank's attempt. `who`: stands before an Error's text.
std::string result_of(const Group& group, std::string bytes, const std::string& who) {
  const char kind = bytes.at(0);
  bytes.erase(0, 1);
  if (kind != '+') throw ErrorOfAll(who + bytes, static_cast<ErrorKind>(kind - '0'), group.size());
  return bytes;
}

}  // namespace

std::optional<Error> error_in(const std::function<void()>& act) {
  try {
    act();
  } catch (const GroupBroken&) {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error("out of memory", ErrorKind::kResources);
  }
  return std::nullopt;
}

bool is_of_all(const Group& group, const Error& error) {
  if (group.is_alone()) return true;
  const auto* shared = dynamic_cast<const ErrorOfAll*>(&error);
  return shared != nullptr && shared->ranks() == group.size();
}

std::string made_at_root(Group& group, std::string_view name, const std::function<std::string()>& make) {
  if (group.is_alone()) return make();
  Attempt made;
  if (group.rank() == 0) made = attempt(make);
  return result_of(group, group.broadcast_object(name, std::move(made.bytes), 0), {});
}

void at_root(Group& group, std::string_view name, const std::function<void(const Root&)>& act) {
  made_at_root(group, name, [&] {
    act(Root());
    return std::string();
  });
}

std::vector<std::string> made_at_each(Group& group, std::string_view name,
                                      const std::function<std::string()>& make) {
  if (group.is_alone()) return {make()};
  Attempt made = attempt(make);
  std::vector<std::string> all =
      group.gather_objects(name, std::move(made.bytes), made.error ? &*made.error : nullptr);
  for (size_t rank = 0; rank < all.size(); ++rank)
    all[rank] =
        result_of(group, std::move(all[rank]),
                  rank == 0 ? "" : fmt::format("rank {}: ", with_host(group, static_cast<int>(rank))));
  return all;
}

Error caught_by_all(Group& group, std::string_view name, const Error& caught) {
  if (is_of_all(group, caught)) return caught;
  try {
    at_each(group, name, [&] { throw Error(caught); });
  } catch (const ErrorOfAll& error) {
    return error;
  }
  return caught;
}

void at_each(Group& group, std::string_view name, const std::function<void()>& act) {
  made_at_each(group, name, [&] {
    act();
    return std::string();
  });
}

}  // namespace temper::collectives
