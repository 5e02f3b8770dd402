#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace temper {

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = join_path(folder, ".lock");
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail("[{}] cannot create: {}", path, std::strerror(errno));
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(file_);
  fail("[{}] another process is at work there; wait for it, or choose another folder", folder);
}

FolderLock::~FolderLock() { ::close(file_); }

}  // namespace temper
