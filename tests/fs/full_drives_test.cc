// Drives that fill up at any moment: whatever an operation was about to do with names, it is done,
// or it is not, and says which.

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class FullDrivesTest : public FsTest {
 protected:
  // From now on so many puts fit, on all drives together.
  void LeaveRoomFor(int64_t puts) {
    const auto room = std::make_shared<std::atomic<int64_t>>(puts);
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id)).Set({.room = room});
    }
  }
  void MakeRoom() {
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id)).Set({});
    }
    sim_.Sleep(std::chrono::seconds(30));  // what was on its way arrives
  }

  Status Upload(std::string_view name, std::string_view contents) {
    auto file = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    if (!file.has_value()) return file.error();
    const Status written = (*file)->Write(0, AsBytes(contents));
    return written.ok() ? (*file)->Close() : written;
  }
};

// The old contents or the new ones; and never neither, which is what happened when the name had
// been given, and the drives then had no room for the time of its directory.
TEST_F(FullDrivesTest, AnUploadOverAFileLeavesOneOfTheTwo) {
  bool done = false;
  for (int64_t puts = 0; !done; ++puts) {
    ASSERT_LT(puts, 200);
    const std::string name = fmt::format("f{}", puts);
    Make(name, "old");
    LeaveRoomFor(puts);
    const Status uploaded = Upload(name, "new");
    MakeRoom();
    done = uploaded.ok();
    Host other = NewHost();
    const std::string found = Contents("/" + name, other.fs.get());
    if (uploaded.ok()) {
      ASSERT_EQ(found, "new") << puts << " puts";
    } else if (uploaded.code() == ENOSPC) {
      ASSERT_EQ(found, "old") << puts << " puts: " << uploaded.message();
    } else {
      ASSERT_EQ(uploaded.code(), EIO) << uploaded.message();
      ASSERT_TRUE(found == "old" || found == "new") << puts << " puts: " << found;
    }
  }
}

// What fails for want of room has left nothing behind that can be seen; what succeeds is there.
TEST_F(FullDrivesTest, ANameIsGivenOrNotAndTheAnswerSaysWhich) {
  const InodeId target = Make("target", "x");
  using Operation = std::function<Status(const std::string&)>;
  const std::pair<const char*, Operation> operations[] = {
      {"create",
       [&](const std::string& name) { return StatusOf(fs_->Create(kRootInode, name, {})); }},
      {"upload", [&](const std::string& name) { return Upload(name, "new"); }},
      {"mkdir",
       [&](const std::string& name) {
         return StatusOf(fs_->MakeDirectory(kRootInode, name, 0755, {}));
       }},
      {"link",
       [&](const std::string& name) { return StatusOf(fs_->Link(target, kRootInode, name)); }},
  };
  for (const auto& [what, operation] : operations) {
    bool done = false;
    for (int64_t puts = 0; !done; ++puts) {
      ASSERT_LT(puts, 200);
      const std::string name = fmt::format("{}{}", what, puts);
      const uint32_t links = fs_->GetAttributes(target)->links;
      LeaveRoomFor(puts);
      const Status status = operation(name);
      MakeRoom();
      done = status.ok();
      Host other = NewHost();
      const auto found = other->Lookup(kRootInode, name);
      if (status.ok()) {
        ASSERT_OK(found) << what << ", " << puts << " puts";
      } else if (status.code() == ENOSPC) {
        ASSERT_FAILS(found, ENOENT) << what << ", " << puts << " puts: " << status.message();
      } else {
        ASSERT_EQ(status.code(), EIO) << status.message();
      }
      // A file counts its names, or more of them.
      const uint32_t names = found.has_value() && std::string_view(what) == "link" ? 1 : 0;
      ASSERT_GE(other->GetAttributes(target)->links, std::min(links, 1 + names));
    }
  }
}

// What was removed is gone when it said so, and its directory goes on.
TEST_F(FullDrivesTest, ANameIsRemovedOrNotAndTheAnswerSaysWhich) {
  bool done = false;
  for (int64_t puts = 0; !done; ++puts) {
    ASSERT_LT(puts, 200);
    const std::string name = fmt::format("f{}", puts);
    Make(name, "x");
    LeaveRoomFor(puts);
    const Status status = fs_->Unlink(kRootInode, name);
    MakeRoom();
    done = puts > 40 && status.ok();
    Host other = NewHost();
    const auto found = other->Lookup(kRootInode, name);
    if (status.ok()) {
      ASSERT_FAILS(found, ENOENT) << puts << " puts";
    } else if (status.code() == ENOSPC) {
      ASSERT_OK(found) << puts << " puts";
      ASSERT_EQ(Contents("/" + name, other.fs.get()), "x");
    } else {
      ASSERT_EQ(status.code(), EIO) << status.message();
    }
  }
  Make("another", "x");
}

}  // namespace
}  // namespace pinstripe
