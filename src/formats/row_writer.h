#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace temper::formats {

// Of errors about the place where converted rows are kept.
[[noreturn]] void fail_to_keep(const std::string& name, const Error& error);

// The text that a conversion writes, hashed on its way to the disk. What takes long tells how far it is.
class RowWriter {
 public:
  RowWriter(const std::string& path, const std::string& name);
  void write(std::string_view text);  // large pieces, please: each goes to the system
  void progress(double fraction);     // of the work; cheap
  void close();                       // synced to the device
  int64_t bytes() const { return bytes_; }
  std::string hash() const { return hasher_.digest(); }

 private:
  std::string name_;
  FileWriter file_;
  Hasher hasher_;
  int64_t bytes_ = 0;
  double next_report_;
};

}  // namespace temper::formats
