#pragma once
#include <string>

#include "collectives/group.h"
#include "tensor/dtype.h"

namespace temper::recipes {

struct MeasureOptions {
  std::string file;
  std::string device = "cpu";
  DType dtype = DType::kBF16;
};

// Times ops on this rank's device (measured_ops.h) and what joins the ranks (measured_links.h), and writes
// them (costs/times_file.h). Returns a summary. All ranks call it; rank 0 writes, and the file is
// checked before anything is measured.
std::string measure_times(const MeasureOptions& options, collectives::Group& ranks);

}  // namespace temper::recipes
