#include "base/json/shared_json.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace temper {
namespace {

// Waits for other processes and, as each lock has an open file of its own, for other threads.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~FileLock() {
    if (file_ >= 0) ::close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

}  // namespace

Json read_shared_json(const std::string& file, std::string_view what) {
  if (!exists(file)) return Json::Object{};
  try {
    Json object = Json::parse_file(file);
    if (object.is_object()) return object;
    log_warning(fmt::format("{} are ignored: [{}] is not an object", what, file));
  } catch (const Error& error) {
    log_warning(fmt::format("{} are ignored: {}", what, error.what()));
  }
  return Json::Object{};
}

void update_shared_json(const std::string& file, std::string_view what,
                        const std::function<void(Json& object)>& change) {
  make_directories(parent_path(file));
  const FileLock lock(file + ".lock");
  Json object = read_shared_json(file, what);
  change(object);
  write_file(file, object.dump(1) + "\n");
}

}  // namespace temper
