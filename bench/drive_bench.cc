// drive_bench ADDRESS [VALUE-KIB [WINDOW [SECONDS [PID]]]]: puts, then gets of records on one
// Kinetic drive, and what each GB cost this process in CPU time; and what it cost the daemon, and
// how many bytes that wrote to its disk for each byte put, where PID is a pinstriped on this
// machine.
//
// Keys begin with "drive-bench/" and are removed at the end.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/real_runtime.h"
#include "drive/kinetic_drive.h"

namespace pinstripe {
namespace {

constexpr int kKeys = 256;
constexpr Duration kPatience = std::chrono::seconds(30);

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// What a process has used so far: /proc/PID/stat and /proc/PID/io.
struct ProcessUse {
  double cpu_seconds = 0;
  double written_bytes = 0;  // to the disk, or on their way there
};
ProcessUse UseOf(int pid) {
  ProcessUse use;
  if (pid == 0) return use;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 2)));
  std::string field;
  for (int i = 3; i < 14; ++i)
    fields >> field;  // the fields are numbered from 1; utime is the 14th
  double user = 0;
  double system = 0;
  fields >> user >> system;
  use.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream io(fmt::format("/proc/{}/io", pid));
  double count = 0;
  while (io >> field >> count) {
    if (field == "write_bytes:") use.written_bytes = count;
  }
  return use;
}

std::string Key(int64_t number, int64_t keys = kKeys) {
  return fmt::format("drive-bench/{}", number % keys);
}

// Keeps `window` operations going until the time is over, then waits for those that are.
class Pump {
 public:
  // Starts the operation of this number; must call the callback it is given.
  using Start = std::function<void(int64_t number, StatusCallback done)>;

  Pump(Runtime& runtime, Start start) : runtime_(runtime), start_(std::move(start)) {}

  int64_t Run(int window, Time end) {
    end_ = end;
    outstanding_ = window;
    for (int i = 0; i < window; ++i) Next();
    finished_->WaitUntil(Time::max());
    return done_;
  }

 private:
  void Next() {
    start_(started_++, [this](const Status& status) {
      if (!status.ok()) {
        fmt::print(stderr, "drive_bench: {}\n", status.message());
        std::exit(1);
      }
      ++done_;
      if (runtime_.Now() < end_) return Next();
      if (--outstanding_ == 0) finished_->Set();
    });
  }

  Runtime& runtime_;
  const Start start_;
  Time end_{};
  std::atomic<int64_t> started_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::atomic<int> outstanding_ = 0;
  const std::shared_ptr<Signal> finished_ = runtime_.NewSignal();
};

struct Load {
  size_t value_bytes = 0;
  int window = 0;  // operations under way
  Duration length{};
  int daemon = 0;  // its process, when it is on this machine
};

int64_t Measure(Runtime& runtime, const Load& load, std::string_view name, Pump::Start start) {
  Pump pump(runtime, std::move(start));
  const ProcessUse daemon_before = UseOf(load.daemon);
  const Time begin = runtime.Now();
  const double cpu_before = CpuSeconds();
  const int64_t done = pump.Run(load.window, begin + load.length);
  const auto operations = static_cast<double>(done);
  const double cpu = CpuSeconds() - cpu_before;
  const double seconds = std::chrono::duration<double>(runtime.Now() - begin).count();
  const double gigabytes = operations * static_cast<double>(load.value_bytes) / 1e9;
  fmt::print("{:5} {:9.0f} op/s {:8.1f} MB/s  client {:.3f} CPU s/GB {:6.2f} us/op", name,
             operations / seconds, 1e3 * gigabytes / seconds, cpu / gigabytes,
             1e6 * cpu / operations);
  if (load.daemon != 0) {
    const ProcessUse daemon = UseOf(load.daemon);
    const double daemon_cpu = daemon.cpu_seconds - daemon_before.cpu_seconds;
    fmt::print("  daemon {:.3f} CPU s/GB {:6.2f} us/op, {:.3f} bytes written per byte",
               daemon_cpu / gigabytes, 1e6 * daemon_cpu / operations,
               (daemon.written_bytes - daemon_before.written_bytes) / gigabytes / 1e9);
  }
  fmt::print("\n");
  return done;
}

void Run(const std::string& address, const Load& load) {
  SetLogLevel(LogLevel::kError);
  RealRuntime runtime;
  KineticIo io(runtime);
  KineticDrive drive(io, {.name = "drive", .addresses = {address}, .key = "asdfasdf"});
  Buffer buffer(load.value_bytes);
  for (size_t i = 0; i < load.value_bytes; ++i) buffer.data()[i] = static_cast<std::byte>(i * 31);
  const std::string tag = Writer().U32(Crc32c(buffer)).Take();
  const SharedBytes value(std::move(buffer));
  const auto deadline = [&] { return runtime.Now() + kPatience; };

  const int64_t put = Measure(runtime, load, "put", [&](int64_t number, StatusCallback done) {
    drive.Put({.key = Key(number), .value = value, .tag = tag}, deadline(), std::move(done));
  });
  const int64_t keys = std::min<int64_t>(put, kKeys);
  for (const bool check : {false, true}) {
    Measure(runtime, load, check ? "get+c" : "get", [&](int64_t number, StatusCallback done) {
      drive.Get(Key(number, keys), {}, deadline(),
                [done = std::move(done), check](const Result<Record>& record) {
                  if (!record) return done(record.error());
                  if (check && record->tag != Writer().U32(Crc32c(record->value)).Take()) {
                    return done(Fail(EBADMSG, "a value is damaged"));
                  }
                  done({});
                });
    });
  }
  Measure(runtime, load, "head", [&](int64_t number, StatusCallback done) {
    drive.Head(Key(number, keys), deadline(),
               [done = std::move(done)](const Result<RecordHead>& head) {
                 done(head ? Status() : head.error());
               });
  });
  std::atomic<int> left = kKeys;
  const auto removed = runtime.NewSignal();
  for (int i = 0; i < kKeys; ++i) {
    drive.Delete(Key(i), Expected::Any(), Durability::kWriteBack, deadline(), [&](const Status&) {
      if (--left == 0) removed->Set();
    });
  }
  removed->WaitUntil(Time::max());
}

}  // namespace
}  // namespace pinstripe

int main(int argc, char** argv) {
  const auto number = [&](int index, long fallback) {
    return argc > index ? std::strtol(argv[index], nullptr, 10) : fallback;
  };
  const long kib = number(2, 1024);
  const long window = number(3, 16);
  const long seconds = number(4, 3);
  const long daemon = number(5, 0);
  if (argc < 2 || kib < 0 || kib > 1024 || window < 1 || seconds < 1) {
    fmt::print(stderr, "usage: drive_bench ADDRESS [VALUE-KIB 0..1024 [WINDOW [SECONDS [PID]]]]\n");
    return 2;
  }
  pinstripe::Run(argv[1], {.value_bytes = static_cast<size_t>(kib) << 10,
                           .window = static_cast<int>(window),
                           .length = std::chrono::seconds(seconds),
                           .daemon = static_cast<int>(daemon)});
}
