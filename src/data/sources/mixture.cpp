#include "data/sources/mixture.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/sources/order.h"

namespace temper::data {

// Draws of the seed that epochs cannot reach.
constexpr uint64_t kHoldOutDraw = uint64_t{1} << 63;

Mixture::Mixture(std::vector<Member> members) : members_(std::move(members)) {
  invariant(!members_.empty(), "a mixture needs a source");
  int64_t end = 0;
  for (const Member& member : members_) {
    invariant(member.size() > 0, "a source of a mixture has no rows");
    ends_.push_back(end += member.size());
  }
}

std::vector<int64_t> Mixture::sizes() const {
  std::vector<int64_t> sizes;
  for (const Member& member : members_) sizes.push_back(member.size());
  return sizes;
}

std::vector<double> Mixture::weights() const {
  std::vector<double> weights;
  for (const Member& member : members_) weights.push_back(member.weight);
  return weights;
}

size_t Mixture::member_of(int64_t row) const {
  invariant(row >= 0 && row < size(), "a row's index is out of range");
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
}

std::pair<const Member*, int64_t> Mixture::find(int64_t row) const {
  const size_t index = member_of(row);
  const Member& member = members_[index];
  return {&member, member.row(row - (index == 0 ? 0 : ends_[index - 1]))};
}

ReadRow Mixture::read(int64_t row) const {
  const auto [member, index] = find(row);
  return read_row(*member->source, *member->encoder, index);
}

ReadRow Mixture::read_first_of_file(int64_t row) const {
  const auto [member, index] = find(row);
  return read_row(*member->source, *member->encoder, member->source->first_of_file(index));
}

Json Mixture::json(int64_t row) const {
  const auto [member, index] = find(row);
  return member->source->row(index);
}

std::string Mixture::place(int64_t row) const {
  const auto [member, index] = find(row);
  return member->source->place(index);
}

std::string Mixture::path(int64_t row) const {
  const auto [member, index] = find(row);
  return member->source->path(index);
}

std::string Mixture::describe() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return join(names);
}

Mixture Mixture::with_goal(Goal goal) const {
  std::vector<Member> members = members_;
  for (Member& member : members)
    member.encoder = std::make_shared<RowEncoder>(member.encoder->with_goal(goal));
  return Mixture(std::move(members));
}

Json Mixture::fingerprint() const {
  if (members_.size() == 1 && members_[0].all_rows) return members_[0].source->fingerprint();
  Hasher hasher;
  int64_t bytes = 0;
  for (const Member& member : members_) {
    const std::string source = member.source->fingerprint().dump();
    hasher.update(source.data(), source.size());
    hasher.update(member.rows.data(), member.rows.size() * sizeof(int64_t));
    bytes += member.source->fingerprint().at("bytes").as_int();
  }
  return Json::Object{{"rows", size()}, {"bytes", bytes}, {"hash", hasher.digest()}};
}

HeldOut hold_out(const std::vector<Member>& members, double fraction, uint64_t seed) {
  HeldOut out;
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& all = members[i];
    const int64_t size = all.size();
    if (size < 2) fail("[data.eval_fraction] '{}' has {} row, expected at least 2", all.name, size);
    const auto count = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(size)), 1, size - 1);
    const Permutation drawn = Permutation::shuffled(size, seed, kHoldOutDraw | i);
    Member rest = all, held = all;
    rest.all_rows = held.all_rows = false;
    rest.rows.clear();
    held.rows.clear();
    for (int64_t at = 0; at < size; ++at) (at < count ? held : rest).rows.push_back(all.row(drawn[at]));
    std::sort(rest.rows.begin(), rest.rows.end());
    std::sort(held.rows.begin(), held.rows.end());
    out.rest.push_back(std::move(rest));
    out.held_out.push_back(std::move(held));
  }
  return out;
}

}  // namespace temper::data
