/* Lets one call of a program fail, or all from one on: FAIL_KIND is memory (malloc and its kin), thread
 * (pthread_create), descriptor (open, socket, pipe, ...), disk (write, fsync, rename, unlink, ...) or message
 * (sendmsg, recvmsg); FAIL_AT counts the calls of that kind from 1, behind the first open of a file whose
 * name contains FAIL_BEHIND; FAIL_LASTING lets all later ones fail, too; FAIL_ERRNO is what they say; with
 * FAIL_SIGNAL the program gets that signal before the call, which is made; FAIL_RANK chooses one of several
 * ranks. The file FAIL_MARK is made when a call fails or the signal comes. COUNT_FILE gets a line with the
 * number of calls when a program ends; with COUNT_STACKS the numbers of the calls that were the first from
 * that many innermost callers follow. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { kMemory, kThread, kDescriptor, kDisk, kMessage, kNone };
static enum kind wanted = kNone;
static long at, calls;
static int lasting, number, counts, signalled;
static const char *behind, *mark;
static volatile int ready;

/* Hashes of the stacks that have been seen, and the number of the first call from each. */
enum { kStacks = 1 << 20, kFrames = 64, kOwnFrames = 2 /* of this file */ };
static unsigned long stacks[kStacks];
static long firsts[kStacks / 2], first_count;
static int stack_frames, stacks_lock;

static __thread int is_within; /* What looks at a stack may allocate: that call is none of the program's. */

static void keep_stack(long call) {
  is_within = 1;
  void* frames[kFrames];
  const int count = backtrace(frames, stack_frames);
  unsigned long hash = 14695981039346656037u;
  for (int i = kOwnFrames; i < count; ++i) hash = (hash ^ (unsigned long)frames[i]) * 1099511628211u;
  hash |= hash == 0;
  while (__sync_lock_test_and_set(&stacks_lock, 1)) {
  }
  unsigned long slot = (hash >> 32) % kStacks;
  while (stacks[slot] != 0 && stacks[slot] != hash) slot = (slot + 1) % kStacks;
  if (stacks[slot] == 0 && first_count < kStacks / 2) {
    stacks[slot] = hash;
    firsts[first_count++] = call;
  }
  __sync_lock_release(&stacks_lock);
  is_within = 0;
}

static void strike(void) {
  if (mark == NULL) return;
  const long file = syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) syscall(SYS_close, file);
}

static int due(enum kind kind) {
  if (!ready || kind != wanted || !counts || is_within) return 0;
  const long call = __sync_add_and_fetch(&calls, 1);
  if (stack_frames > 0) keep_stack(call);
  if (at == 0 || (lasting ? call < at : call != at)) return 0;
  strike();
  if (signalled != 0) {
    kill(getpid(), signalled);
    return 0;
  }
  errno = number;
  return 1;
}

static void opened(const char* path) {
  if (ready && !counts && strstr(path, behind) != NULL) counts = 1;
}

__attribute__((constructor)) static void begin(void) {
  static const char* const names[] = {"memory", "thread", "descriptor", "disk", "message"};
  const char *kind = getenv("FAIL_KIND"), *rank = getenv("FAIL_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");
  if (kind == NULL || (rank != NULL && (own == NULL || strcmp(rank, own) != 0))) return;
  for (int i = 0; i < 5; ++i)
    if (strcmp(kind, names[i]) == 0) wanted = (enum kind)i;
  const char *first = getenv("FAIL_AT"), *error = getenv("FAIL_ERRNO"), *sent = getenv("FAIL_SIGNAL");
  at = first == NULL ? 0 : atol(first);
  signalled = sent == NULL ? 0 : atoi(sent);
  lasting = getenv("FAIL_LASTING") != NULL;
  number = error == NULL ? (wanted == kDisk     ? EIO
                            : wanted == kThread ? EAGAIN
                            : wanted == kMemory ? ENOMEM
                                                : EMFILE)
                         : atoi(error);
  behind = getenv("FAIL_BEHIND");
  mark = getenv("FAIL_MARK");
  counts = behind == NULL;
  const char* stacks = getenv("COUNT_STACKS");
  stack_frames = stacks == NULL ? 0 : atoi(stacks) + kOwnFrames;
  if (stack_frames > kFrames) stack_frames = kFrames;
  void* frame;
  if (stack_frames > 0) backtrace(&frame, 1); /* loads what it needs, and allocates for that */
  ready = 1;
}

__attribute__((destructor)) static void end(void) {
  const char* path = getenv("COUNT_FILE");
  if (path == NULL || !ready) return;
  ready = 0;
  FILE* file = fopen(path, "a");
  if (file == NULL) _exit(99);
  fprintf(file, "%ld", calls);
  for (long i = 0; i < first_count; ++i) fprintf(file, " %ld", firsts[i]);
  fprintf(file, "\n");
  if (fclose(file) != 0) _exit(99);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) { return due(kMemory) ? NULL : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return due(kMemory) ? NULL : __libc_calloc(count, bytes); }
void* realloc(void* memory, size_t bytes) { return due(kMemory) ? NULL : __libc_realloc(memory, bytes); }
void* memalign(size_t alignment, size_t bytes) {
  return due(kMemory) ? NULL : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return due(kMemory) ? NULL : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  if (due(kMemory)) return ENOMEM;
  *to = __libc_memalign(alignment, bytes);
  return *to == NULL ? ENOMEM : 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  return due(kThread) ? number : NEXT(pthread_create)(thread, attributes, run, argument);
}

#define OPEN(name)                                                                                          \
  int name(const char* path, int flags, ...) {                                                              \
    va_list more;                                                                                           \
    va_start(more, flags);                                                                                  \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;                                  \
    va_end(more);                                                                                           \
    opened(path);                                                                                           \
    return due(kDescriptor) ? -1                                                                            \
                            : ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
int socket(int domain, int type, int protocol) {
  return due(kDescriptor) ? -1 : NEXT(socket)(domain, type, protocol);
}
int pipe2(int ends[2], int flags) { return due(kDescriptor) ? -1 : NEXT(pipe2)(ends, flags); }

/* Not of the console, nor of the pipes in which Open MPI wakes its own threads. */
static int is_on_disk(int descriptor) {
  struct stat found;
  return descriptor > 2 && fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);
}
ssize_t write(int descriptor, const void* data, size_t size) {
  return is_on_disk(descriptor) && due(kDisk) ? -1 : NEXT(write)(descriptor, data, size);
}
ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  return due(kDisk) ? -1 : NEXT(pwrite)(descriptor, data, size, offset);
}
int fsync(int descriptor) { return due(kDisk) ? -1 : NEXT(fsync)(descriptor); }
int rename(const char* from, const char* to) { return due(kDisk) ? -1 : NEXT(rename)(from, to); }
int renameat2(int from_in, const char* from, int to_in, const char* to, unsigned flags) {
  return due(kDisk) ? -1 : NEXT(renameat2)(from_in, from, to_in, to, flags);
}
int unlink(const char* path) { return due(kDisk) ? -1 : NEXT(unlink)(path); }
int unlinkat(int folder, const char* path, int flags) {
  return due(kDisk) ? -1 : NEXT(unlinkat)(folder, path, flags);
}
int rmdir(const char* path) { return due(kDisk) ? -1 : NEXT(rmdir)(path); }
int remove(const char* path) { return due(kDisk) ? -1 : NEXT(remove)(path); }
int ftruncate(int descriptor, off_t size) { return due(kDisk) ? -1 : NEXT(ftruncate)(descriptor, size); }
int mkdir(const char* path, mode_t mode) { return due(kDisk) ? -1 : NEXT(mkdir)(path, mode); }

ssize_t sendmsg(int socket, const struct msghdr* message, int flags) {
  return due(kMessage) ? -1 : NEXT(sendmsg)(socket, message, flags);
}
ssize_t recvmsg(int socket, struct msghdr* message, int flags) {
  return due(kMessage) ? -1 : NEXT(recvmsg)(socket, message, flags);
}
