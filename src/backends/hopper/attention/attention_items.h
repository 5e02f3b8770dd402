#pragma once
#include <vector>

#include "backends/gpu/attention_documents.h"
#include "backends/hopper/attention/attention_schedule.h"

// Documents of a call, cut into what blocks of threads do. No device takes part in this.
namespace temper::backends::hopper {

// A captured graph is replayed with other documents. Therefore there are as many tiles as this number of
// documents and tokens can need at most, and a power of two of items; those beyond the real ones are empty.
struct Schedule {
  std::vector<hopper::Document> documents;
  std::vector<hopper::Item> items;
  std::vector<hopper::TileRows> rows;
  bool whole = true;  // every key belongs to a document with queries
};

// `at_once`: blocks of threads that the device runs side by side.
Schedule schedule_of(const Packing& packing, bool window, int at_once);

}  // namespace temper::backends::hopper
