#pragma once
#include <vector>

#include "backends/cudnn/hopper/schedule.h"
#include "ops/attention/attention.h"

// Documents of a call, cut into what blocks of threads do. No device takes part in this.
namespace temper::backends::cudnn {

struct Heads {
  int queries, keys, dim;
};

// The numbers of items and tiles are rounded up, so that work that is repeated may have other documents:
// items and tiles beyond are empty.
struct Schedule {
  std::vector<hopper::Document> documents;
  std::vector<hopper::Item> items;
  std::vector<hopper::TileRows> rows;
  bool whole = true;  // every key belongs to a document with queries
};

// Of the documents of `op`, whose other tensors are not looked at. `at_once`: blocks of threads that the
// device runs side by side.
Schedule schedule_of(const ops::Attention& op, const Heads& heads, bool window, int at_once);

}  // namespace temper::backends::cudnn
