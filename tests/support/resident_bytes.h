// How much memory this process has, as the kernel counts it.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace pinstripe {

inline size_t ResidentBytes() {
  size_t pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%*u %zu", &pages), 1);
  std::fclose(file);
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace pinstripe
