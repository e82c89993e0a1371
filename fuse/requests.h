// The kernel's requests. Each is a function that calls the FileSystem and replies. Inode numbers
// are the file system's own here, also the root's. operations.cc hands the functions to libfuse.
// Thread-safe.

#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif

#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/status.h"
#include "fs/file_system.h"
#include "fuse/operations.h"

namespace pinstripe::requests {

// ---- Shared by all (replies.cc)

inline Mount& MountOf(fuse_req_t request) {
  return *static_cast<Mount*>(fuse_req_userdata(request));
}
inline FileSystem& FileSystemOf(fuse_req_t request) { return MountOf(request).file_system(); }
inline FileHandle& HandleOf(const fuse_file_info* info) {
  return *reinterpret_cast<FileHandle*>(info->fh);
}

// The owner of what the caller makes.
Owner CallerOf(fuse_req_t request);
// The bits to take from the mode of what the caller makes, unless a default ACL decides that.
// Without ACLs the kernel has taken them already.
uint32_t UmaskOf(fuse_req_t request);

// How messages call an inode, or a name.
std::string Subject(InodeId inode);
std::string Subject(InodeId directory, std::string_view name);

double SecondsOf(Duration age);
fuse_entry_param EntryOf(Mount& mount, const Attributes& attributes);

void ReplyStatus(fuse_req_t request, const Status& status, std::string_view operation,
                 std::string_view subject);
// For a request by inode number. If the inode is gone (ENOENT) it replies ESTALE, so that the
// kernel looks the name up again.
void ReplyInodeStatus(fuse_req_t request, const Status& status, std::string_view operation,
                      InodeId inode);
void ReplyEntry(fuse_req_t request, const Result<Attributes>& attributes,
                std::string_view operation, InodeId directory, const char* name);
void ReplyAttributes(fuse_req_t request, const Result<Attributes>& attributes,
                     std::string_view operation, InodeId inode);

// ---- Names and attributes (name_requests.cc)

void Lookup(fuse_req_t request, fuse_ino_t directory, const char* name);
void Forget(fuse_req_t request, fuse_ino_t, uint64_t);
void ForgetMany(fuse_req_t request, size_t, fuse_forget_data*);
void GetAttributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
void SetAttributes(fuse_req_t request, fuse_ino_t inode, struct stat* wanted, int which,
                   fuse_file_info* info);
void GetExtended(fuse_req_t request, fuse_ino_t inode, const char* name, size_t room);
void SetExtended(fuse_req_t request, fuse_ino_t inode, const char* name, const char* value,
                 size_t length, int flags);
void RemoveExtended(fuse_req_t request, fuse_ino_t inode, const char* name);
void ListExtended(fuse_req_t request, fuse_ino_t inode, size_t room);
void MakeDirectory(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode);
void MakeNode(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode,
              dev_t device);
void MakeSymlink(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name);
void ReadSymlink(fuse_req_t request, fuse_ino_t inode);
void Link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t directory, const char* name);
void Unlink(fuse_req_t request, fuse_ino_t directory, const char* name);
void RemoveDirectory(fuse_req_t request, fuse_ino_t directory, const char* name);
void Rename(fuse_req_t request, fuse_ino_t directory, const char* name, fuse_ino_t new_directory,
            const char* new_name, unsigned flags);

// ---- Open files (file_requests.cc)

void Open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
void Create(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode,
            fuse_file_info* info);
void Read(fuse_req_t request, fuse_ino_t inode, size_t length, off_t offset, fuse_file_info* info);
void Write(fuse_req_t request, fuse_ino_t inode, const char* data, size_t length, off_t offset,
           fuse_file_info* info);
void Allocate(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t length,
              fuse_file_info* info);
void Seek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence, fuse_file_info* info);
void CopyFileRange(fuse_req_t request, fuse_ino_t inode, off_t offset, fuse_file_info* info,
                   fuse_ino_t, off_t target_offset, fuse_file_info* target_info, size_t length,
                   int);
void Flush(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
void Release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
void Sync(fuse_req_t request, fuse_ino_t inode, int, fuse_file_info* info);

// ---- Directories (directory_requests.cc)

void SyncDirectory(fuse_req_t request, fuse_ino_t directory, int, fuse_file_info*);
void OpenDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info);
void ReleaseDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info);
void ReadDirectory(fuse_req_t request, fuse_ino_t directory, size_t size, off_t offset,
                   fuse_file_info* info);
void ReadDirectoryPlus(fuse_req_t request, fuse_ino_t directory, size_t size, off_t offset,
                       fuse_file_info* info);

}  // namespace pinstripe::requests
