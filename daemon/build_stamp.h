// What this build of the drive was made of, and when: devices tell it in GETLOG CONFIGURATION. The
// build makes build_stamp.cc when one of the sources changes (cmake/build_stamp.cmake).

#pragma once

namespace pinstripe {

// As "Fri Nov 20 22:09:18 UTC 2026": when the sources were first compiled in this state.
extern const char kBuildDate[];
extern const char kProtocolBuildDate[];

// 40 hexadecimal digits: the SHA-1 of the SHA-1s of all files of base/, drive/, kinetic/, store/
// and daemon/, in the order of their names; and that of kinetic/kinetic.proto. Two builds of the
// same sources have the same.
extern const char kSourceHash[];
extern const char kProtocolSourceHash[];

}  // namespace pinstripe
