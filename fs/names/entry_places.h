// EntryPlaces: in which register an entry is. Most directories' entries lie in one group; those of
// one that has grown are in its parts, and while it grows each is in one of the two places, or on
// its way (fs/names/directory_parts.h). What reads and changes entries asks here, and need not know
// of it.
//
// docs/format.md, "Directories that grow", has the rules. In short: while a directory grows, what
// is in its own group counts, until it says that the entry was moved. What was moved stays so.
//
// Thread-safe; calls block until the cluster answers.

#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cluster/cluster.h"
#include "fs/names/directory_parts.h"
#include "fs/names/inode.h"
#include "fs/names/unsynced_changes.h"

namespace pinstripe {

struct StoredEntry {
  std::optional<Entry> entry;  // null: no such name
  uint64_t slot = 0;
};

class EntryPlaces {
 public:
  // Reads a directory's inode; null: it is gone.
  using ReadDirectory = std::function<Result<std::optional<DirectoryParts>>(InodeId)>;

  EntryPlaces(Cluster& cluster, UnsyncedChanges& unsynced, ReadDirectory read_directory)
      : cluster_(cluster),
        unsynced_(unsynced),
        read_directory_(std::move(read_directory)),
        known_(cluster.runtime()) {}

  void Learn(InodeId id, const Inode& inode, Time at) { known_.Learn(id, inode, at); }
  // Where an entry is, as far as is known, for whoever reads it together with the directory.
  RegisterName Guess(InodeId directory, std::string_view name) const;
  // The group in which an entry that is made now will be, as far as is known.
  uint32_t GroupFor(InodeId directory, std::string_view name) const;

  // What was read of the register that Guess() gave, if that is where a directory with these parts
  // has the entry. Null: it has to be looked for with Find().
  Result<std::optional<StoredEntry>> Judge(const RegisterName& asked,
                                           const Result<RegisterValue>& read, InodeId directory,
                                           std::string_view name,
                                           const DirectoryParts& parts) const;
  Result<StoredEntry> Find(InodeId directory, std::string_view name);
  // The register of an entry that lies in this group, wherever it would be looked for.
  static RegisterName NameIn(uint32_t group, InodeId directory, std::string_view name);

  // The register in which an entry that was found in this slot can be changed. Null: it is in
  // another slot by now. An entry that was found in the directory's own group while the directory
  // grows is moved to its part by this, and so is in another slot, too: who has seen that an entry
  // is not in a slot any more may rely on it that nothing comes of what was to be done in that one.
  struct Target {
    RegisterName name;
    uint64_t slot = 0;        // in the register
    uint64_t slots_from = 0;  // what is added to such a slot for those who use it
    // By what it was chosen; null: that is its place for ever.
    std::optional<KnownParts::Known> known;
  };
  Result<std::optional<Target>> ForChange(InodeId directory, std::string_view name, uint64_t slot);
  // After such a change was made. False: it took so long that the directory may have grown since,
  // and it has: nobody may ever see what was changed.
  Result<bool> StillCounts(InodeId directory, std::string_view name, const Target& target);
  // What was known of the directory has turned out to be old.
  void Forget(InodeId directory) { known_.Forget(directory); }

  Status MakeDurable(InodeId directory, std::string_view name);

  // As RegisterStore::Scan() of the directory's entries, and ScanAfter() if it bears a mark. The
  // page may have several times as many.
  struct Listed {
    std::string name;
    Entry entry;
    uint64_t slot = 0;
  };
  struct Page {
    std::vector<Listed> entries;      // ascending
    std::optional<std::string> next;  // where to go on; null at the end
  };
  Result<Page> List(InodeId directory, std::string_view first, size_t max, RegisterHolding* mark);
  // For those who list for people, page by page. In a directory that has grown, a page after the
  // first one may be as old as the latest first page of it that was read here, and ten seconds at
  // most, as it takes long to ask all parts. What was added here since is in it. Not more than
  // `max`.
  Result<Page> ListAhead(InodeId directory, std::string_view first, size_t max);
  // An entry was given a value, or may have been: what was read ahead may lack it.
  void NoteAdded(InodeId directory);

  // The steps of moving one entry of a directory that grows to its part, for fs/names/spreader.h.
  // What it copies is to be made safe from power loss before it is said that it was moved. The slot
  // of the entry that is on its way; null: it is not there any more, or was moved.
  Result<std::optional<uint64_t>> Copy(InodeId directory, uint8_t bits, const Listed& listed);
  Status EndMove(InodeId directory, std::string_view name, uint64_t slot);
  // What a loss of power has left in the parts of a directory that grows, of names that are not
  // there; and how to have it go.
  Result<Page> ListStray(InodeId directory, uint8_t bits, std::string_view first, size_t max);
  Status ClearStray(InodeId directory, uint8_t bits, const Listed& stray);
  // What lies in the directory's own group from `first` on, and is not of part 0.
  Result<Page> ListLeft(InodeId directory, uint8_t bits, std::string_view first, size_t max);
  // Says that what is in the part counts, if nothing is left of the entry in the directory's own
  // group. For upkeep/recovery.h.
  Status MarkMoved(InodeId directory, std::string_view name);
  // Such a one goes, unless it has changed since it was listed.
  Status Clear(InodeId directory, const Listed& left);

 private:
  RegisterName Home(InodeId directory, std::string_view name) const;
  // Null: it is where it would be if the directory had not grown.
  std::optional<RegisterName> Part(InodeId directory, std::string_view name, uint8_t bits) const;
  Result<KnownParts::Known> PartsOf(InodeId directory);
  bool IsLate(const KnownParts::Known& known) const;

  Result<std::optional<StoredEntry>> FindBy(const DirectoryParts& parts, InodeId directory,
                                            std::string_view name);
  // What is left of one of a directory that is gone.
  Result<StoredEntry> FindLeft(InodeId directory, std::string_view name);
  // Of one that is not in the directory's own group, while the directory was known to grow.
  Result<std::optional<StoredEntry>> FindAbsent(InodeId directory, std::string_view name,
                                                const RegisterName& part, uint64_t slot);
  // By its inode, as it is now.
  Result<bool> StillGrows(InodeId directory);
  // What is in the register; an entry on its way says so.
  struct Cell {
    std::optional<Entry> entry;
    uint64_t slot = 0;
    bool Is(Entry::Move move) const { return entry && entry->move == move; }
  };
  static Result<Cell> Decode(const Result<RegisterValue>& read, InodeId directory,
                             std::string_view name);
  Result<Cell> Read(const RegisterName& register_name, InodeId directory, std::string_view name);
  // If it is in this slot of the directory's own group.
  Status MoveOver(const RegisterName& part, InodeId directory, std::string_view name,
                  uint64_t slot);
  // The slot that it has made; null: somebody else was at it.
  Result<std::optional<uint64_t>> Put(const RegisterName& name, uint64_t slot,
                                      const std::optional<Entry>& entry, ChangeTerms terms);

  Result<Page> Scan(uint32_t group, InodeId directory, std::string_view first, size_t max,
                    RegisterHolding* mark);
  Result<std::optional<Page>> ListBy(const DirectoryParts& parts, InodeId directory,
                                     std::string_view first, size_t max, RegisterHolding* mark);
  // What was read of a directory, with what was not asked for yet.
  struct Ahead {
    InodeId directory = 0;
    Page page;
    uint64_t changes = 0;  // ahead_changes_, before it was read
    Time at{};             // when that was
  };
  static constexpr Duration kListedAhead = std::chrono::seconds(10);
  static constexpr size_t kMostAhead = 2;  // of tens of thousands of names each
  std::optional<Page> TakeAhead(InodeId directory, std::string_view first, size_t max);
  // Some of it, from this entry on.
  static Page Take(const Ahead& ahead, size_t from, size_t max);
  Result<std::vector<Page>> ScanParts(const DirectoryParts& parts, InodeId directory,
                                      std::string_view first, size_t max, RegisterHolding* mark);

  Cluster& cluster_;
  UnsyncedChanges& unsynced_;
  const ReadDirectory read_directory_;
  KnownParts known_;
  // Counts what makes that old which was read before: an entry that was added to a directory that
  // has grown, and a listing of any that begins.
  std::atomic<uint64_t> ahead_changes_ = 0;
  Mutex ahead_mutex_;
  std::deque<Ahead> ahead_ GUARDED_BY(ahead_mutex_);  // the oldest first
};

}  // namespace pinstripe
