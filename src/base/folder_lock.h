#pragma once
#include <string>

namespace temper {

// One process at a time works in a folder, which is there. The system ends the lock with its process; on file
// systems without locks there is none.
class FolderLock {
 public:
  // An Error when another process has it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace temper
