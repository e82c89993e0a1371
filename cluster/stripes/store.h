// Stripes: a block of bytes, erasure-coded into k+m shards on k+m drives.
//
// Stripes are written once: a shard's key holds object, block, write id and shard index, and a
// write id is never used again. So no shard is ever overwritten, and a write that dies half-way can
// hurt nothing that was acknowledged before it.
//
// The promises:
//   - A write is acknowledged when at least Options::min_redundancy + k shards (k+1 by default) are
//     on distinct drives. A shard whose home is away goes to a spare first; the answer says where.
//   - What came with sums (StripeBuffer::sums) is stored with them, or not at all.
//   - A read returns exactly the bytes that were written, or fails: every byte handed up was
//     checked against the CRC32C of its page, and that against the name of the shard. Only the
//     cells, or where that is asked for the pages, that hold the wanted bytes are fetched. A
//     missing, slow or damaged shard, or one of another name that a drive has mixed up, is replaced
//     by any k others.
//   - An expected shard that is not there is a loss, never a hole: too many of them are EIO, and
//     the message names drives and reasons. A shard found damaged or missing on a drive that
//     answers is written again at once, counted and logged.
// tests/sim/stripe_store_sim_test.cc holds the class to them.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "cluster/stripes/range_sums.h"
#include "cluster/stripes/write_id.h"
#include "drive/drive.h"
#include "erasure/codec.h"

namespace pinstripe {

inline constexpr uint32_t kShardPageBytes = 4 << 10;  // what has a checksum of its own
inline constexpr uint32_t kCellBytes = 64 << 10;
inline constexpr uint32_t kMaxShardBytes = 1 << 20;

// How blocks are coded. k = 1 is replication. shard_bytes is a multiple of kCellBytes, at most 1
// MiB.
struct StripeLayout {
  uint8_t data_shards = 0;
  uint8_t parity_shards = 0;
  uint32_t shard_bytes = 0;

  Geometry geometry() const { return {data_shards, parity_shards}; }
  uint64_t block_bytes() const { return uint64_t{data_shards} * shard_bytes; }
  // A block of `length` bytes has shards of this size: ceil(length / k) rounded up to 64.
  uint32_t ShardBytesOf(uint64_t length) const;
  // The cell of a block of `length` bytes that has byte `offset` of it, which is less than
  // `length`: bytes [begin, end). In a full block cells are 64 KiB, one after the other.
  struct Cell {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Cell CellAt(uint64_t length, uint64_t offset) const {
    return PieceAt(kCellBytes, length, offset);
  }
  // The same of pages, which are 4 KiB. They lie within cells.
  Cell PageAt(uint64_t length, uint64_t offset) const {
    return PieceAt(kShardPageBytes, length, offset);
  }
  Status Check() const;  // EINVAL
  friend bool operator==(const StripeLayout&, const StripeLayout&) = default;

 private:
  Cell PieceAt(uint64_t piece_bytes, uint64_t length, uint64_t offset) const;
};

struct StripeId {
  uint64_t object = 0;
  uint64_t block = 0;
  WriteId write{};
  friend bool operator==(const StripeId&, const StripeId&) = default;
};

// Where a stripe lies, beyond what placement says: its writer keeps it, in the block map.
struct StripePlace {
  struct Moved {
    uint8_t shard = 0;
    DriveId drive = 0;  // 0: this shard was not stored; it waits for repair, which puts it home
    friend bool operator==(const Moved&, const Moved&) = default;
  };
  Epoch epoch = 0;           // under which homes are computed
  std::vector<Moved> moved;  // shards that are not at home, ascending by shard
  friend bool operator==(const StripePlace&, const StripePlace&) = default;
};

// A block to be written: room for k data shards followed by m parity shards in one piece, so that
// no byte is copied between the host's call and the socket. Data beyond the length given to
// StartWrite, up to the end of the last shard, is zeroed by it. Once given to StartWrite, a buffer
// is not written to again while anybody else refers to it: a slow drive may still be sending from
// it. With k = 1 the copies are sent from the data itself, and there is no parity().
class StripeBuffer {
 public:
  explicit StripeBuffer(const StripeLayout& layout);

  // The space that one takes.
  static size_t MemoryBytes(const StripeLayout& layout);

  const StripeLayout& layout() const { return layout_; }
  MutableBytes data() { return memory_.mutable_bytes().first(layout_.block_bytes()); }
  MutableBytes parity() { return memory_.mutable_bytes().subspan(layout_.block_bytes()); }
  // Those that came with data(). StartWrite compares them with what it has coded.
  RangeSums& sums() { return sums_; }

 private:
  StripeLayout layout_;
  Buffer memory_;
  RangeSums sums_;
};

// A shard on a drive.
struct ShardCopy {
  uint8_t shard = 0;
  DriveId drive = 0;
  friend bool operator==(const ShardCopy&, const ShardCopy&) = default;
};

// The very one that was seen there: its record's version.
struct KnownCopy {
  ShardCopy copy;
  std::string version;
  friend bool operator==(const KnownCopy&, const KnownCopy&) = default;
};

struct StripeReadRequest {
  StripeId id;
  StripeLayout layout;
  uint64_t length = 0;  // of the block as it was written
  const StripePlace* place = nullptr;
  uint64_t offset = 0;  // within the block; offset + out.size() <= length
  MutableBytes out;
  bool only_pages = false;  // as in StripePart
  // Of each page of the file that `out` touches, or none. Its first byte is `out_phase` bytes
  // behind the beginning of a page.
  std::span<PageSum> sums = {};
  uint32_t out_phase = 0;
};

// A part of a block, to be read.
struct StripePart {
  StripeId id;
  StripeLayout layout;
  uint64_t length = 0;  // of the block as it was written
  StripePlace place;
  uint64_t offset = 0;  // within the block; offset + size <= length
  uint64_t size = 0;
  bool only_pages = false;  // of the cells that it touches just the pages that it touches are read
};

// The CRC32Cs of the whole pages of a cell, or of one page, as its shard has them; of pages that
// had to be computed, and of one that ends with the block, there is none.
class CellSums {
 public:
  void Set(uint32_t page, uint32_t crc32c) {
    sums_[page] = crc32c;
    known_ |= static_cast<uint16_t>(1u << page);
  }
  std::optional<uint32_t> Of(uint32_t page) const {
    return (known_ >> page & 1) != 0 ? std::optional(sums_[page]) : std::nullopt;
  }

 private:
  std::array<uint32_t, kCellBytes / kShardPageBytes> sums_{};
  uint16_t known_ = 0;
};

// A cell as it was read: bytes of a block from `offset` on, verified. Cells that came together may
// share an owner, and keep all of its memory.
struct ReadCell {
  uint64_t offset = 0;
  SharedBytes bytes;
  CellSums sums;
};

// Adler-32 and CRC32C of a block as it was written.
struct BlockSums {
  uint32_t adler32 = 1;
  uint32_t crc32c = 0;
};

struct StripeRepairRequest {
  StripeId id;
  StripeLayout layout;
  uint64_t length = 0;  // of the block as it was written
  const StripePlace* place = nullptr;
  bool read_all = false;      // verify every shard by reading it; else ask whether it is there
  std::set<DriveId> without;  // drives to be left: what they hold goes elsewhere
  bool dry_run = false;       // changes nothing
};

// The state in which a stripe was found, and what was done about it.
struct StripeRepair {
  // Where the shards are now. If that is not where they were, the keeper of the place records it,
  // and has `obsolete` removed after that.
  StripePlace place;
  std::vector<KnownCopy> obsolete;

  int good = 0;       // shards that are where they should be, as it is now
  int away = 0;       // on drives that do not answer, and may come back
  int damaged = 0;    // found so
  int missing = 0;    // found so, where they should have been
  int written = 0;    // of the damaged, the missing and those that were never stored
  int relocated = 0;  // good ones, written where they belong
  int stranded = 0;   // still on drives that are to be left, as no other would take them
  bool lost = false;  // too few shards are left
  // The damaged ones whose checksums are right, but that are not what the others say: "shard 2 on
  // drive 3 (127.0.0.1:8103)".
  std::vector<std::string> contradicted;
  // Shards contradict each other though every checksum is right, and nobody can tell which of them
  // are wrong; nothing was changed.
  bool inconsistent = false;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  Status why;  // unless every shard is good: what keeps one of them from being so
};

// How often each drive was lost at some moment (Drive::CountLosses).
using DriveLosses = std::map<DriveId, uint64_t>;

// Finds drives and maps; implemented by Cluster.
class DriveDirectory {
 public:
  virtual ~DriveDirectory() = default;
  virtual Epoch CurrentEpoch() = 0;
  // A drive knows of a later epoch than `known`: finds out about it. EIO: it cannot be read.
  virtual Status LookForEpochAfter(Epoch known) {
    return Fail(EIO, "there is no epoch after {}", known);
  }
  // Homes first, then spares, for a stripe in `group` under `epoch`. EIO when the epoch is unknown.
  virtual Result<std::vector<DriveId>> StripeDrives(Epoch epoch, uint64_t object, uint64_t block,
                                                    Geometry geometry) = 0;
  virtual Drive* FindDrive(DriveId id) = 0;  // null when not known
};

struct StripeCounters {
  uint64_t degraded_reads = 0;    // reads that needed a shard they had not asked for first
  uint64_t damaged_shards = 0;    // checksum did not match
  uint64_t missing_shards = 0;    // not on a drive that should have it
  uint64_t rewritten_shards = 0;  // of these, written again
  uint64_t spare_writes = 0;      // shards that went to a spare
  uint64_t short_writes = 0;      // stripes acknowledged with fewer than k+m shards
  uint64_t read_requests = 0;     // gets sent to drives, for reads and for writing shards again
  uint64_t bytes_fetched = 0;     // values received for them
};

// Thread-safe. Calls block until they can answer.
class StripeStore {
 public:
  struct Options {
    std::string prefix;  // of all keys: ClusterPrefix(name)
    int min_redundancy =
        1;  // shards beyond k that make a write acknowledged; at most m of the layout
    Duration timeout = std::chrono::seconds(20);  // for a whole call
    Duration drive_timeout =
        std::chrono::seconds(5);  // for one request, before it counts as failed
    // A shard is read from others when it is late: see cluster/stripes/answer_times.h.
    Duration hedge_at_first = std::chrono::milliseconds(250);
    Duration hedge_at_least = std::chrono::milliseconds(2);
    Duration spare_after = std::chrono::seconds(2);  // a put this late goes to a spare, too
    // How long a read that too many drives are away for waits for them to come back. Longer than a
    // drive that is up again may take to be noticed (KineticDrive::Options::most_backoff).
    Duration patience = std::chrono::seconds(3);
    bool check_names = true;  // tests turn it off: shards of other stripes are taken as well
  };

  StripeStore(Runtime& runtime, DriveDirectory& drives, Options options);
  ~StripeStore();

  // A write under way; does not outlive the store, and is used by one thread at a time. Destroying
  // it without Wait() is allowed: what was stored is removed again.
  class PendingWrite {
   public:
    virtual ~PendingWrite() = default;
    // Of one that was prepared, once, and before Wait().
    virtual void Send() = 0;
    // Whatever is stored stays, also what is stored twice and where the write fails: somebody may
    // name it by the homes alone. Before Send().
    virtual void KeepAll() = 0;
    // What its homes get, by shard; none: it cannot be begun, as Wait() will tell.
    struct Record {
      DriveId drive = 0;
      std::string key;
      std::string version;
    };
    virtual std::vector<Record> AtHome() const = 0;
    // The epoch of these homes.
    virtual Epoch epoch() const = 0;
    // EIO when too few drives took a shard, naming them; ENOSPC when they are full.
    virtual Result<StripePlace> Wait() = 0;
  };

  // Codes and sends the first `length` bytes of `buffer` (1..block_bytes). Checksums and parity are
  // computed before this returns; the answers come later. `buffer` is kept until then. A failure is
  // told by Wait(), and what was stored by then is removed again as far as drives can be reached.
  // EDOM: the bytes are not what the buffer's sums say, and nothing was sent.
  std::unique_ptr<PendingWrite> StartWrite(const StripeId& id, std::shared_ptr<StripeBuffer> buffer,
                                           uint64_t length,
                                           Durability durability = Durability::kWriteBack,
                                           Room room = Room::kData);
  // The same, but for the sending.
  std::unique_ptr<PendingWrite> PrepareWrite(const StripeId& id,
                                             std::shared_ptr<StripeBuffer> buffer, uint64_t length,
                                             Durability durability = Durability::kWriteBack,
                                             Room room = Room::kData);

  // A read under way; does not outlive the store, and is used by one thread at a time. Destroying
  // it without Wait() is allowed: answers that are still to come are dropped.
  class PendingRead {
   public:
    virtual ~PendingRead() = default;
    // As Read(). Answers that have come are looked at, and what is missing is asked of other
    // drives, only now.
    virtual Status Wait() = 0;
    // After Wait() has succeeded, once for each part: the whole cells that it touches, ascending,
    // or of one with `only_pages` the pages.
    virtual std::vector<ReadCell> TakeCells(size_t part) = 0;
  };

  // Asks the drives for all of these parts at once, and returns.
  std::unique_ptr<PendingRead> StartRead(std::vector<StripePart> parts);

  // ENOENT when every one of the k+m drives says that it has no such shard: the stripe was deleted,
  // as happens to a reader whose file was replaced. Anything else that keeps it from being read is
  // EIO, a deletion that is still going on or left something behind included.
  Status Read(const StripeReadRequest& request);

  // All at once, in the time of the slowest. The first failure is the answer.
  Status ReadMany(std::span<const StripeReadRequest> requests);

  // The sums of whole blocks, put together from those in the descriptors of their data shards: no
  // data is read. All are asked for at once, and each has an answer of its own. EINVAL: the block
  // does not fill its shards, as the last one of a file may not. Any other failure: some data shard
  // is away, missing or damaged, and the block is to be read.
  std::vector<Result<BlockSums>> SumUp(std::span<const StripePart> blocks);

  // Removes the shards wherever they may be. EIO when some drive could not be asked: garbage stays
  // there, and nothing else is wrong.
  Status Delete(const StripeId& id, const StripeLayout& layout, const StripePlace& place);

  // Many at once, in the time of the slowest; an answer for each.
  struct Deletion {
    StripeId id;
    StripeLayout layout;
    StripePlace place;
  };
  std::vector<Status> DeleteMany(std::span<const Deletion> deletions);

  // Where each shard should be, by its index: at home, or where it was moved to. One that was not
  // stored belongs at home.
  Result<std::vector<DriveId>> PlacesOf(const StripeId& id, const StripeLayout& layout,
                                        const StripePlace& place);

  // Where its shards should be under the newest epoch.
  Result<std::vector<DriveId>> HomesOf(const StripeId& id, const StripeLayout& layout);

  // Makes a stripe whole, and brings it to its homes under the newest epoch, as far as drives and
  // what is left of it allow: PlanRepair() in repair_plan.h has the rules. The shards that it wrote
  // were read back. Damage that cannot be helped is told, not an error. Any number may run at a
  // time, beside readers and each other.
  Result<StripeRepair> Repair(const StripeRepairRequest& request);

  // Asks the drives which shards of a stripe are where they should be, by their descriptors.
  // `length`: of the block as it was written.
  struct Presence {
    int present = 0;
    int missing = 0;  // or their drives have something else, or something damaged
    int unknown = 0;  // their drives do not answer
  };
  Result<Presence> Probe(const StripeId& id, const StripeLayout& layout, uint64_t length,
                         const StripePlace& place);

  // Removes these copies of shards, of a stripe that is not used any more. EIO when some drive
  // could not be asked, or refused.
  Status DeleteCopies(const StripeId& id, std::span<const ShardCopy> copies);

  // For a stripe that is used: which of these copies are there, and removing some that lie where
  // the stripe's place does not say. One that was written anew since it was seen stays, as a repair
  // may have brought the shard back to that very drive. So: look which are there, then where they
  // should be, and remove those that should not.
  Result<std::vector<KnownCopy>> Identify(const StripeId& id, std::span<const ShardCopy> copies);
  Status DeleteObsolete(const StripeId& id, std::span<const KnownCopy> copies);

  // For a stripe of which only the places of its shards are known: how it was coded and how long it
  // is, as most of the shards say, and the place from which they can be read. Null: none of them is
  // there, or is what its name says.
  struct Form {
    StripeLayout layout;  // of the smallest shards that hold it
    uint64_t length = 0;
    StripePlace place;
  };
  Result<std::optional<Form>> Describe(const StripeId& id, std::span<const ShardCopy> copies);

  // The drives that hold the shards of a stripe written by Wait().
  Result<std::set<DriveId>> DrivesOf(const StripeId& id, const StripeLayout& layout,
                                     const StripePlace& place);

  // Makes everything safe from power loss that these drives have acknowledged since the losses were
  // counted; the answer is the set of drives that failed to. One that was lost since then has: its
  // power may have failed.
  std::set<DriveId> Flush(const std::set<DriveId>& drives, const DriveLosses& since);

  // Waits until shards that were found bad are written again and unused ones erased, or failed to
  // be; false when the deadline comes first.
  bool WaitForRepairs(Time deadline);

  StripeCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pinstripe
