#include "store/starts.h"

#include <algorithm>
#include <chrono>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"
#include "store/machine.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMagic = "pinstripe starts\n";
constexpr uint32_t kFormat = 1;
constexpr size_t kChecksumBytes = 4;
constexpr uint8_t kClean = 1;
constexpr uint64_t kTooManyMilliseconds = uint64_t{1} << 42;  // more than a hundred years

// Where one is not known neither is true.
bool SameBoot(const Starts& before, const std::string& now) {
  return !before.boot_id.empty() && before.boot_id == now;
}
bool OtherBoot(const Starts& before, const std::string& now) {
  return !before.boot_id.empty() && !now.empty() && before.boot_id != now;
}

// Of one that is not stopped and goes on, as far as this can tell.
bool HasEnded(const Starts& before) {
  return before.run == Starts::Run::kEnded || before.run == Starts::Run::kEndedUntold;
}

bool IsCopy(const Starts& before, const FileIdentity& file) {
  return before.count > 0 && !HasEnded(before) && before.file != file;
}

bool AreDifferent(const std::vector<DriveStart>& starts) {
  std::vector<uint64_t> ids;
  for (const DriveStart& start : starts) ids.push_back(start.id);
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

}  // namespace

std::string EncodeStarts(const Starts& starts) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(starts.forgot_at);
  Writer writer;
  writer.Raw(kMagic).U32(kFormat).Text(starts.boot_id).U8(static_cast<uint8_t>(starts.run));
  writer.U64(starts.file.inode).U64(starts.file.born);
  writer.U64(static_cast<uint64_t>(milliseconds.count())).U64(starts.count);
  writer.Varint(starts.list.size());
  for (const DriveStart& start : starts.list) writer.U64(start.id).U8(start.clean ? kClean : 0);
  writer.U32(Crc32c(AsBytes(writer.bytes())));
  return writer.Take();
}

Result<Starts> DecodeStarts(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.Raw(kMagic.size()) != kMagic) {
    return Fail(EBADMSG, "it does not begin as such a file does");
  }
  const uint32_t format = reader.U32();
  if (!reader.ok() || reader.left() < kChecksumBytes) return Fail(EBADMSG, "it ends too early");
  // Where every later format will have it, too: damage keeps nobody from serving the drive.
  const size_t covered = bytes.size() - kChecksumBytes;
  if (Reader(bytes.substr(covered)).U32() != Crc32c(AsBytes(bytes.substr(0, covered)))) {
    return Fail(EBADMSG, "it has a wrong checksum");
  }
  if (format > kFormat) {
    return Fail(ENOTSUP, "it has format {}, this program knows up to {}; use the newer pinstriped",
                format, kFormat);
  }
  if (format != kFormat) return Fail(EBADMSG, "there is no format {}", format);
  Starts starts;
  starts.boot_id = reader.Text();
  if (starts.boot_id.size() > kMaxBootIdBytes) reader.MarkBad();
  const uint8_t run = reader.U8();
  if (run > static_cast<uint8_t>(Starts::Run::kEndedUntold)) reader.MarkBad();
  starts.run = static_cast<Starts::Run>(run);
  starts.file.inode = reader.U64();
  starts.file.born = reader.U64();
  const uint64_t milliseconds = reader.U64();
  if (milliseconds < kTooManyMilliseconds) {
    starts.forgot_at = std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
  } else {
    reader.MarkBad();
  }
  starts.count = reader.U64();
  const uint64_t listed = reader.Varint();
  if (listed != std::min<uint64_t>(starts.count, kMaxDriveStarts)) reader.MarkBad();
  for (uint64_t i = 0; i < listed && reader.ok(); ++i) {
    const uint64_t id = reader.U64();
    const uint8_t flags = reader.U8();
    if (id == 0 || flags > kClean) reader.MarkBad();
    starts.list.push_back({id, flags == kClean});
  }
  if (!AreDifferent(starts.list)) reader.MarkBad();
  reader.U32();
  TRY(reader.Finish("the list of a drive's starts"));
  return starts;
}

std::string WhyUnclean(const std::optional<Starts>& before, const StartSituation& now) {
  if (!before) return "nothing says how its last run ended";
  if (before->count == 0) return now.lost;  // new
  if (IsCopy(*before, now.file)) return "it is a copy, made while the drive was served";
  switch (before->run) {
    case Starts::Run::kEnded:
    case Starts::Run::kEndedUntold: return now.lost;
    case Starts::Run::kSyncFailed: return "its disk had failed to take what was written";
    case Starts::Run::kUnderWay:
    case Starts::Run::kUntold: break;
  }
  if (OtherBoot(*before, now.boot_id)) return "the machine went down without stopping it";
  if (!SameBoot(*before, now.boot_id)) {
    return "it was not stopped, and nothing says whether the machine went down since";
  }
  if (now.kernel_kept_pages) return now.lost;  // only the process was killed
  return "it was not stopped, and the kernel has dropped what it kept of its file system since";
}

bool KernelMayShowMore(const std::optional<Starts>& before, const std::string& boot_id) {
  if (!before) return true;
  return !HasEnded(*before) && !OtherBoot(*before, boot_id);
}

Starts NextStart(const std::optional<Starts>& before, const StartSituation& now) {
  const bool clean = WhyUnclean(before, now).empty();
  Starts next = before.value_or(Starts());
  const Duration uptime = std::chrono::ceil<std::chrono::milliseconds>(now.uptime);
  // What a copy does not have may have been answered until now, wherever that was.
  const bool older_than_machine =
      before && OtherBoot(*before, now.boot_id) && !IsCopy(*before, now.file);
  if (older_than_machine) {
    next.forgot_at = {};
  } else {
    next.forgot_at = clean ? std::min(next.forgot_at, uptime) : uptime;
  }
  next.boot_id = now.boot_id;
  next.run = Starts::Run::kUntold;
  // What nobody was told of takes no place in the list: else a program that is started again and
  // again, and never serves, would push out what others know the drive by.
  const bool untold =
      before && (before->run == Starts::Run::kUntold || before->run == Starts::Run::kEndedUntold);
  if (untold && !next.list.empty()) {
    next.list.front() = {now.new_id, clean && next.list.front().clean};
    return next;
  }
  ++next.count;
  next.list.insert(next.list.begin(), {now.new_id, clean});
  if (next.list.size() > kMaxDriveStarts) next.list.resize(kMaxDriveStarts);
  return next;
}

Duration UpOf(const Starts& starts, Duration uptime) {
  return std::max(Duration{}, uptime - starts.forgot_at);
}

}  // namespace pinstripe
