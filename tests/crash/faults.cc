// A library for LD_PRELOAD that spoils for one process what its disk and its clock tell it, while
// it runs: calls on the files of a drive take a hundred times as long, fail, or do a part of what
// they were asked for, and the time of day jumps.
//
//   LD_PRELOAD=libfaults.so PINSTRIPE_FAULTS=FILE pinstriped ...
//
// FILE is made by who wants the faults, and changed while the process runs: numbers of eight bytes
// in the order of `Orders` below (tests/crash/chaos.py writes them). The last of them count what
// was done, so that a test knows that it did something. Without a FILE nothing is changed.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct Orders {
  std::atomic<int64_t> clock_nanoseconds;  // added to the time of day
  std::atomic<int64_t> slowness;           // how many times as long a disk takes; 0: as it is
  std::atomic<int64_t> failing_reads;      // of 1000 reads of segments: EIO
  std::atomic<int64_t> failing_writes;     // of 1000 writes to segments: EIO
  std::atomic<int64_t> failing_syncs;      // of 1000 syncs of segments: EIO
  std::atomic<int64_t> partial;            // of 1000 reads and writes of segments: only a part
  std::atomic<int64_t> clocks_changed;     // counts, from here on
  std::atomic<int64_t> slowed;
  std::atomic<int64_t> failed;
  std::atomic<int64_t> cut;
};
static_assert(sizeof(Orders) == 80);

constexpr int64_t kBillion = 1'000'000'000;
constexpr int64_t kQuickDisk = 100'000;  // nanoseconds: for what the page cache has answered

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
// Calls `name` as the C library has it.
#define REAL(name)                                          \
  ([] {                                                     \
    static auto* const found = Real<decltype(name)>(#name); \
    return found;                                           \
  }())

Orders* Map() {
  const char* path = getenv("PINSTRIPE_FAULTS");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* at = mmap(nullptr, sizeof(Orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<Orders*>(at);
}

Orders* Given() {
  static Orders* const orders = Map();
  return orders;
}

int64_t Steady() {
  timespec now{};
  REAL(clock_gettime)(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kBillion + now.tv_nsec;
}

bool IsBelow(int fd, const char* directory) {
  char link[40] = "/proc/self/fd/";
  size_t end = strlen(link);
  char digits[12];
  int count = 0;
  for (int rest = fd; rest > 0 || count == 0; rest /= 10) digits[count++] = '0' + rest % 10;
  while (count > 0) link[end++] = digits[--count];
  link[end] = 0;
  char path[4096];
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return false;
  path[size] = 0;
  return strstr(path, directory) != nullptr;
}

bool Happens(const std::atomic<int64_t>& per_thousand) {
  const int64_t chance = per_thousand.load();
  if (chance == 0) return false;
  thread_local uint64_t state = static_cast<uint64_t>(Steady());
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<int64_t>((state >> 33) % 1000) < chance;
}

// Makes `call` as often slower as is asked for.
template <typename Call>
auto Slowly(int fd, Call call) {
  Orders* const orders = Given();
  const int64_t slowness = orders == nullptr ? 0 : orders->slowness.load();
  if (slowness == 0 || !IsBelow(fd, "/drives/")) return call();
  const int64_t begin = Steady();
  const auto result = call();
  const int code = errno;
  const int64_t pause = std::max(Steady() - begin, kQuickDisk) * (slowness - 1);
  const timespec rest{.tv_sec = pause / kBillion, .tv_nsec = pause % kBillion};
  nanosleep(&rest, nullptr);
  ++orders->slowed;
  errno = code;
  return result;
}

template <typename Call>
int Synced(int fd, Call call) {
  Orders* const orders = Given();
  if (orders != nullptr && Happens(orders->failing_syncs) && IsBelow(fd, "/segments/")) {
    ++orders->failed;
    errno = EIO;
    return -1;
  }
  return Slowly(fd, call);
}

// Of what is to be read or written in one call: all of it or a part; or it fails.
template <typename Call>
ssize_t Spoiled(int fd, const iovec* pieces, int count, bool writes, Call call) {
  Orders* const orders = Given();
  if (orders == nullptr ||
      (orders->failing_reads == 0 && orders->failing_writes == 0 && orders->partial == 0) ||
      !IsBelow(fd, "/segments/")) {
    return Slowly(fd, [&] { return call(pieces, count); });
  }
  if (Happens(writes ? orders->failing_writes : orders->failing_reads)) {
    ++orders->failed;
    errno = EIO;
    return -1;
  }
  if (Happens(orders->partial)) {
    // The first half of the pieces, or of the only one.
    iovec first = pieces[0];
    if (count == 1) first.iov_len = (first.iov_len + 1) / 2;
    if (count > 1 || first.iov_len < pieces[0].iov_len) ++orders->cut;
    return count > 1 ? call(pieces, (count + 1) / 2) : call(&first, 1);
  }
  return call(pieces, count);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = REAL(clock_gettime)(clock, now);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  Orders* const orders = Given();
  const int64_t offset = orders == nullptr ? 0 : orders->clock_nanoseconds.load();
  if (offset == 0) return 0;
  const int64_t told = now->tv_sec * kBillion + now->tv_nsec + offset;
  *now = {.tv_sec = told / kBillion, .tv_nsec = told % kBillion};
  ++orders->clocks_changed;
  return 0;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec exact{};
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  *now = {.tv_sec = exact.tv_sec, .tv_usec = exact.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* into) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}

ssize_t pread(int fd, void* into, size_t size, off_t offset) {
  const iovec all{.iov_base = into, .iov_len = size};
  return Spoiled(fd, &all, 1, false, [&](const iovec* pieces, int) {
    return REAL(pread)(fd, pieces->iov_base, pieces->iov_len, offset);
  });
}
ssize_t preadv(int fd, const iovec* pieces, int count, off_t offset) {
  return Spoiled(fd, pieces, count, false,
                 [&](const iovec* some, int n) { return REAL(preadv)(fd, some, n, offset); });
}
ssize_t preadv2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  Orders* const orders = Given();
  if (orders != nullptr && orders->slowness != 0 && (flags & RWF_NOWAIT) != 0) {
    errno = EAGAIN;  // nothing of it is in memory
    return -1;
  }
  return Spoiled(fd, pieces, count, false, [&](const iovec* some, int n) {
    return REAL(preadv2)(fd, some, n, offset, flags);
  });
}
ssize_t pwrite(int fd, const void* from, size_t size, off_t offset) {
  const iovec all{.iov_base = const_cast<void*>(from), .iov_len = size};
  return Spoiled(fd, &all, 1, true, [&](const iovec* pieces, int) {
    return REAL(pwrite)(fd, pieces->iov_base, pieces->iov_len, offset);
  });
}
ssize_t pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  return Spoiled(fd, pieces, count, true,
                 [&](const iovec* some, int n) { return REAL(pwritev)(fd, some, n, offset); });
}
int fdatasync(int fd) {
  return Synced(fd, [&] { return REAL(fdatasync)(fd); });
}
int fsync(int fd) {
  return Synced(fd, [&] { return REAL(fsync)(fd); });
}

// The same calls under the names that programs with large files use.
ssize_t pread64(int fd, void* into, size_t size, off64_t offset) __attribute__((alias("pread")));
ssize_t preadv64(int fd, const iovec* pieces, int count, off64_t offset)
    __attribute__((alias("preadv")));
ssize_t preadv64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags)
    __attribute__((alias("preadv2")));
ssize_t pwrite64(int fd, const void* from, size_t size, off64_t offset)
    __attribute__((alias("pwrite")));
ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t offset)
    __attribute__((alias("pwritev")));

}  // extern "C"
