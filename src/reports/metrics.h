#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/files.h"
#include "base/json/json.h"

namespace temper::reports {

// Appends to metrics.jsonl: one JSON object per line, "step" first, handed to the system line by line.
class MetricsWriter {
 public:
  // Continues after `last_step`: lines of later steps are removed, so that a resumed run's file equals an
  // uninterrupted run's. With -1 the file starts empty. An incomplete last line, left by a crash, is dropped;
  // any other line that is not an object with an integer "step" is an error that names it. `evaluates_again`:
  // of `last_step` only the first line stays, which is the update's own.
  explicit MetricsWriter(const std::string& path, int64_t last_step = -1, bool evaluates_again = false);

  // Numbers that are not finite become null: JSON has none.
  void write(int64_t step, const Json::Object& values);
  void sync();   // to the device, what is written so far
  void close();  // syncs the file, too

 private:
  std::unique_ptr<FileWriter> file_;
};

}  // namespace temper::reports
