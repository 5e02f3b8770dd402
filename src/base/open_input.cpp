#include "base/open_input.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

#ifndef PIPEFS_MAGIC
#define PIPEFS_MAGIC 0x50495045
#endif

namespace temper {
namespace {

rlim_t files_allowed() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

// Data sets have thousands of files, shells allow 1024 at once unless a process asks for what it may have.
// Whether there may be more than there were before; another thread may have asked in the meantime.
bool allow_more_files(rlim_t before) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur > before) return true;
  if (limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Does not wait for a pipe's other end. Sets errno where it returns -1.
int open_for_reading(const std::string& path) {
  const auto open = [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); };
  const rlim_t allowed = files_allowed();
  int file = open();
  if (file < 0 && errno == EMFILE) {
    file = allow_more_files(allowed) ? open() : -1;
    if (file < 0) errno = EMFILE;
  }
  // A file that another process holds a lease of is waited for; pipes are not.
  struct stat info {};
  if (file < 0 && errno == EWOULDBLOCK && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode))
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  return file;
}

constexpr std::string_view kFileAdvice = "a file can be read more than once: write what it gives to a file";

// Pipes without a name have a writer, or had one; those in a folder may wait for one forever.
bool is_named_pipe(const std::string& path) {
  struct statfs system {};
  return ::statfs(path.c_str(), &system) != 0 || system.f_type != PIPEFS_MAGIC;
}

// What the path is instead of what was expected, with what to do; empty where it is right.
std::string objection(const std::string& path, const struct stat& info, InputKind kind) {
  if (S_ISREG(info.st_mode)) return "";
  if (S_ISDIR(info.st_mode)) return "is a folder, expected a file";
  if (S_ISSOCK(info.st_mode)) return "is a socket, expected a file";
  const bool streams = kind == InputKind::kStream;
  if (!S_ISFIFO(info.st_mode))
    return streams && S_ISCHR(info.st_mode) ? ""
                                            : fmt::format("is a device, expected a file; {}", kFileAdvice);
  if (!streams) return fmt::format("is a pipe, expected a file; {}", kFileAdvice);
  return is_named_pipe(path) ? "is a pipe in a folder, expected a file or a pipe of the shell (/dev/stdin)"
                             : "";
}

}  // namespace

void fail_system(std::string_view action, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM;
  const bool too_many = error == EMFILE || error == ENFILE;
  throw Error(fmt::format("[{}] cannot {}: {}{}", path, action, std::strerror(error),
                          full       ? "; free some space or choose another folder"
                          : too_many ? "; raise the limit of open files (ulimit -n)"
                                     : ""),
              full || too_many ? ErrorKind::kResources : ErrorKind::kInput);
}

int open_input(const std::string& path, InputKind kind) {
  struct stat info {};
  // Asked before opening, as to open a device may do something; and after it, when it cannot change any more.
  if (::stat(path.c_str(), &info) != 0) fail_system("open", path, errno);
  if (const std::string found = objection(path, info, kind); !found.empty()) fail("[{}] {}", path, found);
  const int file = open_for_reading(path);
  if (file < 0) fail_system("open", path, errno);
  const int result = ::fstat(file, &info);
  const std::string changed = result == 0 ? objection(path, info, kind) : std::strerror(errno);
  if (!changed.empty()) {
    ::close(file);
    fail("[{}] {}", path, changed);
  }
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}

}  // namespace temper
