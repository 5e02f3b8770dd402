#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json/json.h"

namespace temper::data {

// How the rows of several sources follow one another.
enum class Mixing {
  kConcatenate,     // an epoch is every row of every source once
  kFirstExhausted,  // in proportion to the weights, until a source has no more rows
  kAllExhausted,    // the same until every source was read whole; those that end sooner start again
};

std::string_view name_of(Mixing mixing);  // "first_exhausted"

struct OrderOptions {
  uint64_t seed = 0;
  bool shuffle = true;  // else the order of the files
  Mixing mixing = Mixing::kConcatenate;
};

// A permutation of [0, size) drawn by (seed, draw), or the identity.
class Permutation {
 public:
  Permutation() = default;  // the identity
  static Permutation shuffled(int64_t size, uint64_t seed, uint64_t draw);
  int64_t operator[](int64_t position) const {
    return rows_.empty() ? position : rows_[static_cast<size_t>(position)];
  }

 private:
  std::vector<int64_t> rows_;
};

// The rows of a mixture in the order of training, epoch after epoch without end. Rows are counted through:
// source 0 has [0, sizes[0]), source 1 begins behind. In proportion to weights means that after n rows of an
// epoch no source is more than one row from weight · n, whatever n (the source furthest behind goes next).
class RowOrder {
 public:
  // `weights` count only where sources are not concatenated. Sizes and weights are above 0.
  RowOrder(std::vector<int64_t> sizes, std::vector<double> weights, OrderOptions options);

  int64_t next();
  int64_t epoch() const { return place_.epoch; }     // of the row that next() gives, from 0
  double epoch_rows() const { return epoch_rows_; }  // (close to) how many rows an epoch has

  // Where in the order next() stands.
  struct Place {
    struct Lane {
      int64_t given = 0;     // rows of this epoch
      int64_t passes = 0;    // through the lane, in all epochs
      int64_t position = 0;  // in this pass
    };
    int64_t epoch = 0, in_epoch = 0;
    std::vector<Lane> lanes;  // one for each source, or one for all where they are concatenated
    Json to_json() const;
    static Place from_json(const Json& json);
  };
  const Place& place() const { return place_; }
  void restore(Place place);
  double progress(const Place& place) const;  // epochs given, for example 1.25

 private:
  struct Lane {
    int64_t first = 0, size = 0;
    double weight = 1;
    Permutation order = {};
  };
  size_t furthest_behind() const;
  bool epoch_is_over() const;
  void start_epoch();
  void start_pass(size_t lane);

  OrderOptions options_;
  std::vector<Lane> lanes_;
  double epoch_rows_ = 0;
  Place place_;
};

}  // namespace temper::data
