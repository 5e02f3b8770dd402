#include "data/sources/order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace temper::data {

std::string_view name_of(Mixing mixing) {
  constexpr std::array<std::string_view, 3> kNames = {"concatenate", "first_exhausted", "all_exhausted"};
  return kNames[static_cast<size_t>(mixing)];
}

Permutation Permutation::shuffled(int64_t size, uint64_t seed, uint64_t draw) {
  Permutation order;
  order.rows_.resize(static_cast<size_t>(size));
  std::iota(order.rows_.begin(), order.rows_.end(), int64_t{0});
  const Random random(seed, RandomPurpose::kShuffle, draw);
  for (size_t i = order.rows_.size(); i > 1; --i)  // Fisher–Yates
    std::swap(order.rows_[i - 1], order.rows_[random.below(i, i)]);
  return order;
}

RowOrder::RowOrder(std::vector<int64_t> sizes, std::vector<double> weights, OrderOptions options)
    : options_(options) {
  invariant(!sizes.empty() && sizes.size() == weights.size(), "an order needs a weight for each source");
  int64_t first = 0;
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    lanes_.push_back({first, sizes[i], weights[i] / total});
    first += sizes[i];
  }
  if (options_.mixing == Mixing::kConcatenate) lanes_ = {{0, first, 1}};
  for (const Lane& lane : lanes_) {
    const double rows = static_cast<double>(lane.size) / lane.weight;
    const bool smallest = options_.mixing == Mixing::kFirstExhausted;
    if (epoch_rows_ == 0 || (rows < epoch_rows_) == smallest) epoch_rows_ = rows;
  }
  place_.lanes.resize(lanes_.size());
  for (size_t i = 0; i < lanes_.size(); ++i) start_pass(i);
}

int64_t RowOrder::next() {
  const size_t index = furthest_behind();
  const Lane& lane = lanes_[index];
  Place::Lane& at = place_.lanes[index];
  const int64_t row = lane.first + lane.order[at.position];
  ++at.given;
  ++place_.in_epoch;
  if (++at.position == lane.size) {
    ++at.passes;
    start_pass(index);
  }
  if (epoch_is_over()) start_epoch();
  return row;
}

size_t RowOrder::furthest_behind() const {
  size_t best = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const double behind = lanes_[i].weight * static_cast<double>(place_.in_epoch + 1) -
                          static_cast<double>(place_.lanes[i].given);
    if (behind > most) {
      most = behind;
      best = i;
    }
  }
  return best;
}

bool RowOrder::epoch_is_over() const {
  size_t exhausted = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) exhausted += place_.lanes[i].given >= lanes_[i].size;
  return options_.mixing == Mixing::kFirstExhausted ? exhausted > 0 : exhausted == lanes_.size();
}

// A source that was not read to its end is shuffled again, too.
void RowOrder::start_epoch() {
  ++place_.epoch;
  place_.in_epoch = 0;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Place::Lane& at = place_.lanes[i];
    at.given = 0;
    if (at.position == 0) continue;
    ++at.passes;
    start_pass(i);
  }
}

void RowOrder::start_pass(size_t lane) {
  place_.lanes[lane].position = 0;
  if (!options_.shuffle) return;
  const uint64_t draw = static_cast<uint64_t>(place_.lanes[lane].passes) << 16 | lane;
  lanes_[lane].order = Permutation::shuffled(lanes_[lane].size, options_.seed, draw);
}

double RowOrder::progress(const Place& place) const {
  return static_cast<double>(place.epoch) + std::min(1.0, static_cast<double>(place.in_epoch) / epoch_rows_);
}

Json RowOrder::Place::to_json() const {
  Json::Array lane_states;
  for (const Lane& lane : lanes)
    lane_states.push_back(
        Json::Object{{"given", lane.given}, {"passes", lane.passes}, {"position", lane.position}});
  return Json::Object{{"epoch", epoch}, {"in_epoch", in_epoch}, {"lanes", std::move(lane_states)}};
}

RowOrder::Place RowOrder::Place::from_json(const Json& json) {
  Place place{json.at("epoch").as_int(), json.at("in_epoch").as_int(), {}};
  for (const Json& lane : json.at("lanes").as_array())
    place.lanes.push_back(
        {lane.at("given").as_int(), lane.at("passes").as_int(), lane.at("position").as_int()});
  return place;
}

void RowOrder::restore(Place place) {
  bool good = place.lanes.size() == lanes_.size() && place.epoch >= 0 && place.in_epoch >= 0;
  for (size_t i = 0; good && i < lanes_.size(); ++i) {
    const Place::Lane& at = place.lanes[i];
    good = at.given >= 0 && at.passes >= 0 && at.position >= 0 && at.position < lanes_[i].size;
  }
  if (!good) fail("[data] the saved state is broken: its place in the rows is {}", place.to_json().dump());
  place_ = place;
  for (size_t i = 0; i < lanes_.size(); ++i) start_pass(i);
  place_ = std::move(place);
}

}  // namespace temper::data
