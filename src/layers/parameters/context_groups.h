#pragma once
#include <map>
#include <memory>
#include <vector>

#include "collectives/group.h"

namespace temper::layers {

// Of context ranks those that this one exchanges heads with, itself among them, and those with the same
// heads, which give each other keys.
struct ContextParts {
  int members = 1;                                       // ranks that exchange heads
  collectives::Group *heads = nullptr, *keys = nullptr;  // null: this rank is alone
};

// Of context ranks those that exchange heads, which follow one another, and those that have the same place
// in each group of such. They are made when a model is, as its heads decide how many can exchange them.
class ContextGroups {
 public:
  explicit ContextGroups(collectives::Group& ranks) : ranks_(ranks) {}  // which it does not outlive
  ContextGroups(const ContextGroups&) = delete;
  ContextGroups& operator=(const ContextGroups&) = delete;

  // `members`: how many exchange heads, the same on all ranks, which call it together; it divides their
  // number.
  ContextParts parts(int members);
  std::vector<collectives::Group*> made() const;  // so far

 private:
  std::unique_ptr<collectives::Group> part(const char* name, int first, int step, int count) const;

  struct Made {
    std::unique_ptr<collectives::Group> heads, keys;
  };
  collectives::Group& ranks_;
  std::map<int, Made> made_;  // by the number of members
};

}  // namespace temper::layers
