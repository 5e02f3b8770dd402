/* Writes a log of all that a program does to the files below the folder RECORD_ROOT: into the file RECORD_TO,
 * one record after the other in the order of the calls, also of several threads and processes. disk_log.py
 * reads it, which has the same struct. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct record {
  char what; /* c: created, t: cut to offset, w: written at offset, s: synced, n: renamed, x: renamed both
                ways, u: removed, m: a folder made */
  char unused[7];
  uint64_t file; /* its inode's number */
  int64_t offset;
  int64_t size; /* of the data that follow the names */
  uint32_t name, to;
};

static const char* root;
static int log_file = -1;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
  const char* to = getenv("RECORD_TO");
  root = getenv("RECORD_ROOT");
  if (root != NULL && to != NULL)
    log_file = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static int is_inside(const char* path) { return log_file >= 0 && strncmp(path, root, strlen(root)) == 0; }
static void lock(void) {
  pthread_mutex_lock(&one_at_a_time);
  flock(log_file, LOCK_EX);
}
static void unlock(void) {
  const int error = errno;
  flock(log_file, LOCK_UN);
  pthread_mutex_unlock(&one_at_a_time);
  errno = error;
}

static void put(const void* data, size_t size) {
  for (const char* at = data; size > 0;) {
    const ssize_t done = syscall(SYS_write, log_file, at, size);
    if (done < 0) _exit(98);
    at += done;
    size -= (size_t)done;
  }
}

static void note(char what, uint64_t file, const char* name, const char* to, int64_t offset, const void* data,
                 int64_t size) {
  struct record record = {0};
  record.what = what;
  record.file = file;
  record.offset = offset;
  record.size = size;
  record.name = (uint32_t)strlen(name);
  record.to = (uint32_t)strlen(to);
  put(&record, sizeof record);
  put(name, record.name);
  put(to, record.to);
  if (size > 0) put(data, (size_t)size);
}

static uint64_t inode_of(int file) {
  struct stat info;
  return fstat(file, &info) == 0 ? info.st_ino : 0;
}

/* The path of a descriptor; whether it is inside. */
static int path_of(int file, char* path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = log_file < 0 ? -1 : readlink(link, path, size - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return is_inside(path);
}
static void full_path(int folder, const char* name, char* path, size_t size) {
  if (folder == AT_FDCWD || name[0] == '/' || !path_of(folder, path, size))
    snprintf(path, size, "%s", name);
  else
    snprintf(path + strlen(path), size - strlen(path), "/%s", name);
}

static int open_in(int folder, const char* name, int flags, mode_t mode) {
  char path[4096];
  full_path(folder, name, path, sizeof path);
  if (!is_inside(path) || (flags & (O_CREAT | O_TRUNC)) == 0)
    return (int)syscall(SYS_openat, folder, name, flags, mode);
  lock();
  const int was_there = access(path, F_OK) == 0;
  const int file = (int)syscall(SYS_openat, folder, name, flags, mode);
  if (file >= 0 && !was_there) note('c', inode_of(file), path, "", 0, NULL, 0);
  if (file >= 0 && was_there && (flags & O_TRUNC) != 0) note('t', inode_of(file), path, "", 0, NULL, 0);
  unlock();
  return file;
}

#define MODE_OF(flags)           \
  mode_t mode = 0;               \
  if (((flags)&O_CREAT) != 0) {  \
    va_list more;                \
    va_start(more, flags);       \
    mode = va_arg(more, mode_t); \
    va_end(more);                \
  }
int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_in(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_in(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_in(folder, path, flags, mode);
}

/* CALL gives a result below 0 where it failed; then nothing has happened. */
#define RECORDED(inside, call, ...)       \
  do {                                    \
    if (!(inside)) return call;           \
    lock();                               \
    const __typeof__(call) result = call; \
    if (result >= 0) note(__VA_ARGS__);   \
    unlock();                             \
    return result;                        \
  } while (0)

ssize_t write(int file, const void* data, size_t size) {
  char path[4096];
  RECORDED(path_of(file, path, sizeof path), NEXT(write)(file, data, size), 'w', inode_of(file), path, "",
           lseek(file, 0, SEEK_CUR) - result, data, result);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  char path[4096];
  RECORDED(path_of(file, path, sizeof path), NEXT(pwrite)(file, data, size, offset), 'w', inode_of(file),
           path, "", offset, data, result);
}
int ftruncate(int file, off_t size) {
  char path[4096];
  RECORDED(path_of(file, path, sizeof path), NEXT(ftruncate)(file, size), 't', inode_of(file), path, "", size,
           NULL, 0);
}
int fsync(int file) {
  char path[4096];
  RECORDED(path_of(file, path, sizeof path), NEXT(fsync)(file), 's', inode_of(file), path, "", 0, NULL, 0);
}
int fdatasync(int file) {
  char path[4096];
  RECORDED(path_of(file, path, sizeof path), NEXT(fdatasync)(file), 's', inode_of(file), path, "", 0, NULL,
           0);
}
int rename(const char* from, const char* to) {
  RECORDED(is_inside(from), NEXT(rename)(from, to), 'n', 0, from, to, 0, NULL, 0);
}
int renameat2(int from_in, const char* from, int to_in, const char* to, unsigned flags) {
  RECORDED(is_inside(from), NEXT(renameat2)(from_in, from, to_in, to, flags),
           (flags & RENAME_EXCHANGE) != 0 ? 'x' : 'n', 0, from, to, 0, NULL, 0);
}
int unlink(const char* path) { RECORDED(is_inside(path), NEXT(unlink)(path), 'u', 0, path, "", 0, NULL, 0); }
int rmdir(const char* path) { RECORDED(is_inside(path), NEXT(rmdir)(path), 'u', 0, path, "", 0, NULL, 0); }
int remove(const char* path) { RECORDED(is_inside(path), NEXT(remove)(path), 'u', 0, path, "", 0, NULL, 0); }
int unlinkat(int folder, const char* name, int flags) {
  char path[4096];
  full_path(folder, name, path, sizeof path);
  RECORDED(is_inside(path), NEXT(unlinkat)(folder, name, flags), 'u', 0, path, "", 0, NULL, 0);
}
int mkdir(const char* path, mode_t mode) {
  RECORDED(is_inside(path), NEXT(mkdir)(path, mode), 'm', 0, path, "", 0, NULL, 0);
}
