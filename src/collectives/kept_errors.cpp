#include "collectives/kept_errors.h"

#include "base/error.h"

namespace temper::collectives {

void KeptErrors::attempt(const std::function<void()>& act) {
  if (first_) return;
  if (group_.is_alone()) return act();
  first_ = error_in(act);
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
