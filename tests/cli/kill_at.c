/* Kills a program at one place of its work, as a machine that loses its power would: at the KILL_COUNT-th call of
 * KILL_CALL (open, write, fsync or rename) whose file's name contains KILL_FILE, before that call or, with KILL_AFTER
 * set, behind it. With WAIT_FILE set it waits there instead, until that file has WAIT_LINES lines, and kills where it has
 * not after a minute. With KILL_SIGNAL set it gets that signal once, and goes on. With KILL_RANK set, of several ranks only that one. With FAIL_WITH set that call fails with this errno
 * instead. With FREE_BYTES set, file systems say that they have so much room. With CALLS_FILE set, every call of these
 * four whose file's name contains CALLS_OF is a line there, "fsync /path", in their order. Built by tests; loaded by
 * LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void note(const char* call, const char* file) {
  const char *calls = getenv("CALLS_FILE"), *part = getenv("CALLS_OF");
  if (calls == NULL || part == NULL || strstr(file, part) == NULL) return;
  FILE* to = fopen(calls, "a");
  if (to == NULL) return;
  fprintf(to, "%s %s\n", call, file);
  fclose(to);
}

static int due(const char* call, const char* file) {
  static int calls = 0;
  note(call, file);
  const char *wanted = getenv("KILL_CALL"), *part = getenv("KILL_FILE"), *count = getenv("KILL_COUNT");
  const char *rank = getenv("KILL_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
  if (wanted == NULL || part == NULL || strcmp(wanted, call) != 0 || strstr(file, part) == NULL) return 0;
  if (rank != NULL && (own == NULL || strcmp(rank, own) != 0)) return 0;
  return __sync_add_and_fetch(&calls, 1) == (count == NULL ? 1 : atoi(count));
}

static int lines_of(const char* path) {
  FILE* file = fopen(path, "r");
  int lines = 0;
  if (file == NULL) return 0;
  for (int c = getc(file); c != EOF; c = getc(file)) lines += c == '\n';
  fclose(file);
  return lines;
}

static int fails_if(int now) {
  const char* number = getenv("FAIL_WITH");
  if (!now || number == NULL) return 0;
  errno = atoi(number);
  return 1;
}

static void end_if(int now) {
  if (!now) return;
  const char *file = getenv("WAIT_FILE"), *lines = getenv("WAIT_LINES");
  for (int i = 0; file != NULL && lines != NULL && i < 6000; ++i) {
    if (lines_of(file) >= atoi(lines)) return;
    usleep(10000);
  }
  const char* number = getenv("KILL_SIGNAL");
  static int sent = 0;
  if (number == NULL)
    kill(getpid(), SIGKILL);
  else if (__sync_add_and_fetch(&sent, 1) == 1)
    kill(getpid(), atoi(number));
}

static int due_of(const char* call, int descriptor) {
  char link[64], name[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, name, sizeof name - 1);
  if (size < 0) return 0;
  name[size] = '\0';
  return due(call, name);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  static ssize_t (*next)(int, const void*, size_t) = NULL;
  if (next == NULL) next = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  const int now = due_of("write", descriptor);
  if (fails_if(now)) return -1;
  end_if(now && getenv("KILL_AFTER") == NULL);
  const ssize_t result = next(descriptor, data, size);
  end_if(now);
  return result;
}

static int open_by(const char* name, const char* path, int flags, mode_t mode) {
  int (*const next)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, name);
  const int now = due("open", path);
  if (fails_if(now)) return -1;
  end_if(now);
  return next(path, flags, mode);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_by("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open_by("open64", path, flags, mode);
}

int fsync(int descriptor) {
  static int (*next)(int) = NULL;
  if (next == NULL) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  const int now = due_of("fsync", descriptor);
  if (fails_if(now)) return -1;
  end_if(now && getenv("KILL_AFTER") == NULL);
  const int result = next(descriptor);
  end_if(now);
  return result;
}

int statvfs(const char* path, struct statvfs* info) {
  static int (*next)(const char*, struct statvfs*) = NULL;
  if (next == NULL) next = (int (*)(const char*, struct statvfs*))dlsym(RTLD_NEXT, "statvfs");
  const int result = next(path, info);
  const char* bytes = getenv("FREE_BYTES");
  if (result == 0 && bytes != NULL) info->f_bavail = (fsblkcnt_t)(atoll(bytes) / (long long)info->f_frsize);
  return result;
}

int rename(const char* from, const char* to) {
  static int (*next)(const char*, const char*) = NULL;
  if (next == NULL) next = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename");
  const int now = due("rename", from);
  if (fails_if(now)) return -1;
  end_if(now && getenv("KILL_AFTER") == NULL);
  const int result = next(from, to);
  end_if(now);
  return result;
}
