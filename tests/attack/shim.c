/* A library for LD_PRELOAD that stands between a program and the file system below one folder.
 *
 * It counts the calls that change something there, and at the call of a chosen number it kills the
 * process, lets the call fail, or shortens it. It can also record every call with its data, for
 * replay.py. Beside that it can step the wall clock. Calls elsewhere pass untouched. Nothing is
 * armed at first: a process that has imported all it needs forks, and the child arms itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* As in shim.py. */
enum { OFF, COUNT, KILL_BEFORE, KILL_WITHIN, KILL_AFTER, FAIL, FAIL_FROM, SHORT };
enum { OPEN, WRITE, SYNC, RENAME, LINK, UNLINK, MKDIR, TRUNCATE, MODE, ALLOCATE, SYMLINK, OPS };
static const char* const kNames[OPS] = {"open",  "write",    "fsync", "rename",   "link",   "unlink",
                                        "mkdir", "truncate", "chmod", "allocate", "symlink"};

/* Shared with the process that forked this one, which reads it after the kill. */
struct board {
  long calls;
  long clock_reads;
  char hit[PATH_MAX + 32]; /* the call of the chosen number, and its file */
};
static struct board* board;

static char root[PATH_MAX];
static size_t root_length;
static int mode, error_number, trace_fd = -1, no_exchange;
static long chosen;
static long long clock_before, clock_after;
static long clock_turn;
static pthread_mutex_t tracing = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name)                                                       \
  ({                                                                     \
    static __typeof__(&name) real;                                       \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);        \
    real;                                                                \
  })

__attribute__((constructor)) static void begin(void) {
  board = mmap(0, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (board == MAP_FAILED) abort();
}

/* ---- Called by shim.py */

void attack_arm(const char* folder, int how, long number, int error, int trace) {
  mode = OFF;
  snprintf(root, sizeof root, "%s", folder);
  root_length = strlen(root);
  chosen = number;
  error_number = error;
  trace_fd = trace;
  board->calls = 0;
  board->hit[0] = 0;
  mode = how;
}

void attack_disarm(void) { mode = OFF; }

/* renameat2 knows no flags, as on some network file systems. */
void attack_no_exchange(int on) { no_exchange = on; }

/* The wall clock is off by `before` seconds, and by `after` from the read of number `turn` on. */
void attack_clock(long long before, long turn, long long after) {
  board->clock_reads = 0;
  clock_turn = turn;
  clock_after = after;
  clock_before = before;
}

long attack_calls(void) { return board->calls; }
long attack_clock_reads(void) { return board->clock_reads; }
const char* attack_hit(void) { return board->hit; }

/* ---- Which file */

/* Takes "." and ".." out, as text. */
static void tidy(char* path) {
  char out[PATH_MAX] = "";
  size_t length = 0;
  for (char *save = 0, *part = strtok_r(path, "/", &save); part; part = strtok_r(0, "/", &save)) {
    if (!strcmp(part, ".")) continue;
    if (!strcmp(part, "..")) {
      while (length && out[--length] != '/') continue;
      out[length] = 0;
      continue;
    }
    length += (size_t)snprintf(out + length, sizeof out - length, "/%s", part);
    if (length >= sizeof out) break;
  }
  snprintf(path, PATH_MAX, "%s", out);
}

static int below(const char* path) {
  return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int fd, char* out) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, out, PATH_MAX - 1);
  if (length <= 0) return 0;
  out[length] = 0;
  const char* gone = " (deleted)";
  const size_t tail = strlen(gone);
  return (size_t)length < tail || strcmp(out + length - tail, gone) != 0;
}

static int watches_fd(int fd, char* out) {
  const int kept = errno;
  const int yes = mode != OFF && path_of(fd, out) && below(out);
  errno = kept;
  return yes;
}

static int watches(int dir, const char* path, char* out) {
  if (mode == OFF || !path) return 0;
  const int kept = errno;
  char base[PATH_MAX] = "";
  if (path[0] != '/' && !(dir == AT_FDCWD ? getcwd(base, sizeof base) != 0 : path_of(dir, base))) {
    errno = kept;
    return 0;
  }
  const int length = snprintf(out, PATH_MAX, "%s/%s", base, path);
  errno = kept;
  if (length >= PATH_MAX) return 0;
  tidy(out);
  return below(out);
}

/* ---- What happens to a call */

struct call {
  long number;
  int op;
};

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

static void note_hit(int op, const char* path) {
  const char* inside = path + root_length;
  snprintf(board->hit, sizeof board->hit, "%s %s", kNames[op], *inside == '/' ? inside + 1 : ".");
}

/* Only these are ever interrupted by a signal. */
static int interruptible(int op) { return op == OPEN || op == WRITE || op == SYNC || op == TRUNCATE; }

/* False: the call fails now, errno says how. */
static int enter(struct call* call, int op, const char* path) {
  call->op = op;
  call->number = __atomic_add_fetch(&board->calls, 1, __ATOMIC_SEQ_CST);
  const int here = call->number == chosen;
  if (here) note_hit(op, path);
  if (here && mode == KILL_BEFORE) die();
  if (here && mode == KILL_WITHIN && op != WRITE) die();
  const int fails = (mode == FAIL && here) || (mode == FAIL_FROM && call->number >= chosen);
  if (!fails || (error_number == EINTR && !interruptible(op))) return 1;
  /* A full disk still lets files be taken away and closed. */
  if (mode == FAIL_FROM && (error_number == ENOSPC || error_number == EDQUOT) &&
      (op == UNLINK || op == SYNC || op == MODE))
    return 1;
  errno = error_number;
  return 0;
}

static void leave(const struct call* call) {
  if (mode == KILL_AFTER && call->number == chosen) die();
}

static size_t shortened(const struct call* call, size_t size) {
  const int here = call->number == chosen && (mode == SHORT || mode == KILL_WITHIN);
  return here && size > 1 ? size / 2 : size;
}

static void wrote(const struct call* call) {
  if (mode == KILL_WITHIN && call->number == chosen) die();
  leave(call);
}

/* ---- The record, see replay.py */

static void record(int op, int64_t a, int64_t b, const char* one, const char* two, const void* data,
                   size_t size) {
  if (trace_fd < 0) return;
  const int kept = errno;
  struct {
    int64_t op, a, b, one, two, size;
  } head = {op, a, b, (int64_t)strlen(one), two ? (int64_t)strlen(two) : 0, (int64_t)size};
  struct iovec parts[] = {{&head, sizeof head},
                          {(void*)one, (size_t)head.one},
                          {(void*)(two ? two : ""), (size_t)head.two},
                          {(void*)data, size}};
  pthread_mutex_lock(&tracing);
  for (int k = 0; k < 4; ++k) {
    const char* from = parts[k].iov_base;
    for (size_t left = parts[k].iov_len; left;) {
      const ssize_t done = REAL(write)(trace_fd, from, left);
      if (done <= 0) abort();
      from += done;
      left -= (size_t)done;
    }
  }
  pthread_mutex_unlock(&tracing);
  errno = kept;
}

/* What a call has just put into a file, read back; `end` is where it stopped. */
static void record_written(int fd, const char* path, int64_t end, ssize_t size) {
  if (trace_fd < 0 || size <= 0) return;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  char* data = malloc((size_t)size);
  const int reader = REAL(open)(link, O_RDONLY | O_CLOEXEC);
  if (!data || reader < 0 || pread(reader, data, (size_t)size, end - size) != size) abort();
  close(reader);
  record(WRITE, end - size, 0, path, 0, data, (size_t)size);
  free(data);
}

/* ---- Opening */

static int writes(int flags) {
  return (flags & O_TMPFILE) != O_TMPFILE && flags & (O_CREAT | O_TRUNC);
}

typedef int (*opener)(int dir, const char* path, int flags, const void* rest);

static int open_watched(int dir, const char* path, int flags, const void* rest, opener really) {
  char where[PATH_MAX];
  struct call call;
  if (!writes(flags) || !watches(dir, path, where)) return really(dir, path, flags, rest);
  if (!enter(&call, OPEN, where)) return -1;
  const int kept = errno;
  const int there = access(where, F_OK) == 0;
  errno = kept;
  const int fd = really(dir, path, flags, rest);
  if (fd >= 0) record(OPEN, !there, (flags & O_TRUNC) != 0, where, 0, 0, 0);
  leave(&call);
  return fd;
}

static int plain_open(int dir, const char* path, int flags, const void* rest) {
  return (int)syscall(SYS_openat, dir, path, flags | O_LARGEFILE, *(const mode_t*)rest);
}

static int open_how(int dir, const char* path, int flags, const void* rest) {
  (void)flags;
  return (int)REAL(syscall)(SYS_openat2, dir, path, rest, sizeof(struct open_how));
}

#define WITH_MODE(last)                                        \
  mode_t permissions = 0;                                      \
  if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {   \
    va_list arguments;                                         \
    va_start(arguments, last);                                 \
    permissions = (mode_t)va_arg(arguments, int);              \
    va_end(arguments);                                         \
  }

int open(const char* path, int flags, ...) {
  WITH_MODE(flags)
  return open_watched(AT_FDCWD, path, flags, &permissions, plain_open);
}
int open64(const char* path, int flags, ...) {
  WITH_MODE(flags)
  return open_watched(AT_FDCWD, path, flags, &permissions, plain_open);
}
int openat(int dir, const char* path, int flags, ...) {
  WITH_MODE(flags)
  return open_watched(dir, path, flags, &permissions, plain_open);
}
int openat64(int dir, const char* path, int flags, ...) {
  WITH_MODE(flags)
  return open_watched(dir, path, flags, &permissions, plain_open);
}
int creat(const char* path, mode_t permissions) {
  return open_watched(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, &permissions, plain_open);
}

static FILE* open_stream(const char* path, const char* how, FILE* (*really)(const char*, const char*)) {
  char where[PATH_MAX];
  struct call call;
  if (how[0] == 'r' || !watches(AT_FDCWD, path, where)) return really(path, how);
  if (!enter(&call, OPEN, where)) return 0;
  const int there = access(where, F_OK) == 0;
  FILE* stream = really(path, how);
  if (stream) record(OPEN, !there, how[0] == 'w', where, 0, 0, 0);
  leave(&call);
  return stream;
}
FILE* fopen(const char* path, const char* how) { return open_stream(path, how, REAL(fopen)); }
FILE* fopen64(const char* path, const char* how) { return open_stream(path, how, REAL(fopen64)); }

/* ---- Writing */

ssize_t write(int fd, const void* data, size_t size) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(fd, where)) return REAL(write)(fd, data, size);
  if (!enter(&call, WRITE, where)) return -1;
  const ssize_t done = REAL(write)(fd, data, shortened(&call, size));
  if (done > 0) record(WRITE, lseek(fd, 0, SEEK_CUR) - done, 0, where, 0, data, (size_t)done);
  wrote(&call);
  return done;
}

static ssize_t write_at(int fd, const void* data, size_t size, off_t offset) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(fd, where)) return REAL(pwrite64)(fd, data, size, offset);
  if (!enter(&call, WRITE, where)) return -1;
  const ssize_t done = REAL(pwrite64)(fd, data, shortened(&call, size), offset);
  if (done > 0) record(WRITE, offset, 0, where, 0, data, (size_t)done);
  wrote(&call);
  return done;
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return write_at(fd, data, size, at); }
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  return write_at(fd, data, size, at);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(fd, where)) return REAL(writev)(fd, parts, count);
  if (!enter(&call, WRITE, where)) return -1;
  const int here = call.number == chosen && (mode == SHORT || mode == KILL_WITHIN);
  const ssize_t done = here && count > 1 ? REAL(writev)(fd, parts, count - 1)
                                         : REAL(writev)(fd, parts, count);
  record_written(fd, where, lseek(fd, 0, SEEK_CUR), done);
  wrote(&call);
  return done;
}

static ssize_t send_file(int to, int from, off_t* offset, size_t size) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(to, where)) return REAL(sendfile64)(to, from, offset, size);
  if (!enter(&call, WRITE, where)) return -1;
  struct stat info;
  const size_t whole = fstat(from, &info) == 0 && (size_t)info.st_size < size ? (size_t)info.st_size
                                                                              : size;
  const ssize_t done = REAL(sendfile64)(to, from, offset, shortened(&call, whole ? whole : size));
  record_written(to, where, lseek(to, 0, SEEK_CUR), done);
  wrote(&call);
  return done;
}
ssize_t sendfile(int to, int from, off_t* offset, size_t size) {
  return send_file(to, from, offset, size);
}
ssize_t sendfile64(int to, int from, off64_t* offset, size_t size) {
  return send_file(to, from, offset, size);
}

ssize_t copy_file_range(int from, off64_t* in, int to, off64_t* out, size_t size, unsigned flags) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(to, where)) return REAL(copy_file_range)(from, in, to, out, size, flags);
  if (!enter(&call, WRITE, where)) return -1;
  const ssize_t done = REAL(copy_file_range)(from, in, to, out, shortened(&call, size), flags);
  record_written(to, where, out ? *out : lseek(to, 0, SEEK_CUR), done);
  wrote(&call);
  return done;
}

static int cut(int fd, const char* where, off_t size, const char* path) {
  struct call call;
  if (!enter(&call, TRUNCATE, where)) return -1;
  const int done = fd >= 0 ? REAL(ftruncate64)(fd, size) : REAL(truncate64)(path, size);
  if (!done) record(TRUNCATE, size, 0, where, 0, 0, 0);
  leave(&call);
  return done;
}
int ftruncate64(int fd, off64_t size) {
  char where[PATH_MAX];
  return watches_fd(fd, where) ? cut(fd, where, size, 0) : REAL(ftruncate64)(fd, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int truncate64(const char* path, off64_t size) {
  char where[PATH_MAX];
  return watches(AT_FDCWD, path, where) ? cut(-1, where, size, path) : REAL(truncate64)(path, size);
}
int truncate(const char* path, off_t size) { return truncate64(path, size); }

static int allocate(int fd, int how, off_t offset, off_t size) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(fd, where)) return REAL(fallocate64)(fd, how, offset, size);
  if (!enter(&call, ALLOCATE, where)) return -1;
  const int done = REAL(fallocate64)(fd, how, offset, size);
  leave(&call);
  return done;
}
int fallocate(int fd, int how, off_t offset, off_t size) { return allocate(fd, how, offset, size); }
int fallocate64(int fd, int how, off64_t offset, off64_t size) {
  return allocate(fd, how, offset, size);
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) {
  return allocate(fd, 0, offset, size) ? errno : 0;
}
int posix_fallocate(int fd, off_t offset, off_t size) { return posix_fallocate64(fd, offset, size); }

/* Counted, not done: no power is lost here, and a real one takes milliseconds. */
static int sync_fd(int fd, int (*really)(int)) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(fd, where)) return really(fd);
  if (!enter(&call, SYNC, where)) return -1;
  record(SYNC, 0, 0, where, 0, 0, 0);
  leave(&call);
  return 0;
}
int fsync(int fd) { return sync_fd(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_fd(fd, REAL(fdatasync)); }

/* ---- Names */

static int move(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  char one[PATH_MAX], two[PATH_MAX];
  struct call call;
  const int first = watches(from_dir, from, one), second = watches(to_dir, to, two);
  if (!first && !second) return (int)REAL(syscall)(SYS_renameat2, from_dir, from, to_dir, to, flags);
  if (!enter(&call, RENAME, second ? two : one)) return -1;
  if (flags && no_exchange) {
    errno = EINVAL;
    return -1;
  }
  const int done = (int)REAL(syscall)(SYS_renameat2, from_dir, from, to_dir, to, flags);
  if (!done) record(RENAME, flags, 0, one, two, 0, 0);
  leave(&call);
  return done;
}
int rename(const char* from, const char* to) { return move(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char* from, int b, const char* to) { return move(a, from, b, to, 0); }
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  return move(a, from, b, to, flags);
}

int linkat(int a, const char* from, int b, const char* to, int flags) {
  char one[PATH_MAX], two[PATH_MAX];
  struct call call;
  if (!watches(b, to, two)) return REAL(linkat)(a, from, b, to, flags);
  if (!enter(&call, LINK, two)) return -1;
  const int done = REAL(linkat)(a, from, b, to, flags);
  if (!done && watches(a, from, one)) record(LINK, 0, 0, one, two, 0, 0);
  leave(&call);
  return done;
}
int link(const char* from, const char* to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char* target, int dir, const char* path) {
  char where[PATH_MAX];
  struct call call;
  if (!watches(dir, path, where)) return REAL(symlinkat)(target, dir, path);
  if (!enter(&call, SYMLINK, where)) return -1;
  const int done = REAL(symlinkat)(target, dir, path);
  leave(&call);
  return done;
}
int symlink(const char* target, const char* path) { return symlinkat(target, AT_FDCWD, path); }

int unlinkat(int dir, const char* path, int flags) {
  char where[PATH_MAX];
  struct call call;
  if (!watches(dir, path, where)) return REAL(unlinkat)(dir, path, flags);
  if (!enter(&call, UNLINK, where)) return -1;
  const int done = REAL(unlinkat)(dir, path, flags);
  if (!done) record(UNLINK, 0, 0, where, 0, 0, 0);
  leave(&call);
  return done;
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) {
  const int done = unlinkat(AT_FDCWD, path, 0);
  return done && (errno == EISDIR || errno == EPERM) ? rmdir(path) : done;
}

int mkdirat(int dir, const char* path, mode_t permissions) {
  char where[PATH_MAX];
  struct call call;
  if (!watches(dir, path, where)) return REAL(mkdirat)(dir, path, permissions);
  struct stat info;
  const int kept = errno;
  if (stat(where, &info) == 0) { /* changes nothing */
    errno = kept;
    return REAL(mkdirat)(dir, path, permissions);
  }
  errno = kept;
  if (!enter(&call, MKDIR, where)) return -1;
  const int done = REAL(mkdirat)(dir, path, permissions);
  if (!done) record(MKDIR, 0, 0, where, 0, 0, 0);
  leave(&call);
  return done;
}
int mkdir(const char* path, mode_t permissions) { return mkdirat(AT_FDCWD, path, permissions); }

int fchmodat(int dir, const char* path, mode_t permissions, int flags) {
  char where[PATH_MAX];
  struct call call;
  if (!watches(dir, path, where)) return REAL(fchmodat)(dir, path, permissions, flags);
  if (!enter(&call, MODE, where)) return -1;
  const int done = REAL(fchmodat)(dir, path, permissions, flags);
  leave(&call);
  return done;
}
int chmod(const char* path, mode_t permissions) { return fchmodat(AT_FDCWD, path, permissions, 0); }
int fchmod(int fd, mode_t permissions) {
  char where[PATH_MAX];
  struct call call;
  if (!watches_fd(fd, where)) return REAL(fchmod)(fd, permissions);
  if (!enter(&call, MODE, where)) return -1;
  const int done = REAL(fchmod)(fd, permissions);
  leave(&call);
  return done;
}

/* ---- What Python's ctypes and others call by number */

long syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (int k = 0; k < 6; ++k) a[k] = va_arg(arguments, long);
  va_end(arguments);
  if (mode != OFF && number == SYS_renameat2)
    return renameat2((int)a[0], (const char*)a[1], (int)a[2], (const char*)a[3], (unsigned)a[4]);
  if (mode != OFF && number == SYS_openat2) {
    const struct open_how* how = (const struct open_how*)a[2];
    return open_watched((int)a[0], (const char*)a[1], (int)how->flags, how, open_how);
  }
  return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- The wall clock */

static long long stepped(void) {
  if (!clock_before && !clock_after) return 0;
  const long read = __atomic_add_fetch(&board->clock_reads, 1, __ATOMIC_SEQ_CST);
  return read < clock_turn ? clock_before : clock_after;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int done = REAL(clock_gettime)(clock, now);
  if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += stepped();
  return done;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  const int done = REAL(gettimeofday)(now, zone);
  if (!done) now->tv_sec += stepped();
  return done;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
