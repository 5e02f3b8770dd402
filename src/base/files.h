#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Paths are plain strings in UTF-8. Every failure is an Error that names the path and the system's reason; a
// full disk is kResources, everything else kInput.
namespace temper {

std::string join_path(std::string_view folder, std::string_view name);
std::string file_name(std::string_view path);
std::string parent_path(std::string_view path);
bool exists(const std::string& path);
bool is_directory(const std::string& path);
std::vector<std::string> list_directory(const std::string& path);  // names, sorted
void make_directories(const std::string& path);
void remove_all(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
int64_t file_size(const std::string& path);
int64_t free_disk_bytes(const std::string& path);  // of the file system that holds path or its nearest parent

// What a configuration, a template or a prompt may have, in bytes.
inline constexpr int64_t kLongestText = int64_t{256} << 20;

// The whole of a regular file; folders, pipes and devices are Errors (base/open_input.h), and so is more than
// `most` bytes.
std::string read_file(const std::string& path, int64_t most = INT64_MAX);
// The same, also of a pipe that a shell made (/dev/stdin) and of a terminal, which are read once.
std::string read_stream(const std::string& path, int64_t most = kLongestText);

// Writes to a temporary name of its own next to `path`, syncs, renames: readers see the old file or the new
// one, and of several writers the last wins. Nothing is left behind when it fails; what a killed process left
// of this file is removed.
void write_file(const std::string& path, std::string_view data);
void sync_directory(const std::string& path);

// A file written front to back; close() syncs it to the device. A pipe without a reader is an Error,
// not waited for. Not closed means not finished: the destructor leaves an incomplete file behind, for the
// caller's temporary folder to sweep away.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path, bool append = false);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void sync();  // to the device, what is written so far
  void close();

 private:
  std::string path_;
  int file_ = -1;
};

// A whole regular file mapped read-only. Where another program cuts it short, reading what is gone ends the
// process (base/signals/file_signals.h): ask for check_unchanged() before reading what lay there long.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // An Error when the file was written to since it was mapped.
  void check_unchanged() const;
  // Whole pages of this range leave the process's memory; reading them again fetches them again.
  void release(size_t begin, size_t end) const;

 private:
  std::string path_;
  int file_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ = 0;  // nanoseconds
};

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

// A folder below the system's temporary one, removed with everything in it at the end of its life.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

// Where what was measured on this machine is kept: $XDG_CACHE_HOME/temper, or ~/.cache/temper.
std::string cache_folder();

}  // namespace temper
