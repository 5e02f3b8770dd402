#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"

namespace temper::reports {

// Writes scalars for TensorBoard into FOLDER/events.out.tfevents.<unix time>.<host>, a new file for each
// writer.
class TensorBoardWriter {
 public:
  using Scalars = std::vector<std::pair<std::string, double>>;  // tags such as "train/loss", and values

  // A resumed run gives the first step it will write again: TensorBoard then hides that step and later ones
  // of the folder's older files.
  explicit TensorBoardWriter(const std::string& folder, int64_t first_step = 0);

  void write(int64_t step, const Scalars& scalars);                    // now
  void write(int64_t step, const Scalars& scalars, double wall_time);  // in seconds since 1970
  void close();                                                        // syncs the file to the device
  const std::string& path() const { return path_; }

 private:
  void write_record(const std::string& event);

  std::string path_;
  std::unique_ptr<FileWriter> file_;
};

}  // namespace temper::reports
