#include "fuse/virtual_files.h"

#include <algorithm>
#include <array>
#include <utility>

namespace pinstripe {
namespace {

constexpr std::array<std::pair<std::string_view, InodeId>, 2> kFiles = {
    {{"config", kConfigFile}, {"stats", kStatsFile}}};  // in the order of their names

class TextFile final : public OpenFile {
 public:
  TextFile(InodeId inode, std::string text) : inode_(inode), text_(std::move(text)) {}

  Result<size_t> Read(uint64_t offset, MutableBytes out) override {
    Part part{offset, out};
    (void)ReadParts({&part, 1});
    return part.length;
  }
  Status ReadParts(std::span<Part> parts) override {
    for (Part& part : parts) {
      const Bytes rest = AsBytes(text_).subspan(std::min<uint64_t>(part.offset, text_.size()));
      part.length = std::min(rest.size(), part.out.size());
      CopyBytes(part.out.first(part.length), rest.first(part.length));
    }
    return {};
  }
  Result<uint64_t> Seek(uint64_t offset, Contents contents) override {
    if (offset >= text_.size()) return Fail(ENXIO, "there is nothing from {} on", offset);
    return contents == Contents::kData ? offset : text_.size();
  }
  Status Write(uint64_t, Bytes, std::span<const uint32_t>) override { return Unchangeable(); }
  Result<uint64_t> Append(Bytes) override { return Unchangeable(); }
  Status Truncate(uint64_t) override { return Unchangeable(); }
  Status Zero(uint64_t, uint64_t, Size) override { return Unchangeable(); }
  Status Allocate(uint64_t, uint64_t, Size) override { return Unchangeable(); }
  Result<uint64_t> ShareBlocks(uint64_t, uint64_t, OpenFile&, uint64_t) override { return 0; }
  Status SetAttributes(const AttributeChange&) override { return Unchangeable(); }
  Result<Attributes> Stat(Duration) override { return VirtualAttributes(inode_); }
  Attributes Known() override { return VirtualAttributes(inode_); }
  Status Sync() override { return {}; }
  Status Commit() override { return {}; }
  Status Close() override { return {}; }
  InodeId inode() const override { return inode_; }
  uint64_t Version() override { return 0; }

 private:
  static Failed Unchangeable() { return Fail(EACCES, "what is in .pinstripe cannot be changed"); }

  const InodeId inode_;
  const std::string text_;
};

}  // namespace

Attributes VirtualAttributes(InodeId inode) {
  Attributes attributes;
  attributes.inode = inode;
  attributes.kind = inode == kVirtualDirectory ? FileKind::kDirectory : FileKind::kRegular;
  attributes.mode = inode == kVirtualDirectory ? 0555 : 0444;
  return attributes;
}

std::optional<Attributes> FindVirtual(InodeId root, InodeId directory, std::string_view name) {
  if (directory == root && name == kVirtualDirectoryName) {
    return VirtualAttributes(kVirtualDirectory);
  }
  if (directory != kVirtualDirectory) return std::nullopt;
  for (const auto& [file, inode] : kFiles) {
    if (file == name) return VirtualAttributes(inode);
  }
  return std::nullopt;
}

std::vector<DirectoryEntry> ListVirtual(std::string_view after) {
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, inode] : kFiles) {
    if (name <= after) continue;
    entries.push_back({std::string(name), inode, FileKind::kRegular, VirtualAttributes(inode)});
  }
  return entries;
}

std::unique_ptr<OpenFile> OpenVirtual(InodeId inode, std::string text) {
  return std::make_unique<TextFile>(inode, std::move(text));
}

}  // namespace pinstripe
