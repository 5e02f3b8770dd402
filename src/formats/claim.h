#pragma once
#include <string>

namespace temper::formats {

// A temporary file that one writer has at a time, in this process or another; the system ends a claim with
// its process. Unless it was renamed to something lasting, the file goes with the claim.
class Claim {
 public:
  // Empties the file, or makes it. Waits for whoever has it, and says so.
  Claim(const std::string& path, const std::string& waiting_for);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  void rename_to(const std::string& path);

  // Removes a file that a killed writer left behind; one that is being written stays.
  static void sweep(const std::string& path);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace temper::formats
