//===- Limits.h - what the machine can do at best ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstddef>
#include <cstdint>

namespace lathe::bench {
/// Reads |bytes| (a multiple of 512) with the widest loads of this machine.
void readAll(const uint8_t *p, size_t bytes);
/// |count| rounds of 12 independent vpdpbusd; returns multiply-adds done (0 without AVX-512 VNNI).
uint64_t dotPeak(uint64_t count);
/// The same for AVX2: vpmaddubsw + vpmaddwd + vpaddd.
uint64_t dotPeakAvx2(uint64_t count);
} // namespace lathe::bench
