// What the targets of libFuzzer have in common: the end of a run that has found something.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

// Ends the run, which keeps the input, unless nothing is wrong.
inline void Demand(const std::string& wrong) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}

// Called by libFuzzer for each input.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
