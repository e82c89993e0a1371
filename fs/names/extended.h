// Extended attributes: which there may be, and how many. Pure.
//
// A name is "user.", "trusted." or "security." (but not "security.selinux") and 1 byte or more
// behind it, 255 in all, any but NUL; a value 0 to 65536 bytes of any kind. Names and values of one
// inode together are kept in its register, so they take up to kMaxExtendedBytes in all. Two more
// are ACLs (fs/names/acl.h), which mode bits go with.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fs/names/inode.h"

namespace pinstripe {

// The one that says what a program may do, whoever starts it (capabilities(7)).
inline constexpr std::string_view kCapability = "security.capability";

inline constexpr size_t kMaxExtendedNameBytes = 255;
inline constexpr size_t kMaxExtendedValueBytes = 64 << 10;
// As they are encoded: one of the largest values, and some more. What else an inode holds
// (kMaxInlineBytes or a block map of about as much, keepers, a rename) fits beside it in a
// register.
inline constexpr size_t kMaxExtendedBytes = 80 << 10;

// ENOTSUP (another name space), EINVAL, ERANGE (too long).
Status CheckExtendedName(std::string_view name);

// ENODATA: there is none. An access ACL is always there: one that is not kept says what the mode
// says. A reader who goes by bits and list (the kernel does) then never has bits of one state and
// no list of another, in which the mask's would be taken for the group's.
Result<std::string> GetExtended(const ExtendedAttributes& attributes, std::string_view name);

// EEXIST and ENODATA by `mode`; E2BIG: the value; ENOSPC: all together, or the inode with them;
// EPERM: "user." of something that is neither file nor directory.
//
// An ACL is put in place of another whatever `mode` says, and its permissions become those of the
// inode. One that says no more than these is not kept, and one without entries is removed, as Linux
// does. EINVAL: it is none; EOPNOTSUPP: of a symbolic link; EACCES: kDefaultAcl of no directory.
Status SetExtended(InodeId id, Inode& inode, std::string_view name, std::string_view value,
                   ExtendedMode mode);
// ENODATA; but an ACL need not be there.
Status RemoveExtended(InodeId id, Inode& inode, std::string_view name);

// What is made in a directory gets of its default ACL what `inode.mode` asks for, and a directory
// that list, too. Where there is none, the bits of `umask` go from the mode.
void InheritAcl(const Inode& directory, uint32_t umask, Inode& inode);
// Mode, owner and access ACL of another inode, instead of its own.
void TakePermissions(const Inode& from, Inode& inode);

// kLayoutAttribute, which stands for Inode::layout. Every file and directory has one to be read;
// ENODATA: it is neither.
Result<std::string> GetLayout(const Inode& inode, const ClusterConfig& config);
// EEXIST and ENODATA by `mode`, where one of its own counts; EINVAL: `text`; ENOTEMPTY: a file that
// is stored already, in another way; EPERM: neither file nor directory.
Status SetLayout(Inode& inode, std::string_view text, ExtendedMode mode,
                 const ClusterConfig& config);
Status RemoveLayout(Inode& inode);  // ENODATA: has none of its own; ENOTEMPTY
// All names, and kLayoutAttribute of a directory that has a layout of its own. Not of a file: a
// program that copies a file with its attributes would ask the copy for a layout that its new place
// has not.
std::vector<std::string> ListExtended(const Inode& inode);

}  // namespace pinstripe
