// What the kernel sees of a mount: its requests, as <linux/fuse.h> lays them out, go through
// libfuse and the mount's own operations, and the answers come back as bytes. The place of
// /dev/fuse has a pair of sockets, so that no kernel and no rights are needed. A second FileSystem
// stands for another host.

#define FUSE_USE_VERSION 312

#include "fuse/operations.h"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fs/names/acl.h"
#include "fs/names/extended.h"
#include "fuse/virtual_files.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

template <typename T>
std::string Raw(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string Name(std::string_view name) { return std::string(name) + '\0'; }

struct Reply {
  int error = 0;  // an errno
  std::string body;

  template <typename T>
  T As(size_t offset = 0) const {
    T value{};
    EXPECT_EQ(error, 0);
    EXPECT_GE(body.size(), offset + sizeof value);
    if (body.size() >= offset + sizeof value) std::memcpy(&value, &body[offset], sizeof value);
    return value;
  }
};

// The kernel's end of a mount.
class Kernel {
 public:
  Kernel(Runtime& runtime, FileSystem& fs, const MountOptions& options)
      : mount_(runtime, fs, options, kRootInode, "what is mounted\n") {
    fuse_args args = FUSE_ARGS_INIT(0, nullptr);
    EXPECT_EQ(fuse_opt_add_arg(&args, "pinstripe-fuse"), 0);
    session_ = fuse_session_new(&args, &Operations(), sizeof(fuse_lowlevel_ops), &mount_);
    fuse_opt_free_args(&args);
    // Of packets: each request and each answer is one, as with /dev/fuse.
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    kernel_ = ends[0];
    const fuse_custom_io io{.writev = WriteAnswer, .read = ReadRequest};
    EXPECT_EQ(fuse_session_custom_io(session_, &io, ends[1]), 0);
    mount_.Serve(session_);
    fuse_init_in init{.major = FUSE_KERNEL_VERSION, .minor = 36, .max_readahead = 1 << 20};
    init.flags = FUSE_POSIX_ACL | FUSE_DONT_MASK | FUSE_ATOMIC_O_TRUNC | FUSE_DO_READDIRPLUS |
                 FUSE_READDIRPLUS_AUTO | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_POSIX_LOCKS |
                 FUSE_FLOCK_LOCKS;
    init_ = Ask(FUSE_INIT, 0, Raw(init)).As<fuse_init_out>();
  }

  ~Kernel() {
    mount_.Serve(nullptr);
    fuse_session_destroy(session_);  // closes the other end
    close(kernel_);
    EXPECT_OK(mount_.ReleaseAll());
    free(buffer_.mem);
  }

  Reply Ask(uint32_t opcode, uint64_t node, const std::string& body) {
    Send(opcode, node, body);
    for (;;) {
      std::string message(2 << 20, '\0');
      const ssize_t got = recv(kernel_, message.data(), message.size(), MSG_DONTWAIT);
      fuse_out_header header{};
      if (got < static_cast<ssize_t>(sizeof header)) {
        ADD_FAILURE() << "no answer to request of kind " << opcode;
        return {.error = -1};
      }
      std::memcpy(&header, message.data(), sizeof header);
      EXPECT_EQ(header.len, static_cast<size_t>(got));
      if (header.unique == 0) {  // told, not asked for
        ++notices_;
        continue;
      }
      EXPECT_EQ(header.unique, unique_);
      return {.error = -header.error,
              .body = message.substr(sizeof header, static_cast<size_t>(got) - sizeof header)};
    }
  }

  // What has no answer.
  void Tell(uint32_t opcode, uint64_t node, const std::string& body) {
    Send(opcode, node, body);
    char byte = 0;
    EXPECT_LT(recv(kernel_, &byte, 1, MSG_DONTWAIT), 0) << "nobody reads such an answer";
  }

  const fuse_init_out& init() const { return init_; }
  Mount& mount() { return mount_; }
  // Since this was asked for.
  int notices() { return std::exchange(notices_, 0); }

  uint32_t user = 1000, group = 1000;

 private:
  void Send(uint32_t opcode, uint64_t node, const std::string& body) {
    fuse_in_header header{};
    header.len = static_cast<uint32_t>(sizeof header + body.size());
    header.opcode = opcode;
    header.unique = ++unique_;
    header.nodeid = node;
    header.uid = user;
    header.gid = group;
    const std::string message = Raw(header) + body;
    ASSERT_EQ(send(kernel_, message.data(), message.size(), 0),
              static_cast<ssize_t>(message.size()));
    ASSERT_EQ(fuse_session_receive_buf(session_, &buffer_), static_cast<int>(message.size()));
    fuse_session_process_buf(session_, &buffer_);
  }

  Mount mount_;
  fuse_session* session_ = nullptr;
  int kernel_ = -1;
  fuse_buf buffer_{};
  uint64_t unique_ = 0;
  int notices_ = 0;
  fuse_init_out init_{};
};

class OperationsTest : public FsTest {
 protected:
  static constexpr uint64_t kRoot = FUSE_ROOT_ID;

  void SetUp() override {
    FsTest::SetUp();
    Start({});
  }
  void Start(const MountOptions& options) {
    kernel_.reset();
    kernel_ = std::make_unique<Kernel>(sim_, *fs_, options);
  }
  void TearDown() override { kernel_.reset(); }

  Reply Ask(uint32_t opcode, uint64_t node, const std::string& body = "") {
    return kernel_->Ask(opcode, node, body);
  }
  Reply Lookup(std::string_view name, uint64_t directory = kRoot) {
    return Ask(FUSE_LOOKUP, directory, Name(name));
  }
  uint64_t NodeOf(std::string_view name) { return Lookup(name).As<fuse_entry_out>().nodeid; }

  struct Opened {
    uint64_t node = 0;
    uint64_t handle = 0;
    uint32_t flags = 0;  // FOPEN_...
  };
  Reply AskCreate(std::string_view name, uint32_t flags = O_RDWR, uint32_t opcode = FUSE_CREATE) {
    const fuse_create_in in{.flags = flags | O_CREAT, .mode = S_IFREG | 0666, .umask = 022};
    return Ask(opcode, kRoot, Raw(in) + Name(name));
  }
  static Opened OpenedOf(const Reply& reply) {
    const auto open = reply.As<fuse_open_out>(sizeof(fuse_entry_out));
    return {reply.As<fuse_entry_out>().nodeid, open.fh, open.open_flags};
  }
  Opened Create(std::string_view name) { return OpenedOf(AskCreate(name)); }
  Reply AskOpen(uint64_t node, uint32_t flags) {
    return Ask(FUSE_OPEN, node, Raw(fuse_open_in{.flags = flags}));
  }
  Opened Open(uint64_t node, uint32_t flags) {
    const auto open = AskOpen(node, flags).As<fuse_open_out>();
    return {node, open.fh, open.open_flags};
  }
  Reply Write(const Opened& file, std::string_view bytes, uint64_t offset = 0) {
    const fuse_write_in in{
        .fh = file.handle, .offset = offset, .size = static_cast<uint32_t>(bytes.size())};
    return Ask(FUSE_WRITE, file.node, Raw(in) + std::string(bytes));
  }
  Reply Read(const Opened& file, uint64_t offset = 0, uint32_t size = 64 << 10) {
    return Ask(FUSE_READ, file.node,
               Raw(fuse_read_in{.fh = file.handle, .offset = offset, .size = size}));
  }
  int Flush(const Opened& file) {
    return Ask(FUSE_FLUSH, file.node, Raw(fuse_flush_in{.fh = file.handle})).error;
  }
  int Release(const Opened& file) {
    return Ask(FUSE_RELEASE, file.node, Raw(fuse_release_in{.fh = file.handle})).error;
  }
  int Rename(std::string_view from, std::string_view to, uint32_t flags = 0) {
    return Ask(FUSE_RENAME2, kRoot,
               Raw(fuse_rename2_in{.newdir = kRoot, .flags = flags}) + Name(from) + Name(to))
        .error;
  }
  Reply SetAttributes(uint64_t node, fuse_setattr_in in, uint32_t valid) {
    in.valid = valid;
    return Ask(FUSE_SETATTR, node, Raw(in));
  }
  int SetExtended(uint64_t node, std::string_view name, std::string_view value, int flags = 0) {
    // As a kernel lays it out that was not told of FUSE_SETXATTR_EXT.
    const fuse_setxattr_in in{.size = static_cast<uint32_t>(value.size()),
                              .flags = static_cast<uint32_t>(flags)};
    return Ask(FUSE_SETXATTR, node,
               Raw(in).substr(0, FUSE_COMPAT_SETXATTR_IN_SIZE) + Name(name) + std::string(value))
        .error;
  }
  // Lists the directory with attributes, to its end.
  void ListPlus(uint64_t directory = kRoot) {
    const auto handle = Ask(FUSE_OPENDIR, directory, Raw(fuse_open_in{})).As<fuse_open_out>().fh;
    for (uint64_t position = 0;;) {
      const fuse_read_in in{.fh = handle, .offset = position, .size = 32 << 10};
      const Reply reply = Ask(FUSE_READDIRPLUS, directory, Raw(in));
      ASSERT_EQ(reply.error, 0);
      if (reply.body.empty()) break;
      for (size_t at = 0; at < reply.body.size();) {
        const auto plus = reply.As<fuse_direntplus>(at);
        position = plus.dirent.off;
        at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + plus.dirent.namelen);
      }
    }
    Ask(FUSE_RELEASEDIR, directory, Raw(fuse_release_in{.fh = handle}));
  }
  // How many requests to drives that takes.
  uint64_t CountRequests(const std::function<void()>& body) {
    const auto all = [&] {
      uint64_t requests = 0;
      for (DriveId id = 1; id <= machines_.size(); ++id) {
        requests += machines_.drive(id).requests().total();
      }
      return requests;
    };
    const uint64_t before = all();
    body();
    sim_.Sleep(std::chrono::milliseconds(10));
    return all() - before;
  }
  Reply GetExtended(uint64_t node, std::string_view name, uint32_t room) {
    return Ask(FUSE_GETXATTR, node, Raw(fuse_getxattr_in{.size = room}) + Name(name));
  }

  std::unique_ptr<Kernel> kernel_;
};

TEST_F(OperationsTest, TheKernelIsToldWhatTheMountCan) {
  EXPECT_EQ(kernel_->init().max_write, 1u << 20);
  EXPECT_TRUE(kernel_->init().flags & FUSE_ATOMIC_O_TRUNC);
  EXPECT_TRUE(kernel_->init().flags & FUSE_DO_READDIRPLUS);
  EXPECT_FALSE(kernel_->init().flags & FUSE_READDIRPLUS_AUTO);
  EXPECT_TRUE(kernel_->init().flags & FUSE_POSIX_ACL);
  EXPECT_FALSE(kernel_->init().flags & (FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS))
      << "the kernel keeps the locks itself";
}

TEST_F(OperationsTest, ANameIsLookedUp) {
  const InodeId inode = Make("file", "contents");
  const auto entry = Lookup("file").As<fuse_entry_out>();
  EXPECT_EQ(entry.nodeid, inode);
  EXPECT_EQ(entry.attr.ino, inode);
  EXPECT_EQ(entry.attr.size, 8u);
  EXPECT_EQ(entry.attr.mode, S_IFREG | 0644u);
  EXPECT_EQ(entry.entry_valid, 0u) << "a file's name is asked for with each path";
  EXPECT_EQ(entry.entry_valid_nsec, 0u);
  EXPECT_EQ(entry.attr_valid, 0u);
  EXPECT_EQ(entry.attr_valid_nsec, 50'000'000u) << "for what is done with it just after";

  MakeDirectory("directory");
  const auto directory = Lookup("directory").As<fuse_entry_out>();
  EXPECT_EQ(directory.entry_valid, 1u);
  EXPECT_EQ(directory.attr_valid, 1u);
  EXPECT_EQ(Lookup("none").error, ENOENT);
  EXPECT_EQ(Lookup("x", inode).error, ENOTDIR);
  EXPECT_EQ(Lookup(std::string(256, 'n')).error, ENAMETOOLONG);
}

// All numbers are the file system's own, so nothing has to be remembered.
TEST_F(OperationsTest, WhatIsForgottenIsFoundByItsNumber) {
  const InodeId inode = Make("file", "contents");
  EXPECT_EQ(NodeOf("file"), inode);
  kernel_->Tell(FUSE_FORGET, inode, Raw(fuse_forget_in{.nlookup = 1}));
  kernel_->Tell(
      FUSE_BATCH_FORGET, 0,
      Raw(fuse_batch_forget_in{.count = 1}) + Raw(fuse_forget_one{.nodeid = inode, .nlookup = 1}));
  const auto attributes = Ask(FUSE_GETATTR, inode, Raw(fuse_getattr_in{})).As<fuse_attr_out>();
  EXPECT_EQ(attributes.attr.size, 8u);
}

TEST_F(OperationsTest, AFileIsMadeWrittenAndCommittedAtClose) {
  Host other = NewHost();
  const Opened file = Create("file");
  EXPECT_EQ(Write(file, "contents").As<fuse_write_out>().size, 8u);
  EXPECT_EQ(Read(file).body, "contents");
  EXPECT_EQ(Read(file, 4, 2).body, "en");
  EXPECT_EQ(Read(file, 8).body, "");
  EXPECT_EQ(Contents("/file", other.fs.get()), "") << "its name is there, its contents are not";
  EXPECT_EQ(Flush(file), 0);
  EXPECT_EQ(Contents("/file", other.fs.get()), "contents");
  EXPECT_EQ(Release(file), 0);
  const auto attributes = other->Resolve("/file");
  EXPECT_EQ(attributes->mode, 0644u) << "by the umask";
  EXPECT_EQ(attributes->owner.user, 1000u);
}

TEST_F(OperationsTest, AnFsyncCommits) {
  Host other = NewHost();
  const Opened file = Create("file");
  EXPECT_EQ(Write(file, "contents").error, 0);
  EXPECT_EQ(Ask(FUSE_FSYNC, file.node, Raw(fuse_fsync_in{.fh = file.handle})).error, 0);
  EXPECT_EQ(Contents("/file", other.fs.get()), "contents");
  EXPECT_EQ(Release(file), 0);
  EXPECT_EQ(Ask(FUSE_FSYNCDIR, kRoot, Raw(fuse_fsync_in{})).error, 0);
}

// What the kernel has not released is committed when the mount ends.
TEST_F(OperationsTest, AFileThatIsOpenAtTheEndIsCommitted) {
  EXPECT_EQ(Write(Create("file"), "contents").error, 0);
  kernel_.reset();
  EXPECT_EQ(Contents("/file"), "contents");
}

// Two hosts make one file: the second looks again, and sees who may open it.
TEST_F(OperationsTest, ANameThatIsTakenMeanwhileIsLookedUpAnew) {
  Make("file", "x");
  EXPECT_EQ(AskCreate("file").error, ESTALE);
  EXPECT_EQ(AskCreate("file", O_RDWR | O_EXCL).error, EEXIST);
}

// Without O_EXCL. What the kernel asks for meanwhile is answered as if the file were there.
TEST_F(OperationsTest, WithAsynchronousNamesAFileAppearsAtItsClose) {
  Start({.async_names = true});
  Host other = NewHost();
  const Opened file = Create("file");
  EXPECT_EQ(Write(file, "contents").error, 0);
  EXPECT_EQ(NodeOf("file"), file.node);
  EXPECT_EQ(Read(Open(file.node, O_RDONLY)).body, "contents");
  EXPECT_FAILS(other->Lookup(kRootInode, "file"), ENOENT);
  EXPECT_EQ(Flush(file), 0);
  EXPECT_EQ(Contents("/file", other.fs.get()), "contents");
  EXPECT_EQ(Release(file), 0);

  ASSERT_EQ(AskCreate("exclusive", O_RDWR | O_EXCL).error, 0);
  EXPECT_OK(other->Lookup(kRootInode, "exclusive"));
  EXPECT_EQ(AskCreate("exclusive").error, ESTALE) << "the kernel looks again";

  const Opened taken = Create("taken");
  ASSERT_OK(other->MakeDirectory(kRootInode, "taken", 0755, {}));
  EXPECT_EQ(Flush(taken), EEXIST) << "close(2) says so";
  EXPECT_EQ(Release(taken), EEXIST);

  EXPECT_EQ(Write(Create("synced"), "x").error, 0);
  EXPECT_EQ(Ask(FUSE_FSYNCDIR, kRoot, Raw(fuse_fsync_in{})).error, 0);
  EXPECT_OK(other->Lookup(kRootInode, "synced"));
  const Opened removed = Create("removed");
  EXPECT_EQ(Ask(FUSE_UNLINK, kRoot, Name("removed")).error, 0);
  EXPECT_EQ(Flush(removed), 0);
  EXPECT_FAILS(other->Lookup(kRootInode, "removed"), ENOENT);
}

// libfuse knows no such request; it arrives as one to create a file of the name "/".
TEST_F(OperationsTest, AFileWithoutANameIsMadeAndNamed) {
  const Opened file = OpenedOf(AskCreate("/", O_RDWR, FUSE_TMPFILE));
  EXPECT_EQ(Write(file, "contents").error, 0);
  EXPECT_EQ(List(), std::vector<std::string>{});
  const Reply linked =
      Ask(FUSE_LINK, kRoot, Raw(fuse_link_in{.oldnodeid = file.node}) + Name("file"));
  EXPECT_EQ(linked.As<fuse_entry_out>().nodeid, file.node);
  EXPECT_EQ(Release(file), 0);
  EXPECT_EQ(Contents("/file"), "contents");
}

TEST_F(OperationsTest, PagesAreKeptFromOneOpenToTheNextUnlessTheFileHasChanged) {
  const uint64_t node = Make("file", "contents");
  const auto read_once = [&] {
    const Opened file = Open(node, O_RDONLY);
    EXPECT_TRUE(file.flags & FOPEN_NOFLUSH) << "there is nothing to commit";
    EXPECT_EQ(Read(file).error, 0);
    EXPECT_EQ(Release(file), 0);
    return (file.flags & FOPEN_KEEP_CACHE) != 0;
  };
  EXPECT_FALSE(read_once());
  EXPECT_TRUE(read_once());
  const Opened writer = Open(node, O_WRONLY);
  EXPECT_FALSE(writer.flags & FOPEN_NOFLUSH);
  EXPECT_EQ(Write(writer, "C").error, 0);
  EXPECT_EQ(Release(writer), 0);
  EXPECT_FALSE(read_once());
  EXPECT_TRUE(read_once());
}

TEST_F(OperationsTest, AnOpenTakesBackTheAttributesThatTheKernelMayHave) {
  const uint64_t node = Make("file", "contents");
  kernel_->notices();
  EXPECT_EQ(Release(Open(node, O_RDONLY)), 0);
  EXPECT_EQ(kernel_->notices(), 1);
}

TEST_F(OperationsTest, AnOpenTruncates) {
  const uint64_t node = Make("file", "contents");
  const Opened file = Open(node, O_WRONLY | O_TRUNC);
  EXPECT_EQ(Write(file, "new").error, 0);
  EXPECT_EQ(Release(file), 0);
  EXPECT_EQ(Contents("/file"), "new");
}

TEST_F(OperationsTest, AttributesAreChanged) {
  const uint64_t node = Make("file", "contents");
  fuse_setattr_in in{.size = 3, .atime = 1000, .mtime = 2000, .mtimensec = 7};
  in.mode = S_IFREG | 0600;
  in.uid = 5;
  in.gid = 6;
  const auto attributes =
      SetAttributes(node, in,
                    FATTR_MODE | FATTR_UID | FATTR_GID | FATTR_SIZE | FATTR_ATIME | FATTR_MTIME)
          .As<fuse_attr_out>()
          .attr;
  EXPECT_EQ(attributes.mode, S_IFREG | 0600u);
  EXPECT_EQ(attributes.uid, 5u);
  EXPECT_EQ(attributes.gid, 6u);
  EXPECT_EQ(attributes.size, 3u);
  EXPECT_EQ(attributes.atime, 1000u);
  EXPECT_EQ(attributes.mtime, 2000u);
  EXPECT_EQ(attributes.mtimensec, 7u);
  EXPECT_EQ(Contents("/file"), "con");
  EXPECT_EQ(SetAttributes(kRoot, {.size = 3}, FATTR_SIZE).error, EISDIR);
}

TEST_F(OperationsTest, WhereAllSeemsToBelongToSomebodyItIsGivenToNobodyElse) {
  const uint64_t node = Make("file", "contents");
  MountOptions options;
  options.user = 7;
  Start(options);
  EXPECT_EQ(Lookup("file").As<fuse_entry_out>().attr.uid, 7u);
  fuse_setattr_in in{};
  in.uid = 8;
  EXPECT_EQ(SetAttributes(node, in, FATTR_UID).error, EPERM);
  in.uid = 7;
  EXPECT_EQ(SetAttributes(node, in, FATTR_UID).error, 0);
  EXPECT_EQ(fs_->GetAttributes(node)->owner.user, 0u) << "which changes nothing";
}

TEST_F(OperationsTest, DirectoriesNodesAndLinksAreMade) {
  const auto made =
      Ask(FUSE_MKDIR, kRoot, Raw(fuse_mkdir_in{.mode = 0777, .umask = 027}) + Name("directory"))
          .As<fuse_entry_out>();
  EXPECT_EQ(made.attr.mode, S_IFDIR | 0750u);
  const auto pipe = Ask(FUSE_MKNOD, made.nodeid,
                        Raw(fuse_mknod_in{.mode = S_IFIFO | 0600, .umask = 0}) + Name("pipe"))
                        .As<fuse_entry_out>();
  EXPECT_EQ(pipe.attr.mode, S_IFIFO | 0600u);
  const auto link =
      Ask(FUSE_SYMLINK, kRoot, Name("link") + Name("directory/pipe")).As<fuse_entry_out>();
  EXPECT_EQ(Ask(FUSE_READLINK, link.nodeid).body, "directory/pipe");
  EXPECT_EQ(Ask(FUSE_READLINK, pipe.nodeid).error, EINVAL);
  EXPECT_EQ(
      Ask(FUSE_LINK, kRoot, Raw(fuse_link_in{.oldnodeid = made.nodeid}) + Name("second")).error,
      EPERM);
  EXPECT_EQ(Ask(FUSE_RMDIR, kRoot, Name("directory")).error, ENOTEMPTY);
  EXPECT_EQ(Ask(FUSE_UNLINK, kRoot, Name("directory")).error, EISDIR);
  EXPECT_EQ(Ask(FUSE_RMDIR, kRoot, Name("link")).error, ENOTDIR);
  EXPECT_EQ(Ask(FUSE_UNLINK, made.nodeid, Name("pipe")).error, 0);
  EXPECT_EQ(Ask(FUSE_RMDIR, kRoot, Name("directory")).error, 0);
  EXPECT_EQ(List(), std::vector<std::string>{"link"});
}

TEST_F(OperationsTest, ARenameReplacesExchangesOrRefuses) {
  Make("one", "1");
  Make("two", "2");
  EXPECT_EQ(Rename("one", "two", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(Rename("one", "two", RENAME_EXCHANGE), 0);
  EXPECT_EQ(Contents("/one"), "2");
  EXPECT_EQ(Contents("/two"), "1");
  EXPECT_EQ(Rename("one", "three", RENAME_NOREPLACE), 0);
  EXPECT_EQ(Rename("three", "two"), 0);
  EXPECT_EQ(Contents("/two"), "2");
  EXPECT_EQ(List(), std::vector<std::string>{"two"});
  EXPECT_EQ(Rename("two", "four", RENAME_WHITEOUT), EINVAL);
  EXPECT_EQ(Rename("two", "four", RENAME_EXCHANGE), ENOENT);
  EXPECT_EQ(Rename("none", "four"), ENOENT);
}

// As getxattr(2) asks: first for the length, then for the bytes.
TEST_F(OperationsTest, ExtendedAttributesAreKept) {
  const uint64_t node = Make("file", "x");
  EXPECT_EQ(SetExtended(node, "user.a", "value"), 0);
  EXPECT_EQ(GetExtended(node, "user.a", 0).As<fuse_getxattr_out>().size, 5u);
  EXPECT_EQ(GetExtended(node, "user.a", 5).body, "value");
  EXPECT_EQ(GetExtended(node, "user.a", 4).error, ERANGE);
  EXPECT_EQ(SetExtended(node, "user.a", "x", XATTR_CREATE), EEXIST);
  EXPECT_EQ(SetExtended(node, "user.b", "x", XATTR_REPLACE), ENODATA);
  EXPECT_EQ(SetExtended(node, "odd.b", "x"), EOPNOTSUPP);
  EXPECT_EQ(SetExtended(node, "trusted.c", "x"), 0);
  const std::string ask = Raw(fuse_getxattr_in{.size = 100});
  EXPECT_EQ(Ask(FUSE_LISTXATTR, node, ask).body, Name("user.a"));
  kernel_->user = 0;
  EXPECT_EQ(Ask(FUSE_LISTXATTR, node, ask).body, Name("trusted.c") + Name("user.a"));
  EXPECT_EQ(Ask(FUSE_REMOVEXATTR, node, Name("user.a")).error, 0);
  EXPECT_EQ(Ask(FUSE_REMOVEXATTR, node, Name("user.a")).error, ENODATA);
}

TEST_F(OperationsTest, WithoutAclsTheyCanBeNeitherSeenNorSet) {
  const uint64_t node = Make("file", "x");
  EXPECT_EQ(GetExtended(node, "system.posix_acl_access", 0).error, ENODATA);
  MountOptions options;
  options.acls = false;
  Start(options);
  EXPECT_EQ(GetExtended(node, "system.posix_acl_access", 0).error, EOPNOTSUPP);
  EXPECT_EQ(SetExtended(node, "system.posix_acl_access", "x"), EOPNOTSUPP);
}

TEST_F(OperationsTest, ARangeIsCopied) {
  const std::string bytes = Pattern(1, 500'000);
  const Opened source = Open(Make("source", bytes), O_RDONLY);
  const Opened target = Create("target");
  const fuse_copy_file_range_in in{.fh_in = source.handle,
                                   .off_in = 1000,
                                   .nodeid_out = target.node,
                                   .fh_out = target.handle,
                                   .off_out = 5,
                                   .len = 400'000};
  EXPECT_EQ(Ask(FUSE_COPY_FILE_RANGE, source.node, Raw(in)).As<fuse_write_out>().size, 400'000u);
  EXPECT_EQ(Release(source), 0);
  EXPECT_EQ(Release(target), 0);
  EXPECT_EQ(Contents("/target"), std::string(5, '\0') + bytes.substr(1000, 400'000));
}

TEST_F(OperationsTest, HolesAreFoundAndMade) {
  const Opened file = Create("file");
  const auto seek = [&](uint64_t offset, uint32_t whence) {
    return Ask(FUSE_LSEEK, file.node,
               Raw(fuse_lseek_in{.fh = file.handle, .offset = offset, .whence = whence}));
  };
  const auto allocate = [&](uint64_t offset, uint64_t length, uint32_t mode) {
    const fuse_fallocate_in in{.fh = file.handle, .offset = offset, .length = length, .mode = mode};
    return Ask(FUSE_FALLOCATE, file.node, Raw(in)).error;
  };
  EXPECT_EQ(Write(file, "x", 10 * kTestBlock).error, 0);
  EXPECT_EQ(seek(0, SEEK_DATA).As<fuse_lseek_out>().offset, 10 * kTestBlock);
  EXPECT_EQ(seek(0, SEEK_HOLE).As<fuse_lseek_out>().offset, 0u);
  EXPECT_EQ(seek(11 * kTestBlock, SEEK_DATA).error, ENXIO);
  EXPECT_EQ(seek(0, SEEK_CUR).error, EINVAL) << "the kernel knows that itself";

  EXPECT_EQ(Write(file, "abcd").error, 0);
  EXPECT_EQ(allocate(1, 2, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), 0);
  EXPECT_EQ(Read(file, 0, 4).body, std::string("a\0\0d", 4));
  EXPECT_EQ(allocate(0, 1, FALLOC_FL_ZERO_RANGE), 0);
  EXPECT_EQ(Read(file, 0, 4).body, std::string("\0\0\0d", 4));
  EXPECT_EQ(allocate(0, 20 * kTestBlock, 0), 0);
  const auto attributes =
      Ask(FUSE_GETATTR, file.node,
          Raw(fuse_getattr_in{.getattr_flags = FUSE_GETATTR_FH, .fh = file.handle}))
          .As<fuse_attr_out>();
  EXPECT_EQ(attributes.attr.size, 20 * kTestBlock);
  EXPECT_EQ(allocate(0, 1, FALLOC_FL_PUNCH_HOLE), EOPNOTSUPP);
  EXPECT_EQ(allocate(0, kTestBlock, FALLOC_FL_COLLAPSE_RANGE), EOPNOTSUPP);
  EXPECT_EQ(Release(file), 0);
}

TEST_F(OperationsTest, AListingBringsAttributesAndGoesOnWhereItStopped) {
  std::map<std::string, uint64_t> expected = {{".", 0}, {"..", 0}};
  for (int i = 0; i < 50; ++i) {
    const std::string name = fmt::format("file{}", i);
    Make(name, std::string(static_cast<size_t>(i), 'x'));
    expected[name] = static_cast<uint64_t>(i);
  }
  const auto handle = Ask(FUSE_OPENDIR, kRoot, Raw(fuse_open_in{})).As<fuse_open_out>().fh;
  std::map<std::string, uint64_t> found;  // with their sizes
  int answers = 0;
  for (uint64_t position = 0;; ++answers) {
    const fuse_read_in in{.fh = handle, .offset = position, .size = 2000};
    const Reply reply = Ask(FUSE_READDIRPLUS, kRoot, Raw(in));
    ASSERT_EQ(reply.error, 0);
    if (reply.body.empty()) break;
    ASSERT_LE(reply.body.size(), 2000u);
    for (size_t at = 0; at < reply.body.size();) {
      const auto plus = reply.As<fuse_direntplus>(at);
      const std::string name =
          reply.body.substr(at + FUSE_NAME_OFFSET_DIRENTPLUS, plus.dirent.namelen);
      EXPECT_TRUE(found.emplace(name, plus.entry_out.attr.size).second) << name << " once more";
      EXPECT_EQ(plus.entry_out.nodeid == 0, name[0] == '.') << name;
      position = plus.dirent.off;
      at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + plus.dirent.namelen);
    }
  }
  EXPECT_EQ(found, expected);
  EXPECT_GT(answers, 3);
  const fuse_read_in never{.fh = handle, .offset = 12345, .size = 2000};
  EXPECT_EQ(Ask(FUSE_READDIRPLUS, kRoot, Raw(never)).error, EINVAL);
  EXPECT_EQ(Ask(FUSE_RELEASEDIR, kRoot, Raw(fuse_release_in{.fh = handle})).error, 0);
}

// What `ls -l` asks for of each file, whose attributes the kernel has from the listing.
class ListedOperationsTest : public OperationsTest {
 protected:
  // The second host has the mount. The first one stands for others.
  void SetUp() override {
    OperationsTest::SetUp();
    options_.listed_age = MountOptions().attribute_age;
    mounted_ = NewHost();
    MountWith({});
  }
  void TearDown() override {
    OperationsTest::TearDown();
    mounted_ = {};
  }
  void MountWith(const MountOptions& options) {
    kernel_.reset();
    kernel_ = std::make_unique<Kernel>(sim_, *mounted_.fs, options);
  }
  // Some time after all that was done before.
  void ListLater() {
    sim_.Sleep(std::chrono::milliseconds(20));
    ListPlus();
  }
  std::string AccessAcl(uint64_t node) {
    const Reply reply = GetExtended(node, kAccessAcl, 1000);
    return reply.error == 0 ? reply.body : ErrnoText(reply.error);
  }

  const std::string none_ = ErrnoText(ENODATA);
  // The owner, user 7, the group, the mask and others.
  static std::string Acl(uint16_t mask) {
    return EncodeAcl({{AclTag::kOwner, 6},
                      {AclTag::kUser, 4, 7},
                      {AclTag::kOwningGroup, 4},
                      {AclTag::kMask, mask},
                      {AclTag::kOther, 0}});
  }
  Host mounted_;
};

TEST_F(ListedOperationsTest, AListingHasTheAclsAndCapabilitiesOfAThousandFiles) {
  constexpr uint64_t kFiles = 1000;
  constexpr uint64_t kReplicas = 3;
  std::vector<uint64_t> nodes;
  for (uint64_t i = 0; i < kFiles; ++i) nodes.push_back(Make(fmt::format("file{:03}", i), "x"));
  ASSERT_OK(fs_->SetExtended(nodes[7], kAccessAcl, Acl(4)));
  ASSERT_OK(fs_->SetExtended(nodes[8], kCapability, "able"));
  const auto ask_for_each = [&] {
    for (const uint64_t node : nodes) {
      EXPECT_EQ(GetExtended(node, kAccessAcl, 1000).error, node == nodes[7] ? 0 : ENODATA);
      EXPECT_EQ(GetExtended(node, kCapability, 1000).error, node == nodes[8] ? 0 : ENODATA);
    }
  };
  const uint64_t listing = CountRequests([&] { ListLater(); });
  EXPECT_EQ(CountRequests(ask_for_each), 0u);
  EXPECT_LT(listing, (kFiles + 100) * kReplicas);
  EXPECT_EQ(AccessAcl(nodes[7]), Acl(4));
  EXPECT_EQ(GetExtended(nodes[8], kCapability, 1000).body, "able");

  // Once the kernel does not believe the listing any more, each is asked for.
  sim_.Sleep(std::chrono::seconds(1));
  EXPECT_GE(CountRequests(ask_for_each), kFiles * kReplicas);
  // So they are on a mount that believes nothing.
  MountWith({.attribute_age = Duration::zero()});
  ListLater();
  EXPECT_GE(CountRequests(ask_for_each), 2 * kFiles * kReplicas);
}

TEST_F(ListedOperationsTest, WhatThisMountChangesIsSeenAtOnce) {
  const uint64_t node = Make("file", "x");
  ListLater();
  EXPECT_EQ(AccessAcl(node), none_);
  EXPECT_EQ(SetExtended(node, kAccessAcl, Acl(4)), 0);
  EXPECT_EQ(AccessAcl(node), Acl(4));
  ListLater();
  EXPECT_EQ(AccessAcl(node), Acl(4));
  fuse_setattr_in in{};
  in.mode = S_IFREG | 0620;
  EXPECT_EQ(SetAttributes(node, in, FATTR_MODE).error, 0);
  EXPECT_EQ(AccessAcl(node), Acl(2)) << "by chmod";
  EXPECT_EQ(SetExtended(node, kCapability, "able"), 0);
  EXPECT_EQ(GetExtended(node, kCapability, 1000).body, "able");
  ListLater();
  EXPECT_EQ(Ask(FUSE_REMOVEXATTR, node, Name(kCapability)).error, 0);
  EXPECT_EQ(GetExtended(node, kCapability, 1000).error, ENODATA);
  ListLater();
  EXPECT_EQ(Ask(FUSE_UNLINK, kRoot, Name("file")).error, 0);
  EXPECT_EQ(GetExtended(node, kAccessAcl, 1000).error, ESTALE);
}

TEST_F(ListedOperationsTest, WhatAnotherHostChangesIsSeenAfterASecondOrTheNextLook) {
  const uint64_t node = Make("file", "x");
  ListLater();
  ASSERT_OK(fs_->SetExtended(node, kAccessAcl, Acl(4)));
  ASSERT_OK(fs_->SetExtended(node, kCapability, "able"));
  EXPECT_EQ(AccessAcl(node), none_) << "as the attributes that came with it";
  EXPECT_EQ(NodeOf("file"), node);
  EXPECT_EQ(AccessAcl(node), Acl(4)) << "as the attributes that the kernel has now";
  ListLater();
  ASSERT_OK(fs_->SetExtended(node, kAccessAcl, Acl(2)));
  EXPECT_EQ(AccessAcl(node), Acl(4));
  EXPECT_EQ(NodeOf("file"), node);
  EXPECT_EQ(AccessAcl(node), Acl(2)) << "never older than the mask that the kernel has now";
  ASSERT_OK(fs_->SetExtended(node, kAccessAcl, Acl(4)));

  ASSERT_OK(fs_->RemoveExtended(node, kCapability));
  ListLater();
  ASSERT_OK(fs_->SetExtended(node, kCapability, "once more"));
  EXPECT_EQ(GetExtended(node, kCapability, 1000).error, ENODATA);
  const Opened file = Open(node, O_RDONLY);
  EXPECT_EQ(GetExtended(node, kCapability, 1000).body, "once more") << "for who runs it now";
  EXPECT_EQ(Release(file), 0);

  ListLater();
  ASSERT_OK(fs_->RemoveExtended(node, kAccessAcl));
  EXPECT_EQ(AccessAcl(node), Acl(4));
  sim_.Sleep(std::chrono::seconds(1));
  EXPECT_NE(AccessAcl(node), Acl(4));
}

// What programs keep there is there for every host at once.
// As `rm -r` does it: the directory is listed, then each name is removed, and then the directory.
// The kernel believes the listing, and so does the mount: nothing is looked up once more.
TEST_F(ListedOperationsTest, ATreeIsRemovedByItsListing) {
  constexpr uint64_t kFiles = 200;
  constexpr uint64_t kReplicas = 3;
  const InodeId tree = MakeDirectory("tree");
  for (uint64_t i = 0; i < kFiles; ++i) Make(fmt::format("file{}", i), "x", tree);
  ASSERT_EQ(NodeOf("tree"), tree);
  ListPlus(tree);
  const uint64_t unlinking = CountRequests([&] {
    for (uint64_t i = 0; i < kFiles; ++i) {
      ASSERT_EQ(Ask(FUSE_UNLINK, tree, Name(fmt::format("file{}", i))).error, 0);
    }
  });
  // Entry and inode; the time of the directory follows for many at once.
  EXPECT_GE(unlinking, 2 * kReplicas * kFiles);
  EXPECT_LE(unlinking, 2 * kReplicas * kFiles + kReplicas * (kFiles / 8));
  EXPECT_EQ(Ask(FUSE_RMDIR, kRoot, Name("tree")).error, 0);
  EXPECT_EQ(List(), std::vector<std::string>{});
}

TEST_F(ListedOperationsTest, OtherExtendedAttributesAreAlwaysAskedFor) {
  const uint64_t node = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(node, "user.a", "before"));
  ListLater();
  ASSERT_OK(fs_->SetExtended(node, "user.a", "after"));
  EXPECT_EQ(GetExtended(node, "user.a", 1000).body, "after");
}

// A program that goes to a position wants little; one that reads on wants the rest.
TEST_F(OperationsTest, AfterASeekAnAnswerIsSmallAndThoseThatFollowGrow) {
  constexpr uint64_t kFiles = 300;
  constexpr uint64_t kReplicas = 3;
  for (uint64_t i = 0; i < kFiles; ++i) Make(fmt::format("file{:03}", i), "x");
  const auto handle = Ask(FUSE_OPENDIR, kRoot, Raw(fuse_open_in{})).As<fuse_open_out>().fh;
  const auto list = [&](uint64_t position) {
    std::vector<std::pair<std::string, uint64_t>> names;  // with the positions after them
    const fuse_read_in in{.fh = handle, .offset = position, .size = 128 << 10};
    const Reply reply = Ask(FUSE_READDIRPLUS, kRoot, Raw(in));
    EXPECT_EQ(reply.error, 0);
    for (size_t at = 0; at < reply.body.size();) {
      const auto plus = reply.As<fuse_direntplus>(at);
      names.emplace_back(reply.body.substr(at + FUSE_NAME_OFFSET_DIRENTPLUS, plus.dirent.namelen),
                         plus.dirent.off);
      at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + plus.dirent.namelen);
    }
    return names;
  };
  const auto all = list(0);
  ASSERT_EQ(all.size(), kFiles + 2) << "who begins gets all";
  for (const size_t place : {200u, 50u, 51u, 250u}) {
    std::vector<std::pair<std::string, uint64_t>> page;
    sim_.Sleep(seconds(2));  // what was listed before is too old
    EXPECT_LT(CountRequests([&] { page = list(all[place].second); }), 30 * kReplicas);
    size_t expected = 16;
    for (size_t next = place + 1; next < all.size(); expected *= 2) {
      EXPECT_EQ(page.size(), std::min(expected, all.size() - next));
      for (const auto& entry : page) {
        ASSERT_LT(next, all.size());
        EXPECT_EQ(entry, all[next++]);
      }
      page = list(page.back().second);
    }
    EXPECT_TRUE(page.empty());
  }
  EXPECT_EQ(list(0), all) << "rewound";
  EXPECT_EQ(Ask(FUSE_RELEASEDIR, kRoot, Raw(fuse_release_in{.fh = handle})).error, 0);
}

TEST_F(OperationsTest, WhoGoesToAndFroInAListingAsksTheDrivesOnce) {
  for (int i = 0; i < 100; ++i) Make(fmt::format("file{:03}", i), "x");
  Host other = NewHost();
  const auto handle = Ask(FUSE_OPENDIR, kRoot, Raw(fuse_open_in{})).As<fuse_open_out>().fh;
  std::map<uint64_t, std::string> names;  // with the positions before them
  const auto list = [&](uint64_t position) {
    const fuse_read_in in{.fh = handle, .offset = position, .size = 128 << 10};
    const Reply reply = Ask(FUSE_READDIRPLUS, kRoot, Raw(in));
    EXPECT_EQ(reply.error, 0);
    std::string first;
    uint64_t before = position;
    for (size_t at = 0; at < reply.body.size();) {
      const auto plus = reply.As<fuse_direntplus>(at);
      const auto name = reply.body.substr(at + FUSE_NAME_OFFSET_DIRENTPLUS, plus.dirent.namelen);
      if (first.empty()) first = name;
      if (position == 0) names[before] = name;
      before = plus.dirent.off;
      EXPECT_NE(plus.dirent.type, 0u);
      at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + plus.dirent.namelen);
    }
    return first;
  };
  list(0);
  ASSERT_EQ(names.size(), 102u);
  const auto go_everywhere = [&] {
    for (const auto& [position, name] : names) {
      if (position <= 2) continue;
      EXPECT_EQ(list(position), name);
    }
  };
  EXPECT_EQ(CountRequests(go_everywhere), 0u);
  // What this mount changes is seen at once.
  const uint64_t place = std::next(names.begin(), 50)->first;
  const std::string gone = names[place];
  EXPECT_EQ(Ask(FUSE_UNLINK, kRoot, gone + '\0').error, 0);
  EXPECT_NE(list(place), gone);
  list(0);
  // And what others change when the kernel would look a name up, too.
  names.clear();
  list(0);
  const std::string next = names[place];
  ASSERT_OK(other->Unlink(kRootInode, next));
  sim_.Sleep(seconds(2));
  EXPECT_NE(list(place), next);
  EXPECT_EQ(Ask(FUSE_RELEASEDIR, kRoot, Raw(fuse_release_in{.fh = handle})).error, 0);
}

TEST_F(OperationsTest, ProgramsAreToldToReadAndWriteModestPieces) {
  Make("file", "x");
  EXPECT_EQ(Lookup("file").As<fuse_entry_out>().attr.blksize, 128u << 10);
}

TEST_F(OperationsTest, SpaceIsWhatTheFileSystemSays) {
  const auto out = Ask(FUSE_STATFS, kRoot).As<fuse_statfs_out>();
  EXPECT_EQ(out.st.blocks, fs_->Space()->usable_bytes / out.st.bsize);
  EXPECT_EQ(out.st.namelen, kMaxNameBytes);
}

// The kernel then looks the name up anew.
TEST_F(OperationsTest, WhatIsAskedForByItsNumberAndGoneIsStale) {
  const uint64_t node = Make("file", "x");
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_EQ(AskOpen(node, O_RDONLY).error, ESTALE);
  EXPECT_EQ(Ask(FUSE_GETATTR, node, Raw(fuse_getattr_in{})).error, ESTALE);
  EXPECT_EQ(SetAttributes(node, {.size = 1}, FATTR_SIZE).error, ESTALE);
  EXPECT_EQ(GetExtended(node, "user.a", 0).error, ESTALE);
}

TEST_F(OperationsTest, FailuresOfTheClusterAreIoErrorsAndCounted) {
  Make("file", "x");
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, true);
  EXPECT_EQ(Lookup("other").error, EIO);
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, false);
  const std::string text = kernel_->mount().counters().Text(fs_->Memory());
  EXPECT_NE(text.find("errors_total 1\n"), std::string::npos) << text;
}

TEST_F(OperationsTest, LocksAreRefusedWhereTheyShallNotBeHad) {
  const Opened before = Create("file");
  EXPECT_EQ(Release(before), 0);
  MountOptions options;
  options.locks = false;
  Start(options);
  EXPECT_EQ(kernel_->init().flags & (FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS),
            unsigned{FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS});
  const Opened file = Open(before.node, O_RDWR);
  const auto lock = [&](uint32_t opcode, uint32_t type) {
    return Ask(opcode, file.node, Raw(fuse_lk_in{.fh = file.handle, .lk = {.type = type}})).error;
  };
  EXPECT_EQ(lock(FUSE_GETLK, F_WRLCK), ENOLCK);
  EXPECT_EQ(lock(FUSE_SETLK, F_WRLCK), ENOLCK);
  EXPECT_EQ(lock(FUSE_SETLK, F_UNLCK), 0) << "to give up what nobody can have is no mistake";
  EXPECT_EQ(Release(file), 0);
}

TEST_F(OperationsTest, TheMountTellsOfItselfInADirectoryThatNoListingHas) {
  const auto directory = Lookup(".pinstripe").As<fuse_entry_out>();
  EXPECT_EQ(directory.nodeid, kVirtualDirectory);
  const uint64_t config = Lookup("config", directory.nodeid).As<fuse_entry_out>().nodeid;
  const Opened file = Open(config, O_RDONLY);
  EXPECT_TRUE(file.flags & FOPEN_DIRECT_IO);
  EXPECT_EQ(Read(file).body, "what is mounted\n");
  EXPECT_EQ(Release(file), 0);
  EXPECT_EQ(AskOpen(config, O_WRONLY).error, EACCES);
  EXPECT_EQ(SetAttributes(config, {.size = 1}, FATTR_SIZE).error, EPERM);
}

TEST_F(OperationsTest, ARequestThatIsUnknownIsRefused) {
  EXPECT_EQ(Ask(9999, kRoot).error, ENOSYS);
  EXPECT_EQ(Ask(FUSE_BMAP, kRoot, Raw(fuse_bmap_in{})).error, ENOSYS);
}

}  // namespace
}  // namespace pinstripe
