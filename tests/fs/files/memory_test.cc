// The memory of a file system: one budget for what is written, what is read and what is kept.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/operation_trace.h"
#include "fs/files/read_pattern.h"
#include "fs/turn.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

constexpr uint64_t kBlockMemory = 3 * (64 << 10);  // of a block of 2+1, with its parity

class MemoryTest : public FsTest {
 protected:
  // Looks at the budget of a host all the time, until `running` is false.
  uint64_t MostUsedWhile(Host& host, const std::function<void()>& work) {
    uint64_t most = 0;
    bool running = true;
    sim_.Spawn("watcher", [&] {
      while (running) {
        most = std::max(most, host->Memory().used_bytes);
        sim_.Sleep(std::chrono::microseconds(200));
      }
      running = true;
    });
    work();
    running = false;
    while (!running) sim_.Sleep(std::chrono::milliseconds(1));
    return most;
  }

  std::unique_ptr<OpenFile> Reader(Host& host, std::string_view path) {
    return *host->Open(host->Resolve(path)->inode, FileSystem::Access::kRead);
  }

  uint64_t Fetched(Host& host) { return host.cluster->stripes().counters().bytes_fetched; }
};

TEST_F(MemoryTest, WhatWasReadOnceIsNotReadFromDrivesAgain) {
  const std::string bytes = Pattern(1, 5 * kTestBlock + 777);
  Make("file", bytes);
  Host host = NewHost();
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);
  const uint64_t once = Fetched(host);
  EXPECT_GE(once, bytes.size());
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);  // through another handle
  EXPECT_EQ(Fetched(host), once);
  EXPECT_GT(host->Memory().cache_hits, 0u);
  EXPECT_GE(host->Memory().cached_bytes, bytes.size());
}

TEST_F(MemoryTest, WhatOthersCommittedSinceIsSeenByTheNextOpen) {
  Make("file", Pattern(1, 3 * kTestBlock));
  Host host = NewHost();
  EXPECT_TRUE(Contents("/file", host.fs.get()) == Pattern(1, 3 * kTestBlock));
  Make("file", Pattern(2, 3 * kTestBlock));
  EXPECT_TRUE(Contents("/file", host.fs.get()) == Pattern(2, 3 * kTestBlock));
}

// One drive's answer serves all who wait for it.
TEST_F(MemoryTest, ReadersOfOneCellAskForItOnce) {
  const std::string bytes = Pattern(1, kTestBlock);
  Make("file", bytes);
  Host host = NewHost();
  auto file = Reader(host, "/file");
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.most_latency = std::chrono::milliseconds(100)});
  }
  RunTogether(20, [&](int i) {
    const uint64_t offset = static_cast<uint64_t>(i) * 100;
    EXPECT_EQ(ReadAll(*file, offset, 1000), bytes.substr(offset, 1000));
  });
  EXPECT_EQ(Fetched(host), 64u << 10);
  EXPECT_EQ(host->Memory().cache_misses, 1u);
}

// A read does not fail because whom it waited for could not read.
TEST_F(MemoryTest, WhoWaitsForAnotherReaderInVainReadsHimself) {
  const std::string bytes = Pattern(1, kTestBlock);
  Make("file", bytes);
  Host host = NewHost();
  auto file = Reader(host, "/file");
  for (DriveId id = 1; id <= 5; ++id) machines_.SetDown(id, true);
  sim_.Spawn("power", [&] {
    sim_.Sleep(std::chrono::milliseconds(3100));  // the first reader's patience is 3 s
    for (DriveId id = 1; id <= 5; ++id) machines_.SetDown(id, false);
  });
  int good = 0;
  RunTogether(2, [&](int i) {
    sim_.Sleep(std::chrono::milliseconds(1000 * i));
    std::string out(1000, '?');
    const auto read = file->Read(0, std::as_writable_bytes(std::span(out)));
    if (!read.has_value()) return;
    EXPECT_EQ(out, bytes.substr(0, 1000));
    ++good;
  });
  EXPECT_GE(good, 1);
}

TEST_F(MemoryTest, ManyReadsAreOne) {
  const std::string bytes = Pattern(1, 4 * kTestBlock + 100);
  Make("file", bytes);
  Host host = NewHost();
  auto file = Reader(host, "/file");
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.most_latency = std::chrono::milliseconds(100)});
  }
  std::vector<std::string> outs(12, std::string(1000, '?'));
  std::vector<OpenFile::Part> parts;
  for (size_t i = 0; i < outs.size(); ++i) {
    parts.push_back({i * kTestBlock / 3, std::as_writable_bytes(std::span(outs[i]))});
  }
  parts.push_back(
      {bytes.size() - 10, std::as_writable_bytes(std::span(outs.emplace_back(99, '?')))});
  const Time before = sim_.Now();
  ASSERT_OK(file->ReadParts(parts));
  // In the time of one: what is later than 250 ms would be read from other drives.
  EXPECT_LT(sim_.Now() - before, std::chrono::milliseconds(250));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(parts[i].length, 1000u);
    EXPECT_EQ(outs[i], bytes.substr(i * kTestBlock / 3, 1000));
  }
  EXPECT_EQ(parts[12].length, 10u);
  EXPECT_EQ(outs[12].substr(0, 10), bytes.substr(bytes.size() - 10));
  EXPECT_LE(Fetched(host), 9u * (64 << 10));  // every cell once
}

// What a reader will want is asked for before, so that he waits for drives once and not each time.
TEST_F(MemoryTest, WhoReadsOnDoesNotWaitForEachRead) {
  const std::string bytes = Pattern(1, 4 << 20);
  Make("file", bytes);
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.least_latency = std::chrono::milliseconds(10),
                             .most_latency = std::chrono::milliseconds(10)});
  }
  Host host = NewHost();
  auto file = Reader(host, "/file");
  const Time before = sim_.Now();
  for (size_t at = 0; at < bytes.size(); at += kTestBlock / 2) {
    EXPECT_TRUE(ReadAll(*file, at, kTestBlock / 2) == bytes.substr(at, kTestBlock / 2));
  }
  // Without, 64 times 20 ms.
  EXPECT_LT(sim_.Now() - before, std::chrono::milliseconds(300));
  EXPECT_EQ(Fetched(host), bytes.size());
  EXPECT_GT(host->Memory().read_ahead_cells, 50u);
  EXPECT_LT(host->Memory().cache_misses, 10u);
}

TEST_F(MemoryTest, ReadsHereAndThereTakeNoMoreThanTheirCells) {
  constexpr uint64_t kFile = 32 << 20;
  constexpr uint64_t kReads = 300;
  Make("file", Pattern(1, kFile));
  for (const size_t size : {size_t{4} << 10, size_t{64} << 10}) {
    Host host = NewHost(1 << 20);  // hardly anything is read from memory
    auto file = Reader(host, "/file");
    uint64_t cells = 0;
    for (uint64_t i = 0; i < kReads; ++i) {
      const uint64_t at = sim_.Below((kFile - size) / 4096) * 4096;
      EXPECT_TRUE(ReadAll(*file, at, size) == Pattern(1, size, at));
      cells += (at + size - 1) / kCellBytes - at / kCellBytes + 1;
    }
    EXPECT_LE(Fetched(host), cells * kCellBytes * 11 / 10) << size;
  }
}

// A few reads are taken for the beginning of something; then just the pages are fetched that hold
// what is asked for.
TEST_F(MemoryTest, SmallReadsHereAndThereFetchHardlyMoreThanTheyAskFor) {
  constexpr uint64_t kFile = 64 << 20;
  constexpr uint64_t kReads = 1000;
  constexpr size_t kSize = 4 << 10;
  Make("file", Pattern(1, kFile));
  Host host = NewHost(4 << 20);
  auto file = Reader(host, "/file");
  const uint64_t requests = host.cluster->stripes().counters().read_requests;
  for (uint64_t i = 0; i < kReads; ++i) {
    const uint64_t at = sim_.Below(kFile / kSize) * kSize;
    ASSERT_TRUE(ReadAll(*file, at, kSize) == Pattern(1, kSize, at)) << at;
  }
  EXPECT_LE(Fetched(host), kReads * kSize * 5 / 4);
  EXPECT_LE(host.cluster->stripes().counters().read_requests - requests, kReads * 21 / 20);
  EXPECT_LE(host->Memory().used_bytes, 4u << 20);
}

TEST_F(MemoryTest, SmallReadsAtAnyOffsetAreRight) {
  constexpr uint64_t kFile = (8 << 20) + 12345;
  Make("file", Pattern(1, kFile));
  for (const uint64_t memory : {uint64_t{1} << 20, uint64_t{64} << 20}) {
    Host host = NewHost(memory);
    auto file = Reader(host, "/file");
    for (int i = 0; i < 1500; ++i) {
      const uint64_t size = 1 + sim_.Below(17 << 10);
      const uint64_t at = sim_.Below(kFile);
      ASSERT_TRUE(ReadAll(*file, at, size) == Pattern(1, std::min<uint64_t>(size, kFile - at), at))
          << at << "+" << size;
    }
  }
}

// What is wanted again and again comes into memory, with no more than a few requests for each cell.
TEST_F(MemoryTest, WhatIsReadHereAndThereAgainAndAgainComesToBeInMemory) {
  constexpr uint64_t kFile = 4 << 20;
  constexpr size_t kSize = 4 << 10;
  Make("file", Pattern(1, kFile));
  Host host = NewHost();
  auto file = Reader(host, "/file");
  const uint64_t requests = host.cluster->stripes().counters().read_requests;
  for (int i = 0; i < 8000; ++i) {
    const uint64_t at = sim_.Below(kFile / kSize) * kSize;
    ASSERT_TRUE(ReadAll(*file, at, kSize) == Pattern(1, kSize, at));
  }
  const uint64_t cells = kFile / kCellBytes;
  EXPECT_LE(host.cluster->stripes().counters().read_requests - requests, 4 * cells + 4);
  EXPECT_LE(Fetched(host), kFile + (3 * cells + 4) * kSize);
  const uint64_t fetched = Fetched(host);
  for (uint64_t at = 0; at < kFile; at += kSize) ReadAll(*file, at, kSize);
  EXPECT_EQ(Fetched(host), fetched);
}

// Whoever reads on in small pieces fetches cells, wherever he was before.
TEST_F(MemoryTest, WhoGoesOnFromSomewhereFetchesCells) {
  constexpr uint64_t kFile = 32 << 20;
  constexpr size_t kSize = 4 << 10;
  Make("file", Pattern(1, kFile));
  Host host = NewHost();
  auto file = Reader(host, "/file");
  for (int i = 0; i < 50; ++i) ReadAll(*file, sim_.Below(kFile / kSize) * kSize, kSize);
  const uint64_t requests = host.cluster->stripes().counters().read_requests;
  const uint64_t fetched = Fetched(host);
  for (uint64_t at = 8 << 20; at < 24 << 20; at += kSize) {
    ASSERT_TRUE(ReadAll(*file, at, kSize) == Pattern(1, kSize, at));
  }
  constexpr uint64_t kWanted = 16 << 20;
  EXPECT_LE(Fetched(host) - fetched, kWanted + kCellBytes);
  EXPECT_LE(host.cluster->stripes().counters().read_requests - requests,
            (kWanted + ReadPattern::kMostAhead) / kCellBytes + 16)
      << "one for each cell that is read or asked for ahead, and a few";
}

TEST_F(MemoryTest, WhatWasReadAheadIsForgottenWithItsHandle) {
  const std::string bytes = Pattern(1, 4 << 20);
  Make("file", bytes);
  Host host = NewHost();
  auto file = Reader(host, "/file");
  for (size_t at = 0; at < 1 << 20; at += kTestBlock) {
    EXPECT_TRUE(ReadAll(*file, at, kTestBlock) == bytes.substr(at, kTestBlock));
  }
  EXPECT_GT(host->Memory().used_bytes, 3u << 19);
  ASSERT_OK(file->Close());
  EXPECT_LT(host->Memory().used_bytes, host->Memory().cached_bytes * 102 / 100);
  sim_.Sleep(std::chrono::seconds(10));
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);
}

// Nothing is read ahead for which there is no memory, and what was goes where it is needed.
TEST_F(MemoryTest, ReadAheadKeepsTheBudget) {
  constexpr int kReaders = 30;
  constexpr uint64_t kBudget = 2 << 20;
  constexpr size_t kFile = 2 << 20;
  for (int i = 0; i < kReaders; ++i) Make(fmt::format("file{}", i), Pattern(i, kFile));
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.most_latency = std::chrono::milliseconds(20)});
  }
  Host host = NewHost(kBudget);
  const uint64_t most = MostUsedWhile(host, [&] {
    RunTogether(kReaders, [&](int i) {
      auto file = Reader(host, fmt::format("/file{}", i));
      for (size_t at = 0; at < kFile; at += kTestBlock) {
        EXPECT_TRUE(ReadAll(*file, at, kTestBlock) == Pattern(i, kTestBlock, at));
      }
    });
  });
  EXPECT_LE(most, kBudget);
  EXPECT_LE(Fetched(host), kReaders * kFile * 11 / 10);
}

TEST_F(MemoryTest, TheCacheFillsTheBudgetAndNoMore) {
  for (int i = 0; i < 4; ++i) Make(fmt::format("file{}", i), Pattern(i, 4 * kTestBlock));
  Host host = NewHost(1 << 20);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(Contents(fmt::format("/file{}", i), host.fs.get()) == Pattern(i, 4 * kTestBlock));
      EXPECT_LE(host->Memory().used_bytes, 1u << 20);
    }
  }
  EXPECT_GT(host->Memory().cached_bytes, 512u << 10);
}

TEST_F(MemoryTest, LessMemoryShrinksTheCacheAtOnceAndMoreLetsItGrow) {
  const std::string bytes = Pattern(1, 16 * kTestBlock);
  Make("file", bytes);
  Host host = NewHost();
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);
  ASSERT_GE(host->Memory().cached_bytes, bytes.size());
  host->SetMemory(512 << 10);
  EXPECT_LE(host->Memory().used_bytes, 512u << 10);
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);
  EXPECT_LE(host->Memory().used_bytes, 512u << 10);
  host->SetMemory(64 << 20);
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);
  const uint64_t fetched = Fetched(host);
  EXPECT_TRUE(Contents("/file", host.fs.get()) == bytes);
  EXPECT_EQ(Fetched(host), fetched);
}

TEST_F(MemoryTest, LessMemoryStoresWhatWasWritten) {
  std::vector<std::unique_ptr<OpenFile>> files;
  for (int i = 0; i < 10; ++i) {
    files.push_back(*fs_->Create(kRootInode, fmt::format("file{}", i), {}));
    ASSERT_OK(files.back()->Write(0, AsBytes(Pattern(i, kTestBlock - 1))));
  }
  EXPECT_EQ(fs_->Memory().used_bytes, 10 * kBlockMemory);
  fs_->SetMemory(2 * kBlockMemory);
  EXPECT_LE(fs_->Memory().used_bytes, 2 * kBlockMemory);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(ReadAll(*files[i]) == Pattern(i, kTestBlock - 1));
    EXPECT_OK(files[i]->Close());
  }
}

// Each writes a file in pieces, and none of them has more than a part of a block to itself.
TEST_F(MemoryTest, TwoHundredWritersFinishInLittleMemory) {
  constexpr int kWriters = 200;
  constexpr size_t kPiece = 50'000;
  constexpr uint64_t kBudget = 20 * kBlockMemory;
  Host host = NewHost(kBudget);
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.most_latency = std::chrono::milliseconds(5)});
  }
  const uint64_t most = MostUsedWhile(host, [&] {
    RunTogether(kWriters, [&](int i) {
      const std::string bytes = Pattern(i, 2 * kTestBlock + 1000);
      auto file = host->Create(kRootInode, fmt::format("file{}", i), {.publish_at_commit = true});
      ASSERT_OK(file);
      for (size_t done = 0; done < bytes.size(); done += kPiece) {
        ASSERT_OK((*file)->Write(done, AsBytes(bytes.substr(done, kPiece))));
      }
      ASSERT_OK((*file)->Close());
    });
  });
  EXPECT_GT(most, kBudget / 2);
  EXPECT_LE(most, kBudget + kBudget / 10);
  machines_.drive(1).Set({});
  for (int i = 0; i < kWriters; i += 17) {
    EXPECT_TRUE(Contents(fmt::format("/file{}", i)) == Pattern(i, 2 * kTestBlock + 1000));
  }
}

// Everybody may still go on, alone.
TEST_F(MemoryTest, AMemorySmallerThanABlockIsEnough) {
  Host host = NewHost(1000);
  RunTogether(10, [&](int i) {
    const std::string bytes = Pattern(i, 3 * kTestBlock);
    auto file = host->Create(kRootInode, fmt::format("file{}", i), {});
    ASSERT_OK(file);
    for (size_t done = 0; done < bytes.size(); done += 90'000) {
      ASSERT_OK((*file)->Write(done, AsBytes(bytes.substr(done, 90'000))));
      EXPECT_TRUE(ReadAll(**file) == bytes.substr(0, done + 90'000));
    }
    ASSERT_OK((*file)->Close());
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Contents(fmt::format("/file{}", i)) == Pattern(i, 3 * kTestBlock));
  }
}

// That is what `pinstripe slow` tells of it. The parts never count one moment twice.
TEST_F(MemoryTest, AnOperationKnowsForHowLongItWaitedForWhat) {
  using Wait = OperationTrace::Wait;
  Host host = NewHost(2 * kBlockMemory);
  auto file = *host->Create(kRootInode, "file", {});
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.most_latency = std::chrono::milliseconds(100)});
  }
  {
    const OperationTrace write;
    const Time begin = sim_.Now();
    const std::string block = Pattern(1, kTestBlock);
    for (size_t i = 0; i < 8; ++i) ASSERT_OK(file->Write(i * kTestBlock, AsBytes(block)));
    EXPECT_GT(write.waited(Wait::kMemory), Duration());
    EXPECT_LE(write.waited(Wait::kMemory) + write.waited(Wait::kDrives), sim_.Now() - begin);
  }
  const OperationTrace close;
  const Time begin = sim_.Now();
  ASSERT_OK(file->Close());
  EXPECT_EQ(close.waited(Wait::kMemory), Duration());
  EXPECT_GT(close.waited(Wait::kDrives), Duration());
  EXPECT_LE(close.waited(Wait::kDrives), sim_.Now() - begin);
}

// Who waits for a turn learns whose it is.
TEST_F(MemoryTest, AnOperationKnowsForWhichOtherItWaited) {
  using Wait = OperationTrace::Wait;
  Turn turn(sim_);
  uint64_t first = 0;
  RunTogether(2, [&](int i) {
    sim_.Sleep(std::chrono::milliseconds(10 * i));
    const OperationTrace trace;
    const Turn::Holder holder(turn);
    if (i == 0) {
      first = trace.id();
      sim_.Sleep(std::chrono::seconds(1));
    } else {
      EXPECT_GE(trace.waited(Wait::kTurn), std::chrono::milliseconds(900));
      EXPECT_EQ(trace.Ids(), (std::vector<uint64_t>{trace.id(), first}));
    }
  });
}

// Who waits for memory has blocks stored that came there while he was waiting, and whose writers
// may never come back.
TEST_F(MemoryTest, WhoWaitsDoesNotWaitForIdleWriters) {
  Host host = NewHost(kBlockMemory);
  std::vector<std::unique_ptr<OpenFile>> files(4);
  RunTogether(4, [&](int i) {
    files[i] = *host->Create(kRootInode, fmt::format("file{}", i), {});
    ASSERT_OK(files[i]->Write(0, AsBytes(Pattern(i, 1000))));  // and is never closed, or only later
    ASSERT_OK(files[i]->Write(kTestBlock, AsBytes(Pattern(i, 100'000))));
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ReadAll(*files[i], 0, 1000), Pattern(i, 1000));
}

// A commit that does not get on has given back what it had in memory long before it ends.
TEST_F(MemoryTest, WhoWaitsDoesNotWaitForACommit) {
  Host host = NewHost(2 * kBlockMemory);
  auto other = *host->Create(kRootInode, "other", {});
  auto stuck = *host->Create(kRootInode, "stuck", {});
  ASSERT_OK(stuck->Write(0, AsBytes(Pattern(1, kTestBlock - 1))));
  ASSERT_OK(stuck->Write(kTestBlock, AsBytes(Pattern(2, kTestBlock - 1))));
  ASSERT_EQ(host->Memory().used_bytes, 2 * kBlockMemory);
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.drive(id).Set({.least_latency = std::chrono::milliseconds(30),
                             .most_latency = std::chrono::milliseconds(40)});
  }
  // The majority of those that have the inode is away.
  const auto homes = host.cluster->RegisterHomes(host.cluster->GroupOfObject(stuck->inode()));
  for (size_t i = 0; i < 2; ++i) machines_.SetDown(homes[i], true);
  bool ended = false;
  sim_.Spawn("commit", [&] {
    EXPECT_FAILS(stuck->Commit(), EIO);
    ended = true;
  });
  sim_.Sleep(std::chrono::milliseconds(10));
  const Time begin = sim_.Now();
  EXPECT_OK(other->Write(0, AsBytes(Pattern(3, kTestBlock - 1))));
  EXPECT_LT(sim_.Now() - begin, std::chrono::seconds(5));
  EXPECT_FALSE(ended);
  while (!ended) sim_.Sleep(std::chrono::seconds(1));
}

// Handles that read for a while and then do nothing.
TEST_F(MemoryTest, WhatOthersHadReadAheadAndDoNotReadGivesWay) {
  constexpr uint64_t kSize = 16 * kTestBlock;
  Host host = NewHost(4 << 20);
  std::vector<std::unique_ptr<OpenFile>> idle;
  for (int i = 0; i < 9; ++i) Make(fmt::format("file{}", i), Pattern(i, kSize));
  for (int i = 0; i < 8; ++i) {
    idle.push_back(Reader(host, fmt::format("/file{}", i)));
    for (uint64_t at = 0; at < kSize / 2; at += kTestBlock) ReadAll(*idle.back(), at, kTestBlock);
  }
  sim_.Sleep(std::chrono::seconds(10));
  const uint64_t before = host->Memory().read_ahead_cells;
  auto reader = Reader(host, "/file8");
  for (uint64_t at = 0; at < kSize; at += kTestBlock) {
    EXPECT_EQ(ReadAll(*reader, at, kTestBlock), Pattern(8, kTestBlock, at));
  }
  EXPECT_GT(host->Memory().read_ahead_cells - before, kSize / kCellBytes / 2);
}

TEST_F(MemoryTest, MemoryChangesBothWaysUnderLoad) {
  Host host = NewHost();
  bool done = false;
  bool stopped = false;
  sim_.Spawn("administrator", [&] {
    for (uint64_t i = 0; !done; ++i) {
      host->SetMemory(i % 2 == 0 ? 2 * kBlockMemory : 64 << 20);
      sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), std::chrono::milliseconds(100)));
    }
    stopped = true;
  });
  RunTogether(20, [&](int i) {
    for (int round = 0; round < 5; ++round) {
      const std::string bytes = Pattern(i + round, 2 * kTestBlock + i * 1000);
      auto file = host->Create(kRootInode, fmt::format("file{}", i), {.truncate = true});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(bytes)));
      ASSERT_OK((*file)->Sync());
      EXPECT_TRUE(ReadAll(**file) == bytes);
      ASSERT_OK((*file)->Close());
    }
  });
  done = true;
  while (!stopped) sim_.Sleep(std::chrono::milliseconds(10));
}

}  // namespace
}  // namespace pinstripe
