/* Shifts the time of day that a program is told: by CLOCK_SHIFT seconds from the CLOCK_AFTER-th question on,
 * and each CLOCK_EVERY questions by as much again, to and fro where CLOCK_SWINGS is set. Clocks that cannot
 * be set, such as CLOCK_MONOTONIC, are left as they are. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift, after = 1, every = 1000000000, swings;
static volatile long asked;

static long number_of(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text == NULL ? otherwise : atol(text);
}

__attribute__((constructor)) static void begin(void) {
  shift = number_of("CLOCK_SHIFT", 0);
  after = number_of("CLOCK_AFTER", after);
  every = number_of("CLOCK_EVERY", every);
  swings = number_of("CLOCK_SWINGS", 0);
}

static long seconds_for(void* caller) {
  Dl_info from;
  if (dladdr(caller, &from) == 0 || from.dli_fname == NULL) return 0;
  if (strstr(from.dli_fname, ".so") != NULL && strstr(from.dli_fname, "libstdc++") == NULL) return 0;
  const long count = __sync_add_and_fetch(&asked, 1) - after;
  if (count < 0) return 0;
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
