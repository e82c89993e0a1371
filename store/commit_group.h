// CommitGroup: the stores of a process that share a file system, which make their changes durable
// together. A flush of one of them is a round for every one that has changes: with several such
// stores the round costs one syncfs(), however many they are; one store alone syncs its own files,
// and waits for nobody else's data.
//
// Flushes that come while a round is under way share the next one, and a store whose changes a
// round has taken along needs none of its own.
//
// A syncfs() that fails does not say whose writes were lost, and the kernel will not say it again:
// it may have been those of a store that was not in the round, as it had nothing to flush when that
// began. So none of the group can be believed any more. A store joins before it writes anything.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "store/file_calls.h"

namespace pinstripe {

class CommitGroup {
 public:
  // A store. Its functions are called one after the other, by whichever thread runs the round.
  class Member {
   public:
    virtual ~Member() = default;

    // Whether it has changes that no round has taken yet. Any time, from any thread.
    virtual bool HasChanges() = 0;

    // All changes so far belong to this round.
    virtual void BeginRound() = 0;

    // Either: makes the round durable by itself.
    virtual Status SyncRound() = 0;

    // Or: hands all of the round to the kernel, for the whole file system to be synced.
    virtual Status HandOverRound() = 0;

    // The round is durable, or, with a failure, nobody knows. The answer is that of the flush.
    virtual Status EndRound(Status synced) = 0;

    // The file system has lost something in a round that this one did not take part in. From the
    // thread of that round.
    virtual void LoseFaith(const Status& failure) = 0;
  };

  // A group for the file system of `path`: from now on it hears of each write there that fails.
  // `calls` outlives it. Syncs it once, so that what has failed before is not taken for what fails
  // later.
  static Result<std::shared_ptr<CommitGroup>> Open(FileCalls& calls, const std::string& path);

  // Whether something had failed before that nobody had been told of.
  bool had_failed() const { return had_failed_; }

  void Join(Member& member);
  void Leave(Member& member);  // waits for the end of a round that is under way

  // The member's changes so far are durable after, or its status says why not.
  Status Flush(Member& member);

 private:
  using Statuses = std::map<Member*, Status>;

  CommitGroup(FileCalls& calls, const std::string& path, FileDescriptor file_system)
      : calls_(calls), path_(path), file_system_(std::move(file_system)) {}
  Status RunRound(Statuses& statuses);
  Status SyncFileSystem();

  FileCalls& calls_;
  const std::string path_;
  const FileDescriptor file_system_;
  bool had_failed_ = false;  // does not change
  Mutex mutex_;
  Condition round_finished_;
  uint64_t begun_ GUARDED_BY(mutex_) = 0;  // rounds
  uint64_t finished_ GUARDED_BY(mutex_) = 0;
  Statuses members_ GUARDED_BY(mutex_);  // and how their last round ended
};

}  // namespace pinstripe
