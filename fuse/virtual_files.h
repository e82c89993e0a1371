// The directory `.pinstripe` in the root of a mount. No listing of the root shows it. Its files get
// their text when they are opened, like those of /proc.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/file_system.h"

namespace pinstripe {

inline constexpr std::string_view kVirtualDirectoryName = ".pinstripe";

// The file system chooses inode numbers by chance among 2^64, so it will never choose these.
inline constexpr InodeId kVirtualDirectory = UINT64_MAX;
inline constexpr InodeId kStatsFile = UINT64_MAX - 1;   // metrics, as Prometheus reads them
inline constexpr InodeId kConfigFile = UINT64_MAX - 2;  // what is mounted, and how

inline bool IsVirtual(InodeId inode) { return inode >= kConfigFile; }

// Null: the name is not one of these.
std::optional<Attributes> FindVirtual(InodeId root, InodeId directory, std::string_view name);
Attributes VirtualAttributes(InodeId inode);
// The files after the name `after`.
std::vector<DirectoryEntry> ListVirtual(std::string_view after);
// A file with this text, which nobody can change (EACCES).
std::unique_ptr<OpenFile> OpenVirtual(InodeId inode, std::string text);

}  // namespace pinstripe
