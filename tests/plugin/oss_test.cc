// What XRootD's server sees of a cluster, called as the server calls it: through the interfaces of
// its own headers, and with nothing of the plugin beside. A second FileSystem (`fs_`) stands for
// everybody else, who sees by close-to-open what the server's clients have done.

#include "plugin/oss.h"

#include <fcntl.h>
#include <sys/time.h>

#include <XrdOss/XrdOss.hh>
#include <XrdOuc/XrdOucEnv.hh>
#include <XrdOuc/XrdOucIOVec.hh>
#include <XrdSec/XrdSecEntity.hh>
#include <XrdSfs/XrdSfsAio.hh>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "plugin/file_attributes.h"
#include "plugin/page_checksums.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

// As the server names a client: user.process:connection@host.
constexpr const char* kClient = "anna.17:32@host";
constexpr const char* kSameClient = "anna.17:33@host";  // has connected anew
constexpr const char* kOther = "bert.18:34@host";

constexpr int kUpload = O_RDWR | O_CREAT | O_TRUNC;

class OssTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    auto host = NewHost();
    cluster_ = std::move(host.cluster);
    oss_ = std::make_unique<Oss>(sim_, *cluster_, std::move(host.fs));
  }

  XrdOss& oss() { return *oss_; }

  std::unique_ptr<XrdOssDF> NewFile(const char* client = kClient) {
    return std::unique_ptr<XrdOssDF>(oss().newFile(client));
  }
  std::unique_ptr<XrdOssDF> Opened(const char* path, int flags, const char* client = kClient,
                                   const char* opaque = "") {
    auto file = NewFile(client);
    XrdOucEnv env(opaque);
    EXPECT_EQ(file->Open(path, flags, 0640, env), 0) << path;
    return file;
  }
  int OpenFails(const char* path, int flags) {
    auto file = NewFile();
    XrdOucEnv env;
    return file->Open(path, flags, 0640, env);
  }
  int Create(const char* path, int options = 0, const char* client = kClient) {
    XrdOucEnv env;
    return oss().Create(client, path, 0640, env, options);
  }
  static ssize_t Put(XrdOssDF& file, std::string_view bytes, off_t offset = 0) {
    return file.Write(bytes.data(), offset, bytes.size());
  }
  static std::string Get(XrdOssDF& file, off_t offset = 0, size_t most = 1 << 20) {
    std::string bytes(most, '?');
    const ssize_t read = file.Read(bytes.data(), offset, most);
    EXPECT_GE(read, 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(read, 0)));
    return bytes;
  }
  // Asks and opens as the server does for a client that uploads.
  void Upload(const char* path, std::string_view bytes) {
    ASSERT_EQ(Create(path), -ENOTSUP) << "which says: leave it to Open()";
    auto file = Opened(path, kUpload);
    ASSERT_EQ(Put(*file, bytes), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(file->Close(), 0);
  }
  std::string Download(const char* path) {
    auto file = Opened(path, O_RDONLY);
    const std::string bytes = Get(*file);
    EXPECT_EQ(file->Close(), 0);
    return bytes;
  }
  int Stat(const char* path, struct stat* out = nullptr) {
    struct stat ignored = {};
    return oss().Stat(path, out == nullptr ? &ignored : out, 0, nullptr);
  }

  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Oss> oss_;
};

// ---- Files

TEST_F(OssTest, AnUploadAppearsWhenItIsClosed) {
  ASSERT_EQ(Create("/file"), -ENOTSUP);
  auto file = Opened("/file", kUpload);
  const std::string bytes = Pattern(1, 300'000);
  EXPECT_EQ(Put(*file, bytes), 300'000);
  EXPECT_FAILS(fs_->Resolve("/file"), ENOENT) << "nobody else sees it yet";
  struct stat stat = {};
  EXPECT_EQ(Stat("/file", &stat), 0) << "but the server's own clients can ask for it";
  EXPECT_EQ(stat.st_size, 300'000);

  long long size = 0;
  EXPECT_EQ(file->Close(&size), 0);
  EXPECT_EQ(size, 300'000);
  EXPECT_EQ(Contents("/file"), bytes);
  EXPECT_EQ(Download("/file"), bytes);
}

TEST_F(OssTest, AFileThatIsReplacedHasItsOldContentsUntilThen) {
  Upload("/file", "old");
  auto reader = Opened("/file", O_RDONLY);
  ASSERT_EQ(Create("/file"), -ENOTSUP);
  auto writer = Opened("/file", kUpload);
  EXPECT_EQ(Put(*writer, "new contents"), 12);
  EXPECT_EQ(Contents("/file"), "old");
  EXPECT_EQ(writer->Close(), 0);
  EXPECT_EQ(Contents("/file"), "new contents");
  EXPECT_EQ(Get(*reader), "old") << "who has it open keeps it";
  EXPECT_EQ(reader->Close(), 0);
}

TEST_F(OssTest, TheServersUserOwnsWhatItMakesAndTheModeIsTheClients) {
  Upload("/file", "x");
  struct stat stat = {};
  ASSERT_EQ(Stat("/file", &stat), 0);
  EXPECT_EQ(stat.st_mode, S_IFREG | 0640u);
  EXPECT_EQ(stat.st_uid, geteuid());
  EXPECT_EQ(stat.st_gid, getegid());
  EXPECT_NE(stat.st_dev, 0u) << "0 says that a file is offline";
  EXPECT_EQ(fs_->Resolve("/file")->owner.user, geteuid());
}

TEST_F(OssTest, OneClientAtATimeUploadsToAName) {
  ASSERT_EQ(Create("/file"), -ENOTSUP);
  EXPECT_EQ(Create("/file", 0, kOther), -ETXTBSY) << "the first is about to open it";
  auto file = Opened("/file", kUpload);
  EXPECT_EQ(Create("/file", 0, kOther), -ETXTBSY);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Create("/file", 0, kOther), -ENOTSUP);
}

TEST_F(OssTest, TwoOpensOfOneFileSeeWhatEitherWrites) {
  Upload("/file", "0123456789");
  auto writer = Opened("/file", O_RDWR);
  auto reader = Opened("/file", O_RDONLY);
  EXPECT_EQ(Put(*writer, "ab", 3), 2);
  EXPECT_EQ(Get(*reader), "012ab56789");
  EXPECT_EQ(Contents("/file"), "0123456789") << "elsewhere it is seen once it is closed";
  EXPECT_EQ(writer->Fsync(), 0);
  EXPECT_EQ(Contents("/file"), "012ab56789");
  EXPECT_EQ(writer->Close(), 0);
  EXPECT_EQ(reader->Close(), 0);
}

TEST_F(OssTest, ReadsEndWithTheFile) {
  Upload("/file", "0123456789");
  auto file = Opened("/file", O_RDONLY);
  char bytes[20];
  EXPECT_EQ(file->Read(bytes, 4, 3), 3);
  EXPECT_EQ(std::string(bytes, 3), "456");
  EXPECT_EQ(file->Read(bytes, 4, 20), 6);
  EXPECT_EQ(file->Read(bytes, 10, 20), 0);
  EXPECT_EQ(file->Read(bytes, 1'000'000, 20), 0);
  EXPECT_EQ(file->ReadRaw(bytes, 8, 20), 2);
  EXPECT_EQ(file->Read(bytes, -1, 20), -EINVAL);
}

TEST_F(OssTest, AVectorIsReadAsAWholeOrNotAtAll) {
  const std::string bytes = Pattern(1, 400'000);
  Upload("/file", bytes);
  auto file = Opened("/file", O_RDONLY);
  std::array<std::string, 3> out = {std::string(1000, '?'), std::string(1, '?'),
                                    std::string(200'000, '?')};
  const std::array<long long, 3> offsets = {390'000, 0, 100'000};
  std::vector<XrdOucIOVec> parts;
  for (size_t i = 0; i < out.size(); ++i) {
    parts.push_back({offsets[i], static_cast<int>(out[i].size()), 0, out[i].data()});
  }
  EXPECT_EQ(file->ReadV(parts.data(), 3), 201'001);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], bytes.substr(static_cast<size_t>(offsets[i]), out[i].size())) << i;
  }
  EXPECT_EQ(file->ReadV(parts.data(), 0), 0);
  parts[0].offset = 399'500;
  EXPECT_EQ(file->ReadV(parts.data(), 3), -ESPIPE) << "beyond the end";
  parts[0].offset = -1;
  EXPECT_EQ(file->ReadV(parts.data(), 3), -EINVAL);
  parts[0].offset = 0;
  parts[2].size = -1;
  EXPECT_EQ(file->ReadV(parts.data(), 3), -EINVAL);
}

TEST_F(OssTest, PagesComeWithTheirChecksums) {
  const std::string bytes = Pattern(1, 10'000);
  Upload("/file", bytes);
  auto file = Opened("/file", O_RDONLY);
  std::string out(10'000, '?');
  uint32_t sums[4] = {};
  // Of a page in part, a whole one, and what there is of the last.
  EXPECT_EQ(file->pgRead(out.data(), 4000, 10'000, sums, 0), 6000);
  EXPECT_EQ(out.substr(0, 6000), bytes.substr(4000));
  EXPECT_EQ(sums[0], Crc32c(AsBytes(bytes.substr(4000, 96))));
  EXPECT_EQ(sums[1], Crc32c(AsBytes(bytes.substr(4096, 4096))));
  EXPECT_EQ(sums[2], Crc32c(AsBytes(bytes.substr(8192))));
  EXPECT_EQ(sums[3], 0u);
  EXPECT_EQ(file->pgRead(out.data(), -1, 10, sums, 0), -EINVAL);
  EXPECT_EQ(file->pgRead(out.data(), 0, 10, nullptr, 0), 10);
}

TEST_F(OssTest, PagesWithWrongChecksumsAreNotWrittenWhereTheyAreToBeVerified) {
  std::string bytes = Pattern(1, 8192);
  std::array<uint32_t, 2> sums = {};
  auto file = Opened("/file", kUpload);
  EXPECT_EQ(file->pgWrite(bytes.data(), 0, bytes.size(), sums.data(), XrdOssDF::Verify), -EDOM);
  EXPECT_EQ(Get(*file), "");
  EXPECT_EQ(file->pgWrite(bytes.data(), 0, bytes.size(), sums.data(), XrdOssDF::doCalc), 8192);
  EXPECT_TRUE(PageChecksumsMatch(0, AsBytes(bytes), sums.data())) << "they were computed";
  EXPECT_EQ(file->pgWrite(bytes.data(), 0, bytes.size(), sums.data(), XrdOssDF::Verify), 8192);
  EXPECT_EQ(file->pgWrite(bytes.data(), -1, bytes.size(), sums.data(), 0), -EINVAL);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Contents("/file"), bytes);
}

// A cell stays in memory for long. The drives of this test hold the same memory, so their shard is
// damaged, too, and is computed from others.
TEST_F(OssTest, ABitThatTurnsOverInTheCacheIsFoundAndReadAnew) {
  const std::string bytes = Pattern(1, 2 * kTestBlock + 5000);
  Upload("/file", bytes);
  auto file = Opened("/file", O_RDONLY);
  std::string out(bytes.size(), '?');
  std::vector<uint32_t> sums(CountFilePages(0, out.size()));
  const auto read = [&] { return file->pgRead(out.data(), 0, out.size(), sums.data(), 0); };
  ASSERT_EQ(read(), static_cast<ssize_t>(bytes.size()));
  ASSERT_TRUE(out == bytes);
  ASSERT_TRUE(PageChecksumsMatch(0, AsBytes(bytes), sums.data()));

  // One bit of the full shards on one of the drives.
  size_t damaged = 0;
  for (DriveId drive = 1; drive <= machines_.size() && damaged == 0; ++drive) {
    for (const std::string& key : ShardsOn(drive)) {
      Gather<Result<pinstripe::Record>> gets(sim_);
      machines_.memory(drive).Get(key, {}, Time::max(), gets.Ask(0));
      const auto record = *std::move(gets.Next(Time::max())->value);
      const auto descriptor = ShardDescriptor::Decode(record.version);
      ASSERT_OK(descriptor);
      if (descriptor->shard > 1 || descriptor->block_length != kTestBlock) continue;
      const_cast<std::byte*>(record.value.data())[5000] ^= std::byte{4};
      ++damaged;
    }
  }
  ASSERT_GT(damaged, 0u);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(read(), static_cast<ssize_t>(bytes.size()));
    EXPECT_TRUE(out == bytes);
    EXPECT_TRUE(PageChecksumsMatch(0, AsBytes(bytes), sums.data()));
  }
}

// Whatever of the file is asked for, in whichever state.
TEST_F(OssTest, PagesHaveRightChecksumsWhereverTheirBytesComeFrom) {
  std::string bytes = Pattern(1, 3 * kTestBlock + 5000);
  Upload("/file", bytes);
  auto file = Opened("/file", O_RDWR);
  const auto expect_right = [&](XrdOssDF& reader) {
    for (const size_t offset : {0ul, 1ul, 4096ul, kTestBlock - 100, 2 * kTestBlock}) {
      for (const size_t size : {10ul, 4096ul, 100'000ul, bytes.size()}) {
        std::string out(size, '?');
        std::vector<uint32_t> sums(CountFilePages(offset, size));
        const size_t there = std::min(size, bytes.size() - offset);
        ASSERT_EQ(reader.pgRead(out.data(), static_cast<off_t>(offset), size, sums.data(), 0),
                  static_cast<ssize_t>(there));
        ASSERT_TRUE(out.substr(0, there) == bytes.substr(offset, there));
        ASSERT_TRUE(PageChecksumsMatch(offset, AsBytes(out).first(there), sums.data()))
            << offset << " " << size;
      }
    }
  };
  expect_right(*file);
  // Bytes in the middle of a page that are not committed, then a patch, then another one and a
  // hole.
  const auto change = [&](size_t at, const std::string& text) {
    EXPECT_EQ(Put(*file, text, static_cast<off_t>(at)), static_cast<ssize_t>(text.size()));
    if (at > bytes.size()) bytes.resize(at);
    bytes.replace(at, text.size(), text);
  };
  change(6000, "some");
  expect_right(*file);
  EXPECT_EQ(file->Fsync(), 0);
  expect_right(*file);
  change(kTestBlock + 8192, std::string(4096, 'p'));
  change(5 * kTestBlock + 3, "behind a hole");
  expect_right(*file);
  EXPECT_EQ(file->Close(), 0);
  expect_right(*Opened("/file", O_RDONLY));
}

// The server writes pages that did not arrive as they were sent, and asks the client to send them
// again. A bit that has turned over since looks the same, but nobody asks.
TEST_F(OssTest, WhatIsNotWhatItsChecksumsSayIsNeverCommitted) {
  for (const size_t size : {size_t{1000}, size_t{300'000}}) {
    Upload("/file", "old");
    std::string bytes = Pattern(1, size);
    std::vector<uint32_t> sums(CountFilePages(0, size));
    PageChecksums(0, AsBytes(bytes), sums.data());
    bytes[size / 2] ^= 0x20;
    auto file = Opened("/file", kUpload);
    EXPECT_EQ(file->pgWrite(bytes.data(), 0, size, sums.data(), 0), static_cast<ssize_t>(size));
    EXPECT_EQ(file->Fsync(), -EDOM);
    EXPECT_EQ(file->Close(), -EDOM) << "the client is told that it is a checksum";
    EXPECT_EQ(Contents("/file"), "old");

    file = Opened("/file", kUpload);
    EXPECT_EQ(file->pgWrite(bytes.data(), 0, size, sums.data(), 0), static_cast<ssize_t>(size));
    bytes[size / 2] ^= 0x20;
    const size_t page = size / 2 / kFilePageBytes;
    const size_t begin = page * kFilePageBytes;
    const size_t length = std::min(size - begin, size_t{kFilePageBytes});
    EXPECT_EQ(
        file->pgWrite(bytes.data() + begin, static_cast<off_t>(begin), length, &sums[page], 0),
        static_cast<ssize_t>(length));
    EXPECT_EQ(file->Close(), 0);
    EXPECT_TRUE(Contents("/file") == bytes);
  }
}

// Nobody asks for it, as Features() says; who does is served, and told when it is done.
TEST_F(OssTest, AsynchronousRequestsAreDoneAtOnce) {
  struct Request final : XrdSfsAio {
    Request(char* bytes, off_t offset, size_t length) {
      sfsAio.aio_buf = bytes;
      sfsAio.aio_offset = offset;
      sfsAio.aio_nbytes = length;
    }
    void doneRead() override { ++reads; }
    void doneWrite() override { ++writes; }
    void Recycle() override {}
    int reads = 0, writes = 0;
  };
  auto file = Opened("/file", kUpload);
  std::string bytes = "contents";
  uint32_t sum = 0;
  Request write(bytes.data(), 0, bytes.size());
  EXPECT_EQ(file->Write(&write), 0);
  EXPECT_EQ(write.Result, 8);
  write.cksVec = &sum;
  EXPECT_EQ(file->pgWrite(&write, XrdOssDF::doCalc), 0);
  EXPECT_EQ(write.Result, 8);
  EXPECT_EQ(sum, Crc32c(AsBytes(bytes)));
  EXPECT_EQ(file->Fsync(&write), 0);
  EXPECT_EQ(write.Result, 0);
  EXPECT_EQ(write.writes, 3);

  std::string out(20, '?');
  Request read(out.data(), 0, out.size());
  EXPECT_EQ(file->Read(&read), 0);
  EXPECT_EQ(read.Result, 8);
  sum = 0;
  read.cksVec = &sum;
  EXPECT_EQ(file->pgRead(&read, 0), 0);
  EXPECT_EQ(read.Result, 8);
  EXPECT_EQ(out.substr(0, 8), bytes);
  EXPECT_EQ(sum, Crc32c(AsBytes(bytes)));
  EXPECT_EQ(read.reads, 2);
}

TEST_F(OssTest, AFileIsCutAndExtended) {
  Upload("/file", "0123456789");
  EXPECT_EQ(oss().Truncate("/file", 4), 0);
  EXPECT_EQ(Contents("/file"), "0123");
  auto file = Opened("/file", O_RDWR);
  EXPECT_EQ(file->Ftruncate(2), 0);
  EXPECT_EQ(file->Ftruncate(3), 0);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Contents("/file"), std::string("01\0", 3));
  EXPECT_EQ(oss().Truncate("/none", 4), -ENOENT);
  EXPECT_EQ(oss().Truncate("/", 4), -EISDIR);
  // A client has sent -1.
  EXPECT_EQ(oss().Truncate("/file", static_cast<unsigned long long>(-1)), -EINVAL);
  EXPECT_EQ(Opened("/file", O_RDWR)->Ftruncate(static_cast<unsigned long long>(-1)), -EINVAL);
}

TEST_F(OssTest, ModeAndTimesAreChanged) {
  Upload("/file", "x");
  EXPECT_EQ(oss().Chmod("/file", 0600), 0);
  struct stat stat = {};
  ASSERT_EQ(Stat("/file", &stat), 0);
  EXPECT_EQ(stat.st_mode, S_IFREG | 0600u);
  EXPECT_EQ(oss().Chmod("/none", 0600), -ENOENT);

  auto file = Opened("/file", O_RDWR);
  EXPECT_EQ(file->Fchmod(0644), 0);
  timeval times[2] = {{1000, 5}, {2000, 7}};
  const auto set = [&](int length) {
    return file->Fctl(XrdOssDF::Fctl_utimes, length, reinterpret_cast<const char*>(times));
  };
  EXPECT_EQ(set(sizeof times), 0);
  ASSERT_EQ(file->Fstat(&stat), 0);
  EXPECT_EQ(stat.st_mode, S_IFREG | 0644u);
  EXPECT_EQ(stat.st_atim.tv_sec, 1000);
  EXPECT_EQ(stat.st_mtim.tv_sec, 2000);
  EXPECT_EQ(stat.st_mtim.tv_nsec, 7000);
  EXPECT_EQ(set(sizeof times - 1), -EINVAL);
  times[1].tv_usec = 1'000'000;
  EXPECT_EQ(set(sizeof times), -EINVAL);
  EXPECT_EQ(file->Fctl(XrdOssDF::Fctl_ckpObj, 0, nullptr), -ENOTSUP);
}

// ---- Errors

TEST_F(OssTest, WhatCannotBeOpenedIsSaidAsErrno) {
  Upload("/file", "x");
  ASSERT_EQ(oss().Mkdir("/directory", 0755), 0);
  EXPECT_EQ(OpenFails("/none", O_RDONLY), -ENOENT);
  EXPECT_EQ(OpenFails("/none", O_RDWR), -ENOENT);
  EXPECT_EQ(OpenFails("/none/file", kUpload), -ENOENT) << "nobody asked for its parents";
  EXPECT_EQ(OpenFails("/directory", O_RDONLY), -EISDIR);
  EXPECT_EQ(OpenFails("/directory", kUpload), -EISDIR);
  EXPECT_EQ(OpenFails("/file", O_RDWR | O_CREAT | O_EXCL), -EEXIST);
  EXPECT_EQ(OpenFails("/file/x", O_RDONLY), -ENOTDIR);
  EXPECT_EQ(OpenFails("/file/x", kUpload), -ENOTDIR);
  EXPECT_EQ(OpenFails(("/" + std::string(256, 'n')).c_str(), kUpload), -ENAMETOOLONG);
  EXPECT_EQ(OpenFails("/directory/../file", O_RDONLY), -EACCES) << "it might lead out";
  EXPECT_EQ(Create("/file"), -ENOTSUP) << "none of them is an upload that goes on";
}

TEST_F(OssTest, AFileThatIsOpenForReadingIsNotChanged) {
  Upload("/file", "contents");
  auto file = Opened("/file", O_RDONLY);
  EXPECT_EQ(Put(*file, "x"), -EBADF);
  EXPECT_EQ(file->Ftruncate(0), -EBADF);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Contents("/file"), "contents");
}

TEST_F(OssTest, AFileThatIsNotOpenAnswersThatItIsNot) {
  auto file = NewFile();
  const auto expect_closed = [&] {
    char byte = 0;
    struct stat stat;
    EXPECT_EQ(file->Read(&byte, 0, 1), -EBADF);
    EXPECT_EQ(file->ReadV(nullptr, 0), -EBADF);
    EXPECT_EQ(file->pgRead(&byte, 0, 1, nullptr, 0), -EBADF);
    EXPECT_EQ(file->Write(&byte, 0, 1), -EBADF);
    EXPECT_EQ(file->pgWrite(&byte, 0, 1, nullptr, 0), -EBADF);
    EXPECT_EQ(file->Fsync(), -EBADF);
    EXPECT_EQ(file->Ftruncate(0), -EBADF);
    EXPECT_EQ(file->Fstat(&stat), -EBADF);
    EXPECT_EQ(file->Fchmod(0600), -EBADF);
    EXPECT_EQ(file->Fctl(XrdOssDF::Fctl_utimes, 0, nullptr), -EBADF);
    EXPECT_EQ(file->Close(), -EBADF);
  };
  expect_closed();
  XrdOucEnv env;
  EXPECT_EQ(file->Open("/none", O_RDONLY, 0, env), -ENOENT);
  expect_closed();
  ASSERT_EQ(file->Open("/file", kUpload, 0640, env), 0);
  ASSERT_EQ(file->Close(), 0);
  expect_closed();
}

// ---- Uploads that do not end as they should

TEST_F(OssTest, AnUploadThatIsAbandonedLeavesWhatWasThere) {
  Upload("/file", "old");
  for (const char* path : {"/file", "/new"}) {
    auto file = Opened(path, kUpload);
    EXPECT_EQ(Put(*file, "half of it"), 10);
    file.reset();  // the server drops it without Close()
  }
  EXPECT_EQ(Contents("/file"), "old");
  EXPECT_EQ(Stat("/new"), -ENOENT);
  EXPECT_EQ(Create("/new", 0, kOther), -ENOTSUP) << "the name is free";
}

TEST_F(OssTest, AnUploadOfWhichBytesAreMissingIsDroppedAtClose) {
  Upload("/file", "old");
  auto file = Opened("/file", kUpload, kClient, "oss.asize=100");
  EXPECT_EQ(Put(*file, std::string(50, 'x'), 50), 50);
  EXPECT_EQ(file->Close(), -ECANCELED);
  EXPECT_EQ(Contents("/file"), "old");

  // The client comes back as if nothing had happened, and would write the rest into the old file.
  XrdOucEnv env("oss.asize=100");
  auto back = NewFile(kSameClient);
  EXPECT_EQ(back->Open("/file", O_RDWR, 0, env), -ECANCELED);
  auto other = NewFile(kOther);
  EXPECT_EQ(other->Open("/file", O_RDWR, 0, env), 0) << "another client may";
  EXPECT_EQ(other->Close(), 0);
}

TEST_F(OssTest, AnUploadThatIsCompleteIsKept) {
  auto file = Opened("/file", kUpload, kClient, "oss.asize=100");
  EXPECT_EQ(Put(*file, std::string(50, 'b'), 50), 50);
  EXPECT_EQ(Put(*file, std::string(50, 'a'), 0), 50);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Contents("/file"), std::string(50, 'a') + std::string(50, 'b'));
}

TEST_F(OssTest, TheNameOfADroppedUploadCanBeRemovedOnce) {
  auto file = Opened("/new", kUpload, kClient, "oss.asize=100");
  EXPECT_EQ(file->Close(), -ECANCELED);
  EXPECT_EQ(Stat("/new"), -ENOENT);
  EXPECT_EQ(oss().Unlink("/new"), 0) << "who removes the beginning that he thinks is there";
  EXPECT_EQ(oss().Unlink("/new"), -ENOENT);
}

TEST_F(OssTest, TheEndOfAnHttpSessionEndsItsUpload) {
  XrdSecEntity client("https");
  XrdOucEnv env(nullptr, 0, &client);
  auto file = NewFile();
  ASSERT_EQ(file->Open("/file", kUpload, 0640, env), 0);
  EXPECT_EQ(Put(*file, "half of it"), 10);
  oss().Disc(env);
  EXPECT_EQ(file->Close(), -ECANCELED);
  EXPECT_EQ(Stat("/file"), -ENOENT);
}

TEST_F(OssTest, AnUploadIsRemovedByItsNameWhileItGoesOn) {
  Upload("/file", "old");
  auto file = Opened("/file", kUpload);
  EXPECT_EQ(Put(*file, "new"), 3);
  EXPECT_EQ(oss().Unlink("/file"), 0);
  EXPECT_EQ(Stat("/file"), -ENOENT);
  EXPECT_EQ(Put(*file, "more"), 4) << "like a file that was unlinked";
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Stat("/file"), -ENOENT);
}

// ---- Names

TEST_F(OssTest, ParentsAreMadeWhereTheyAreAskedFor) {
  ASSERT_EQ(Create("/a/b/file", XRDOSS_mkpath), -ENOTSUP);
  auto file = Opened("/a/b/file", kUpload);
  EXPECT_EQ(Put(*file, "x"), 1);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(Contents("/a/b/file"), "x");

  EXPECT_EQ(oss().Mkdir("/c/d", 0755, 0), -ENOENT);
  EXPECT_EQ(oss().Mkdir("/c/d", 0750, 1), 0);
  EXPECT_EQ(oss().Mkdir("/c/d", 0750, 1), 0);
  EXPECT_EQ(oss().Mkdir("/c/d", 0750, 0), -EEXIST);
  EXPECT_EQ(oss().Mkdir("/a/b/file", 0750, 1), -ENOTDIR);
  EXPECT_EQ(oss().Mkdir("/a/b/file/d", 0750, 1), -ENOTDIR);
  EXPECT_EQ(fs_->Resolve("/c/d")->mode, 0750u);
}

TEST_F(OssTest, NamesAreRemoved) {
  Upload("/file", "x");
  ASSERT_EQ(oss().Mkdir("/directory/inner", 0755, 1), 0);
  EXPECT_EQ(oss().Unlink("/directory"), -EISDIR);
  EXPECT_EQ(oss().Remdir("/file"), -ENOTDIR);
  EXPECT_EQ(oss().Remdir("/directory"), -ENOTEMPTY);
  EXPECT_EQ(oss().Remdir("/none"), -ENOENT);
  EXPECT_EQ(oss().Unlink("/none"), -ENOENT);
  EXPECT_EQ(oss().Unlink("/file"), 0);
  EXPECT_EQ(oss().Remdir("/directory/inner"), 0);
  EXPECT_EQ(oss().Remdir("/directory"), 0);
  EXPECT_EQ(List(), std::vector<std::string>{});
}

TEST_F(OssTest, ARenameReplacesAndMakesTheParentsOfTheTarget) {
  Upload("/one", "one");
  Upload("/two", "two");
  EXPECT_EQ(oss().Rename("/one", "/two"), 0);
  EXPECT_EQ(Contents("/two"), "one");
  EXPECT_EQ(Stat("/one"), -ENOENT);
  EXPECT_EQ(oss().Rename("/two", "/a/b/three"), 0);
  EXPECT_EQ(Contents("/a/b/three"), "one");
  EXPECT_EQ(oss().Rename("/none", "/x/y"), -ENOENT);
  EXPECT_EQ(Stat("/x"), -ENOENT) << "nothing is made for what is not there";
  EXPECT_EQ(oss().Rename("/a/b/three", "/a"), -EISDIR);
  EXPECT_EQ(oss().Rename("/a", "/a/b/inside"), -EINVAL);
  EXPECT_EQ(oss().Rename("/a", "/../outside"), -EACCES);
}

// ---- Directories

class OssDirTest : public OssTest {
 protected:
  // Names with their sizes, or -1 where no statistics were asked for.
  std::map<std::string, int64_t> ListThrough(const char* path, bool with_statistics,
                                             int length = 256) {
    std::unique_ptr<XrdOssDF> directory(oss().newDir(kClient));
    XrdOucEnv env;
    EXPECT_EQ(directory->Opendir(path, env), 0);
    struct stat stat = {};
    if (with_statistics) {
      EXPECT_EQ(directory->StatRet(&stat), 0);
    }
    std::map<std::string, int64_t> found;
    std::vector<char> name(static_cast<size_t>(length));
    while (directory->Readdir(name.data(), length) == 0 && name[0] != '\0') {
      found[name.data()] = with_statistics ? stat.st_size : -1;
    }
    EXPECT_EQ(directory->Close(), 0);
    return found;
  }
};

TEST_F(OssDirTest, ADirectoryIsListedWithStatisticsWhereTheyAreAskedFor) {
  ASSERT_EQ(oss().Mkdir("/d", 0755), 0);
  Upload("/d/one", "1");
  Upload("/d/three", "333");
  const std::map<std::string, int64_t> with = {{"one", 1}, {"three", 3}};
  const std::map<std::string, int64_t> without = {{"one", -1}, {"three", -1}};
  EXPECT_EQ(ListThrough("/d", true), with);
  EXPECT_EQ(ListThrough("/d", false), without);
}

TEST_F(OssDirTest, ALinkIsListedAsWhatItLeadsTo) {
  Make("target", "12345");
  ASSERT_OK(fs_->MakeSymlink(kRootInode, "link", "target", {}));
  ASSERT_OK(fs_->MakeSymlink(kRootInode, "nowhere", "none", {}));
  const std::map<std::string, int64_t> with = {{"link", 5}, {"target", 5}};
  EXPECT_EQ(ListThrough("/", true), with);
}

// The server takes an error for the end, so who lists would miss the rest.
TEST_F(OssDirTest, ANameForWhichThereIsNoRoomIsListedAsOneThatNobodyHas) {
  Make("abcdef", "");
  Make("abcd", "");
  EXPECT_EQ(ListThrough("/", false, 5).size(), 2u);
  EXPECT_TRUE(ListThrough("/", false, 5).contains("abcd"));
  EXPECT_TRUE(ListThrough("/", false, 5).contains("abc~"));
}

TEST_F(OssDirTest, WhatCannotBeListedIsSaidAsErrno) {
  Make("file", "x");
  std::unique_ptr<XrdOssDF> directory(oss().newDir(kClient));
  XrdOucEnv env;
  struct stat stat;
  char name[256];
  EXPECT_EQ(directory->Opendir("/none", env), -ENOENT);
  EXPECT_EQ(directory->Opendir("/file", env), -ENOTDIR);
  EXPECT_EQ(directory->Opendir("/..", env), -EACCES);
  EXPECT_EQ(directory->Readdir(name, sizeof name), -EBADF);
  EXPECT_EQ(directory->StatRet(&stat), -EBADF);
  EXPECT_EQ(directory->Close(), -EBADF);
}

// ---- The whole

TEST_F(OssTest, FeaturesAreThoseThatItHas) {
  EXPECT_EQ(oss().Features(), XRDOSS_HASPGRW | XRDOSS_HASFSCS | XRDOSS_HASNOSF | XRDOSS_HASNAIO);
  EXPECT_EQ(NewFile()->getFD(), -1) << "so nothing can be sent from a descriptor";
}

TEST_F(OssTest, SpaceIsWhatTheFileSystemSays) {
  const auto space = fs_->Space();
  ASSERT_OK(space);
  XrdOssVSInfo info;
  ASSERT_EQ(oss().StatVS(&info), 0);
  EXPECT_EQ(info.Total, static_cast<long long>(space->usable_bytes));
  EXPECT_EQ(info.Free, static_cast<long long>(space->usable_free_bytes));
  EXPECT_EQ(info.Usage, info.Total - info.Free);

  char text[512];
  std::memset(text, 'x', sizeof text);
  XrdOucEnv env;
  int length = sizeof text;
  ASSERT_EQ(oss().StatLS(env, "/", text, length), 0);
  EXPECT_EQ(static_cast<size_t>(length), std::strlen(text));
  EXPECT_NE(std::string(text).find(fmt::format("oss.space={}&", space->usable_bytes)),
            std::string::npos);
  EXPECT_EQ(text[sizeof text - 1], '\0') << "the server sends a byte beyond the text";
  length = 10;
  EXPECT_EQ(oss().StatLS(env, "/", text, length), -ENOBUFS);
  length = sizeof text;
  ASSERT_EQ(oss().StatFS("/", text, length), 0);
  EXPECT_EQ(std::string(text), fmt::format("1 {} {} 0 0 0", space->usable_free_bytes >> 20,
                                           info.Usage * 100 / info.Total));
}

TEST_F(OssTest, AFileIsDescribedInOneLine) {
  Upload("/file", "contents");
  char text[512];
  int length = sizeof text;
  ASSERT_EQ(oss().StatXA("/file", text, length), 0);
  EXPECT_EQ(std::string(text).find("oss.cgroup=public&oss.type=f&oss.used="), 0u) << text;
  length = sizeof text;
  ASSERT_EQ(oss().StatXA("/", text, length), 0);
  EXPECT_NE(std::string(text).find("oss.type=d"), std::string::npos) << text;
  EXPECT_EQ(oss().StatXA("/none", text, length), -ENOENT);
}

TEST_F(OssTest, StatisticsCountWhatClientsDid) {
  Upload("/file", "contents");
  Download("/file");
  std::vector<char> text(static_cast<size_t>(oss().Stats(nullptr, 0)));
  const int length = oss().Stats(text.data(), static_cast<int>(text.size()));
  const std::string all(text.data(), static_cast<size_t>(length));
  EXPECT_EQ(all.find("<stats id=\"oss\" v=\"pinstripe\"><opens>2</opens><in>8</in><out>8</out>"
                     "<drives>5</drives><up>5</up>"),
            0u)
      << all;
  EXPECT_EQ(oss().Stats(text.data(), 10), 0) << "no room";
}

TEST_F(OssTest, MetricsCountWhatClientsDid) {
  Upload("/file", "contents");
  Download("/file");
  struct stat stat {};
  EXPECT_EQ(oss().Stat("/none", &stat, 0, nullptr), -ENOENT);
  const std::string text = oss_->MetricsText();
  const auto has = [&text](const std::string& line) {
    EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line << " is not in\n" << text;
  };
  has("pinstripe_gateway_opens_total 2");
  has("pinstripe_gateway_written_bytes_total 8");
  has("pinstripe_gateway_read_bytes_total 8");
  has("pinstripe_gateway_errors_total 0");
  has("pinstripe_gateway_request_seconds_count{request=\"open\"} 2");
  has("pinstripe_gateway_request_seconds_count{request=\"close\"} 2");
  has("pinstripe_gateway_request_seconds_count{request=\"stat\"} 1");
  has("pinstripe_client_files_to_mend 0");
  EXPECT_NE(text.find("\npinstripe_client_drive_up{drive=\"5\""), std::string::npos) << text;
}

// ---- Extended attributes

class OssAttributesTest : public OssTest {
 protected:
  int Set(const char* name, std::string_view value, const char* path, int is_new = 0) {
    return attributes_.Set(name, value.data(), static_cast<int>(value.size()), path, -1, is_new);
  }

  FileAttributes attributes_{[this] { return oss_.get(); }};
};

TEST_F(OssAttributesTest, OfAClientAreThoseOfItsUsers) {
  const InodeId inode = Make("file", "x");
  EXPECT_EQ(Set("U.a", "value", "/file"), 0);
  EXPECT_EQ(*fs_->GetExtended(inode, "user.a"), "value");
  char value[10];
  EXPECT_EQ(attributes_.Get("U.a", value, sizeof value, "/file", -1), 5);
  EXPECT_EQ(std::string(value, 5), "value");
  EXPECT_EQ(attributes_.Get("U.a", nullptr, 0, "/file", -1), 5) << "how long is it?";
  EXPECT_EQ(attributes_.Get("U.a", value, 4, "/file", -1), -ERANGE);
  EXPECT_EQ(Set("U.a", "other", "/file", 1), -EEXIST);

  ASSERT_OK(fs_->SetExtended(inode, "trusted.b", "none of the clients' business"));
  XrdSysXAttr::AList* list = nullptr;
  EXPECT_EQ(attributes_.List(&list, "/file", -1, 1), 5) << "the largest value";
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(std::string(list->Name), "U.a");
  EXPECT_EQ(list->Vlen, 5);
  EXPECT_EQ(list->Next, nullptr);
  attributes_.Free(list);

  EXPECT_EQ(attributes_.Del("U.a", "/file", -1), 0);
  EXPECT_EQ(attributes_.Del("U.a", "/file", -1), -ENODATA);
  EXPECT_EQ(attributes_.Get("U.a", value, sizeof value, "/file", -1), -ENODATA);
  EXPECT_EQ(attributes_.List(&list, "/file", -1, 1), 0);
  EXPECT_EQ(list, nullptr);
  EXPECT_EQ(attributes_.Get("U.a", value, sizeof value, "/none", -1), -ENOENT);
}

TEST_F(OssAttributesTest, OfTheServerAreNotKept) {
  Make("file", "x");
  char value[100];
  EXPECT_EQ(Set("XrdCks.md5", "sum", "/file"), -ENOTSUP);
  EXPECT_EQ(attributes_.Get("XrdCks.md5", value, sizeof value, "/file", -1), -ENODATA);
  EXPECT_EQ(attributes_.Get("XrdFrm.Pin", value, sizeof value, "/file", -1), -ENODATA);
  EXPECT_EQ(attributes_.Del("XrdCks.md5", "/file", -1), 0);
}

TEST_F(OssAttributesTest, WhatIsSetDuringAnUploadIsSetOfIt) {
  Upload("/file", "old");
  auto file = Opened("/file", kUpload);
  EXPECT_EQ(Set("U.a", "of the new one", "/file"), 0);
  const InodeId old = fs_->Resolve("/file")->inode;
  EXPECT_FAILS(fs_->GetExtended(old, "user.a"), ENODATA);
  EXPECT_EQ(file->Close(), 0);
  EXPECT_EQ(*fs_->GetExtended(fs_->Resolve("/file")->inode, "user.a"), "of the new one");
}

TEST_F(OssAttributesTest, BeforeTheFileSystemIsOpenThereIsAnError) {
  FileAttributes early([]() -> Oss* { return nullptr; });
  char value[10];
  EXPECT_EQ(early.Get("U.a", value, sizeof value, "/file", -1), -EIO);
  EXPECT_EQ(early.Set("U.a", "x", 1, "/file", -1, 0), -EIO);
}

}  // namespace
}  // namespace pinstripe
