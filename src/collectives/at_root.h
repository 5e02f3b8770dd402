#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/group.h"

namespace temper::collectives {

// An Error that all ranks of a group throw in one and the same call: they are still in step, and whoever
// catches it may let them meet again.
class ErrorOfAll : public Error {
 public:
  ErrorOfAll(const std::string& message, ErrorKind kind, int ranks) : Error(message, kind), ranks_(ranks) {}
  int ranks() const { return ranks_; }

 private:
  int ranks_;
};

// Whether all ranks of this group throw the Error now. One that a rank has met with alone ends in its
// destructors, and the others learn of it (StoppedByAnother). A rank that is alone is all of them.
bool is_of_all(const Group& group, const Error& error);

// What only rank 0 may do takes one of these, and only what keeps the other ranks informed of its errors
// gives one: at_root() below, and KeptErrors (collectives/kept_errors.h).
class Root {
 private:
  Root() = default;
  friend class KeptErrors;
  friend void at_root(Group& group, std::string_view name, const std::function<void(const Root&)>& act);
};

// The Error that `act` ends with, also where memory ran out. A GroupBroken is thrown on: after it, no rank
// takes part in another collective.
std::optional<Error> error_in(const std::function<void()>& act);

// What rank 0 makes, on all ranks; an Error of its is an ErrorOfAll.
std::string made_at_root(Group& group, std::string_view name, const std::function<std::string()>& make);

// What rank 0 alone does, such as writing files: all wait until it is done.
void at_root(Group& group, std::string_view name, const std::function<void(const Root&)>& act);
template <class Act>
requires std::is_invocable_v<Act>
void at_root(Group& group, std::string_view name, const Act& act) {
  at_root(group, name, std::function<void(const Root&)>([&](const Root&) { act(); }));
}

// What each rank makes by itself, of all of them; an Error of one is an ErrorOfAll, the lowest rank's. Where
// the others wait elsewhere, because `make` ended before it had met them, this rank waits for them for a
// while (kFailureWaits), and all stop for its Error.
std::vector<std::string> made_at_each(Group& group, std::string_view name,
                                      const std::function<std::string()>& make);

// What all ranks have caught at one place, each its own or one of all; the lowest rank's. A rank that is here
// alone ends with it, and so do the others.
Error caught_by_all(Group& group, std::string_view name, const Error& caught);

// Each rank does `act`, with or without the others. If it fails on one rank, it fails on all.
void at_each(Group& group, std::string_view name, const std::function<void()>& act);

}  // namespace temper::collectives
