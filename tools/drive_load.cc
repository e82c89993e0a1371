#include "tools/drive_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <memory>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "kinetic/io.h"
#include "kinetic/kinetic_drive.h"
#include "tools/process_use.h"

namespace pinstripe {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);
constexpr std::string_view kPrefix = "pinstripe-bench/";
constexpr std::string_view kPrefixEnd = "pinstripe-bench0";  // '0' follows '/'

constexpr std::pair<DriveLoadOp, std::string_view> kOps[] = {
    {DriveLoadOp::kPut, "put"},         {DriveLoadOp::kGet, "get"},
    {DriveLoadOp::kMissing, "missing"}, {DriveLoadOp::kHead, "head"},
    {DriveLoadOp::kNext, "next"},       {DriveLoadOp::kPrevious, "previous"},
    {DriveLoadOp::kRange, "range"},     {DriveLoadOp::kDelete, "delete"},
};
constexpr std::pair<DriveLoadOrder, std::string_view> kOrders[] = {
    {DriveLoadOrder::kSequential, "seq"},
    {DriveLoadOrder::kRandom, "rand"},
    {DriveLoadOrder::kReverse, "reverse"},
};

template <typename Table>
auto ParseName(const Table& table, std::string_view what, std::string_view name)
    -> Result<decltype(table[0].first)> {
  std::string known;
  for (const auto& [value, its_name] : table) {
    if (name == its_name) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", its_name);
  }
  return Fail(EINVAL, "there is no {} '{}'; there are {}", what, name, known);
}

template <typename Table, typename Value>
std::string_view NameIn(const Table& table, Value value) {
  return std::find_if(std::begin(table), std::end(table),
                      [&](const auto& entry) { return entry.first == value; })
      ->second;
}

// The order in which `count` keys are used.
std::vector<uint32_t> InOrder(DriveLoadOrder order, uint32_t count, Runtime& runtime) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order == DriveLoadOrder::kReverse) std::reverse(numbers.begin(), numbers.end());
  if (order == DriveLoadOrder::kRandom) {
    for (uint32_t i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[runtime.Random() % i]);
  }
  return numbers;
}

constexpr Duration kConnectTimeout = std::chrono::seconds(5);

std::string Key(uint32_t number) { return fmt::format("{}{:08}", kPrefix, number); }

double Quantile(std::vector<float>& sorted, double part) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * sorted.size()))];
}

class Bench {
 public:
  Bench(Runtime& runtime, const DriveLoad& load)
      : runtime_(runtime), load_(load), io_(runtime, {.threads = load.connections}) {}

  Status Run(const std::function<void(const DriveLoadResult&)>& measured) {
    const DriveFactory factory = RealDriveFactory(io_, kConnectTimeout);
    for (int i = 0; i < load_.connections; ++i) {
      drives_.push_back(TRY(factory(load_.drive, "", nullptr)));
    }
    TRY(RemoveAll());
    const Status status = RunAll(measured);
    const Status removed = RemoveAll();
    return status.ok() ? removed : status;
  }

 private:
  // Bytes that an operation moved, or its failure.
  using Done = std::function<void(Result<uint64_t>)>;

  // Keeps `depth` operations going on each connection until the time is over or `most` were
  // started.
  struct Flow {
    std::function<void(Drive&, uint64_t, Done)> start;
    uint64_t most = UINT64_MAX;
    Time end{};
    std::atomic<uint64_t> started = 0;
    std::atomic<uint64_t> done = 0;
    std::atomic<uint64_t> bytes = 0;
    std::atomic<int> running = 0;
    std::shared_ptr<Signal> finished;
    Mutex mutex;
    Status failure GUARDED_BY(mutex);  // the first
    std::vector<std::vector<float>>
        microseconds;  // per connection: its callbacks come on one thread
  };

  Status RunAll(const std::function<void(const DriveLoadResult&)>& measured) {
    for (const uint32_t bytes : load_.value_bytes) {
      const uint32_t records = load_.records != 0
                                   ? load_.records
                                   : static_cast<uint32_t>(std::clamp<uint64_t>(
                                         (uint64_t{1} << 30) / std::max(bytes, 1u), 256, 100'000));
      Buffer buffer(bytes);
      for (size_t i = 0; i < bytes; ++i)
        buffer.data()[i] = static_cast<std::byte>(runtime_.Random());
      tag_ = Writer().U32(Crc32c(buffer)).Take();
      value_ = SharedBytes(std::move(buffer));
      present_ = false;
      for (const DriveLoadOrder order : load_.orders) {
        order_ = InOrder(order, records, runtime_);
        for (const DriveLoadOp op : load_.ops) {
          if (op != DriveLoadOp::kPut && !std::exchange(present_, true)) TRY(Fill());
          DriveLoadResult result = TRY(Measure(op));
          result.order = order;
          result.value_bytes = bytes;
          measured(result);
          if (op == DriveLoadOp::kDelete) present_ = false;
        }
      }
      TRY(RemoveAll());
    }
    return {};
  }

  // Every key once, unmeasured.
  Status Fill() {
    auto flow = NewFlow(DriveLoadOp::kPut);
    flow->most = order_.size();
    flow->end = Time::max();
    return Wait(flow);
  }

  Result<DriveLoadResult> Measure(DriveLoadOp op) {
    auto flow = NewFlow(op);
    if (op == DriveLoadOp::kDelete) flow->most = order_.size();
    const auto daemon_before = UseOf(load_.daemon);
    const double cpu_before = OwnCpuSeconds();
    const Time begin = runtime_.Now();
    flow->end = begin + load_.length;
    TRY(Wait(flow));
    DriveLoadResult result;
    result.op = op;
    result.seconds = std::chrono::duration<double>(runtime_.Now() - begin).count();
    result.client_cpu_seconds = OwnCpuSeconds() - cpu_before;
    result.operations = flow->done;
    result.bytes = flow->bytes;
    if (const auto daemon = UseOf(load_.daemon); daemon && daemon_before) {
      const ProcessUse used = *daemon - *daemon_before;
      result.daemon_cpu_seconds = used.cpu_seconds;
      result.daemon_written_bytes = used.written_bytes;
    }
    std::vector<float> all;
    for (const auto& some : flow->microseconds) all.insert(all.end(), some.begin(), some.end());
    std::sort(all.begin(), all.end());
    result.p50 = Quantile(all, 0.5);
    result.p99 = Quantile(all, 0.99);
    result.p999 = Quantile(all, 0.999);
    return result;
  }

  std::shared_ptr<Flow> NewFlow(DriveLoadOp op) {
    auto flow = std::make_shared<Flow>();
    flow->start = [this, op](Drive& drive, uint64_t number, Done done) {
      Start(drive, op, order_[number % order_.size()], std::move(done));
    };
    flow->finished = runtime_.NewSignal();
    flow->microseconds.resize(drives_.size());
    return flow;
  }

  Status Wait(const std::shared_ptr<Flow>& flow) {
    flow->running = static_cast<int>(drives_.size()) * load_.depth;
    for (size_t connection = 0; connection < drives_.size(); ++connection) {
      for (int i = 0; i < load_.depth; ++i) Next(flow, connection);
    }
    flow->finished->WaitUntil(Time::max());
    const MutexLock lock(flow->mutex);
    return flow->failure;
  }

  void Next(const std::shared_ptr<Flow>& flow, size_t connection) {
    const uint64_t number = flow->started++;
    if (number >= flow->most) return End(flow);
    const Time asked = runtime_.Now();
    flow->start(*drives_[connection], number,
                [this, flow, connection, asked](Result<uint64_t> bytes) {
                  const Time now = runtime_.Now();
                  if (!bytes) {
                    const MutexLock lock(flow->mutex);
                    if (flow->failure.ok()) flow->failure = bytes.error();
                    flow->most = 0;
                    return End(flow);
                  }
                  flow->microseconds[connection].push_back(
                      std::chrono::duration<float, std::micro>(now - asked).count());
                  flow->bytes += *bytes;
                  ++flow->done;
                  if (now >= flow->end) return End(flow);
                  Next(flow, connection);
                });
  }

  static void End(const std::shared_ptr<Flow>& flow) {
    if (--flow->running == 0) flow->finished->Set();
  }

  void Start(Drive& drive, DriveLoadOp op, uint32_t number, Done done) {
    const Time deadline = runtime_.Now() + kPatience;
    const auto moved = [done](const Result<Record>& record) {
      done(record ? Result<uint64_t>(record->value.size()) : tl::unexpected(record.error()));
    };
    switch (op) {
      case DriveLoadOp::kPut:
        return drive.Put(
            {.key = Key(number), .value = value_, .tag = tag_, .durability = load_.durability},
            deadline, [done, size = value_.size()](const Status& status) {
              done(status.ok() ? Result<uint64_t>(size) : tl::unexpected(status));
            });
      case DriveLoadOp::kGet: return drive.Get(Key(number), {}, deadline, moved);
      case DriveLoadOp::kMissing:
        return drive.Get(Key(number) + "-", {}, deadline, [done](const Result<Record>& record) {
          if (record) return done(Fail(EIO, "the drive has a key that was never put"));
          if (record.error().code() == ENOENT) return done(0);
          done(tl::unexpected(record.error()));
        });
      case DriveLoadOp::kHead:
        return drive.Head(Key(number), deadline, [done](const Result<RecordHead>& head) {
          done(head ? Result<uint64_t>(0) : tl::unexpected(head.error()));
        });
      case DriveLoadOp::kNext:
      case DriveLoadOp::kPrevious: {
        auto* const kinetic = dynamic_cast<KineticDrive*>(&drive);
        if (kinetic == nullptr) {
          return done(Fail(ENOTSUP, "{} has no operation '{}'", drive.name(), NameOf(op)));
        }
        // From just beside the key, so that it is this key that is found.
        const bool previous = op == DriveLoadOp::kPrevious;
        std::string beside = previous      ? Key(number) + "-"
                             : number == 0 ? std::string(kPrefix)
                                           : Key(number - 1);
        return kinetic->GetNeighbour(std::move(beside), previous, deadline,
                                     [done](const Result<KeyedRecord>& found) {
                                       done(found ? Result<uint64_t>(found->record.value.size())
                                                  : tl::unexpected(found.error()));
                                     });
      }
      case DriveLoadOp::kRange:
        return drive.Range(Key(number), std::string(kPrefixEnd), kMaxRangeKeys, /*reverse=*/false,
                           deadline, [done](const Result<std::vector<std::string>>& keys) {
                             done(keys ? Result<uint64_t>(0) : tl::unexpected(keys.error()));
                           });
      case DriveLoadOp::kDelete:
        return drive.Delete(Key(number), Expected::Any(), load_.durability, deadline,
                            [done](const Status& status) {
                              done(status.ok() ? Result<uint64_t>(0) : tl::unexpected(status));
                            });
    }
  }

  // The records that we put, or that somebody before us put who was interrupted.
  Status RemoveAll() {
    std::string first(kPrefix);
    while (true) {
      const auto keys = std::make_shared<Result<std::vector<std::string>>>();
      const auto listed = runtime_.NewSignal();
      drives_[0]->Range(first, std::string(kPrefixEnd), kMaxRangeKeys, /*reverse=*/false,
                        runtime_.Now() + kPatience,
                        [keys, listed](Result<std::vector<std::string>> found) {
                          *keys = std::move(found);
                          listed->Set();
                        });
      listed->WaitUntil(Time::max());
      const std::vector<std::string> found = TRY(std::move(*keys));
      if (found.empty()) return {};
      auto flow = NewFlow(DriveLoadOp::kDelete);
      flow->most = found.size();
      flow->end = Time::max();
      flow->start = [&](Drive& drive, uint64_t number, Done done) {
        drive.Delete(found[number], Expected::Any(), Durability::kWriteBack,
                     runtime_.Now() + kPatience, [done](const Status& status) {
                       done(status.ok() ? Result<uint64_t>(0) : tl::unexpected(status));
                     });
      };
      TRY(Wait(flow));
      first = found.back();
    }
  }

  Runtime& runtime_;
  const DriveLoad& load_;
  KineticIo io_;
  std::vector<std::unique_ptr<Drive>> drives_;
  std::vector<uint32_t> order_;
  SharedBytes value_;
  std::string tag_;
  bool present_ = false;  // whether every key has its record
};

}  // namespace

Result<DriveLoadOp> ParseDriveLoadOp(std::string_view name) {
  return ParseName(kOps, "operation", name);
}
Result<DriveLoadOrder> ParseDriveLoadOrder(std::string_view name) {
  return ParseName(kOrders, "order of keys", name);
}
std::string_view NameOf(DriveLoadOp op) { return NameIn(kOps, op); }
std::string_view NameOf(DriveLoadOrder order) { return NameIn(kOrders, order); }

Result<uint32_t> ParseValueSize(std::string_view text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const uint64_t factor = unit.empty() || unit == "B"    ? 1
                          : unit == "KiB" || unit == "K" ? 1 << 10
                          : unit == "MiB" || unit == "M" ? 1 << 20
                                                         : 0;
  if (error != std::errc() || factor == 0 || number > kMaxValueBytes / factor) {
    return Fail(EINVAL, "'{}' is not a size of a value: write 120B or 4KiB, up to 1MiB", text);
  }
  return static_cast<uint32_t>(number * factor);
}

Status RunDriveLoad(Runtime& runtime, const DriveLoad& load,
                    const std::function<void(const DriveLoadResult&)>& measured) {
  return Bench(runtime, load).Run(measured);
}

}  // namespace pinstripe
