#include "formats/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace temper::formats {
namespace {

// Whoever had the file before may have renamed or removed it.
bool still_named(int file, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

int lock(int file, int how) {
  int result = 0;
  do result = ::flock(file, how);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

Claim::Claim(const std::string& path, const std::string& waiting_for) : path_(path) {
  while (file_ < 0) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) fail("[{}] cannot create: {}", path, std::strerror(errno));
    int error = lock(file, LOCK_EX | LOCK_NB);
    if (error == EWOULDBLOCK) {
      log_info(fmt::format("{} is being read by another process; waiting for it", waiting_for));
      error = lock(file, LOCK_EX);
    }
    if (error == 0 && still_named(file, path)) {
      file_ = file;
    } else {
      ::close(file);
      if (error != 0) fail("[{}] cannot lock: {}", path, std::strerror(error));
    }
  }
  if (::ftruncate(file_, 0) != 0) {
    ::close(file_);
    fail("[{}] cannot empty: {}", path, std::strerror(errno));
  }
}

Claim::~Claim() {
  if (!path_.empty()) ::unlink(path_.c_str());
  ::close(file_);
}

void Claim::rename_to(const std::string& path) {
  rename_path(path_, path);
  path_.clear();
  sync_directory(parent_path(path));
}

void Claim::sweep(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  if (lock(file, LOCK_EX | LOCK_NB) == 0 && still_named(file, path)) ::unlink(path.c_str());
  ::close(file);
}

}  // namespace temper::formats
