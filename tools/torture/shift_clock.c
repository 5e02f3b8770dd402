/* Shifts the time of day that a program is told: by CLOCK_SHIFT seconds from the CLOCK_AFTER-th question on,
 * and each CLOCK_EVERY questions by as much again, to and fro where CLOCK_SWINGS is set. Clocks that cannot
 * be set, such as CLOCK_MONOTONIC, are left as they are. The file CLOCK_MARK is made at the first shift.
 * COUNT_FILE gets a line with the number of questions when a program ends. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift, after = 1, every = 1000000000, swings;
static volatile long asked;
static const char* mark;

static long number_of(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text == NULL ? otherwise : atol(text);
}

__attribute__((constructor)) static void begin(void) {
  shift = number_of("CLOCK_SHIFT", 0);
  after = number_of("CLOCK_AFTER", after);
  every = number_of("CLOCK_EVERY", every);
  swings = number_of("CLOCK_SWINGS", 0);
  mark = getenv("CLOCK_MARK");
}

__attribute__((destructor)) static void end(void) {
  const char* path = getenv("COUNT_FILE");
  if (path == NULL) return;
  char text[32];
  const int size = snprintf(text, sizeof text, "%ld\n", asked),
            file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file >= 0 && write(file, text, (size_t)size) < 0) _exit(99);
}

static void shifted(void) {
  if (mark == NULL) return;
  const long file = syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) syscall(SYS_close, file);
}

static long seconds_for(void* caller) {
  Dl_info from;
  if (dladdr(caller, &from) == 0 || from.dli_fname == NULL) return 0;
  if (strstr(from.dli_fname, ".so") != NULL && strstr(from.dli_fname, "libstdc++") == NULL) return 0;
  const long count = __sync_add_and_fetch(&asked, 1) - after;
  if (count < 0) return 0;
  if (count == 0) shifted();
  const long times = 1 + count / every;
  return swings ? (times % 2) * shift : times * shift;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += seconds_for(__builtin_return_address(0));
  return result;
}

int gettimeofday(struct timeval* now, void* zone) {
  const int result = (int)syscall(SYS_gettimeofday, now, zone);
  if (result == 0) now->tv_sec += seconds_for(__builtin_return_address(0));
  return result;
}

time_t time(time_t* to) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  const time_t told = now.tv_sec + seconds_for(__builtin_return_address(0));
  if (to != NULL) *to = told;
  return told;
}
