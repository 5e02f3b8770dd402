#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/open_input.h"
#include "base/process.h"
#include "base/text.h"

namespace temper {
namespace {

void sync_path(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) fail_system("open", path, errno);
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  // Some file systems cannot sync a folder; the rename itself is still atomic there.
  if (result != 0 && error != EINVAL) fail_system("sync", path, error);
}

}  // namespace

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  return fmt::format("{}{}{}", folder, folder.back() == '/' ? "" : "/", name);
}

std::string file_name(std::string_view path) { return std::filesystem::path(path).filename().string(); }

std::string parent_path(std::string_view path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

namespace {

// The names in a folder, in any order, and 0 or the number of the error. Not by std::filesystem: its
// iterators end the process where a name finds no memory.
int read_names(const std::string& path, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return errno;
  for (errno = 0; const dirent* entry = ::readdir(folder.get()); errno = 0)
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  return errno;
}

}  // namespace

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  if (const int error = read_names(path, names); error != 0) fail_system("list", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_system("make the folder", path, error.value());
}

void remove_all(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  const int error = errno;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) fail_system("remove", path, error);
  for (const std::string& name : list_directory(path)) remove_all(join_path(path, name));
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) fail_system("remove", path, errno);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_system(fmt::format("rename to {}", to), from, errno);
}

int64_t file_size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail_system("read", path, errno);
  return info.st_size;
}

int64_t free_disk_bytes(const std::string& path) {
  std::string place = path.empty() ? "." : path;
  while (!exists(place)) place = parent_path(place);
  struct statvfs info {};
  if (::statvfs(place.c_str(), &info) != 0) fail_system("ask for the free space of", place, errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

namespace {

// Of files whose size is known, and of those of /proc, which have none.
std::string read_opened(int file, const std::string& path, int64_t most) {
  const auto refuse = [&](int64_t size) {
    ::close(file);
    fail("[{}] has {}{}, and at most {} are read here; is it the right file?", path,
         size > most ? "" : "more than ", format_bytes(size), format_bytes(most));
  };
  struct stat info {};
  const int64_t size = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
  if (size > most) refuse(size);
  std::string text;
  text.reserve(static_cast<size_t>(size));
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(file, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > most) refuse(most);
  }
  const int error = errno;
  ::close(file);
  if (got < 0) fail_system("read", path, error);
  return text;
}

}  // namespace

std::string read_file(const std::string& path, int64_t most) {
  return read_opened(open_input(path, InputKind::kFile), path, most);
}

std::string read_stream(const std::string& path, int64_t most) {
  return read_opened(open_input(path, InputKind::kStream), path, most);
}

namespace {

// "config.json.tmp-" of config.json: what all its temporary names begin with; a count and the process follow.
std::string temporary_prefix(const std::string& path) { return path + ".tmp-"; }

// Of other processes that are gone; one that cannot be removed is harmless.
void sweep_temporaries(const std::string& path) {
  const std::string name = file_name(temporary_prefix(path)), folder = parent_path(path);
  std::vector<std::string> all;
  read_names(folder, all);
  for (const std::string& found : all) {
    const size_t dash = found.starts_with(name) ? found.find('-', name.size()) : std::string::npos;
    if (dash == std::string::npos) continue;
    const auto owner = parse_process(std::string_view(found).substr(dash + 1));
    if (owner && state_of(*owner) == ProcessState::kGone) ::unlink(join_path(folder, found).c_str());
  }
}

}  // namespace

void write_file(const std::string& path, std::string_view data) {
  static std::atomic<int> count = 0;
  const std::string temporary =
      fmt::format("{}{}-{}", temporary_prefix(path), ++count, to_string(this_process()));
  try {
    FileWriter writer(temporary);
    writer.write(data);
    writer.close();
    rename_path(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sweep_temporaries(path);
  sync_directory(parent_path(path));
}

void sync_directory(const std::string& path) { sync_path(path, O_RDONLY | O_DIRECTORY); }

FileWriter::FileWriter(const std::string& path, bool append) : path_(path) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC);
  struct stat info {};
  const bool is_pipe = ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
  file_ = ::open(path.c_str(), flags | (is_pipe ? O_NONBLOCK : 0), 0644);
  if (file_ < 0 && is_pipe && errno == ENXIO) fail("[{}] is a pipe without a reader", path);
  if (file_ < 0) fail_system("create", path, errno);
  if (is_pipe) ::fcntl(file_, F_SETFL, flags & O_APPEND);  // whoever reads is waited for
}

FileWriter::~FileWriter() {
  if (file_ >= 0) ::close(file_);
}

void FileWriter::write(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::write(file_, bytes, std::min(size, size_t{1} << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_system("write", path_, errno);
    bytes += put;
    size -= static_cast<size_t>(put);
  }
}

void FileWriter::sync() {
  if (file_ >= 0 && ::fsync(file_) != 0 && errno != EINVAL) fail_system("sync", path_, errno);  // as close()
}

void FileWriter::close() {
  const int file = std::exchange(file_, -1);
  if (file < 0) return;
  const bool synced = ::fsync(file) == 0 || errno == EINVAL;  // pipes and devices cannot sync
  const int error = errno;
  if (::close(file) != 0) fail_system("close", path_, errno);
  if (!synced) fail_system("sync", path_, error);
}

namespace {

int64_t modified_at(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path), file_(open_input(path, InputKind::kFile)) {
  const auto give_up = [&](const char* what) {
    const int error = errno;
    ::close(file_);
    fail_system(what, path, error);
  };
  struct stat info {};
  if (::fstat(file_, &info) != 0) give_up("read");
  size_ = static_cast<size_t>(info.st_size);
  modified_ = modified_at(info);
  if (size_ == 0) return;
  void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
  if (memory == MAP_FAILED) give_up("map");
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(file_);
}

void MappedFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail_system("read", path_, errno);
  if (static_cast<size_t>(info.st_size) == size_ && modified_at(info) == modified_) return;
  fail(
      "[{}] was written to while it was being read: it had {} bytes, now {}; leave files as they are during "
      "a run, and give other contents other names",
      path_, size_, info.st_size);
}

void MappedFile::release(size_t begin, size_t end) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = (begin + page - 1) / page * page;
  const size_t last = end == size_ ? end : end / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = join_path(folder, ".lock");
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail_system("create", path, errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
    const std::string owner = to_string(this_process());
    // For the message below alone; the lock holds without it.
    [[maybe_unused]] const bool written =
        ::ftruncate(file_, 0) == 0 && ::pwrite(file_, owner.data(), owner.size(), 0) > 0;
    return;
  }
  if (errno != EWOULDBLOCK) return;
  ::close(file_);
  const std::optional<ProcessName> owner = parse_process(read_file(path));
  fail("[{}] another process is at work there{}; wait for it, or choose another folder", folder,
       owner ? fmt::format(" ({} of host {})", owner->number, owner->host) : std::string());
}

FolderLock::~FolderLock() { ::close(file_); }

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TMPDIR");
  path_ = join_path(base != nullptr ? base : "/tmp", "temper.XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr) fail_system("make a temporary folder", path_, errno);
}

TemporaryDirectory::~TemporaryDirectory() {
  try {
    remove_all(path_);
  } catch (const std::exception&) {  // what is left is harmless
  }
}

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache != nullptr && *cache != '\0'
                               ? std::string(cache)
                               : join_path(home == nullptr ? "." : home, ".cache");
  return join_path(base, "temper");
}

}  // namespace temper
