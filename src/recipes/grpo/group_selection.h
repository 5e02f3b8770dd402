#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace temper::recipes {

// The groups of a rollout that updates learn from: of the groups that were asked, one after another, the
// first `wanted` or, with dynamic sampling, the first of them whose answers differ in their rewards. Every
// rank makes the same selection.
class GroupSelection {
 public:
  // `group_size`: the number of answers in a group, at least 1.
  GroupSelection(int64_t wanted, int64_t group_size, bool dynamic_sampling)
      : wanted_(wanted), group_size_(group_size), dynamic_sampling_(dynamic_sampling) {}

  bool is_full() const { return std::ssize(groups_) >= wanted_; }
  // The number of groups to ask next: those that are missing, and at least half of a rollout, since some more
  // prompts cost less than another round.
  int64_t next_count() const;
  // `rewards`: of the groups that follow `first_group`, group after group; NaN of an answer without one.
  void add(int64_t first_group, std::span<const double> rewards);

  const std::vector<int64_t>& groups() const { return groups_; }
  // The group's place among those that are kept, from 0; -1: it is left out.
  int64_t place_of(int64_t group) const;
  int64_t num_asked() const { return num_asked_; }
  int64_t num_without_spread() const { return num_without_spread_; }

 private:
  int64_t wanted_, group_size_;
  bool dynamic_sampling_;
  std::vector<int64_t> groups_;
  int64_t num_asked_ = 0, num_without_spread_ = 0;
};

}  // namespace temper::recipes
