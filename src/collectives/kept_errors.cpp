#include "collectives/kept_errors.h"

#include <new>

#include "base/error.h"

namespace temper::collectives {

void KeptErrors::attempt(const std::function<void()>& act) {
  if (first_) return;
  try {
    act();
  } catch (const GroupBroken&) {
    throw;
  } catch (const Error& error) {
    if (group_.is_alone()) throw;
    first_.emplace(error);
  } catch (const std::bad_alloc&) {
    if (group_.is_alone()) throw;
    first_.emplace("out of memory", ErrorKind::kResources);
  }
}

void KeptErrors::at_root(const std::function<void(const Root&)>& act) {
  if (group_.rank() == 0) attempt([&] { act(Root()); });
}

void KeptErrors::raise(std::string_view name) {
  at_each(group_, name, [&] {
    if (first_) throw Error(*std::exchange(first_, {}));
  });
}

}  // namespace temper::collectives
