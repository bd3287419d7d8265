//===- CpuFeatures.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/artifact/CpuFeatures.h"
#include "lathe/artifact/Reader.h"
#include "lathe/base/Tiles.h"
#include <algorithm>
#include <cpuid.h>

namespace lathe::runtime {
using artifact::Variant;

CpuFeatures CpuFeatures::detect() {
  CpuFeatures f;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  bool osxsave = c & (1u << 27), fma = c & (1u << 12), f16c = c & (1u << 29), avx = c & (1u << 28);
  if (!osxsave || !avx) return f;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  bool ymm = (low & 0x6) == 0x6, zmm = (low & 0xe6) == 0xe6, tiles = (low & 0x60000) == 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  f.avx2 = ymm && fma && f16c && (b & (1u << 5));
  constexpr unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; // F DQ CD BW VL
  f.avx512vnni = f.avx2 && zmm && (b & avx512) == avx512 && (c & (1u << 11));
  constexpr unsigned amx = 1u << 24 | 1u << 25; // TILE INT8
  tiles &= (d & amx) == amx;
  if (f.avx512vnni && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f.avx512bf16 = a & (1u << 5);
  f.amx = f.avx512bf16 && tiles && allowTiles();
  return f;
}

bool CpuFeatures::runs(Variant variant) const {
  switch (variant) {
  case Variant::none: return false;
  case Variant::avx2: return avx2;
  case Variant::avx512vnni: return avx512vnni;
  case Variant::avx512bf16: return avx512bf16;
  case Variant::amx: return amx;
  default: return false; // a GPU's
  }
  return false;
}

Result<Variant> chooseVariant(std::span<const Variant> present, const CpuFeatures &cpu, const std::string &wanted) {
  std::vector<Variant> candidates;
  bool known = wanted.empty() || wanted == "avx512";
  for (Variant v : {Variant::amx, Variant::avx512bf16, Variant::avx512vnni, Variant::avx2}) {
    bool matches = wanted.empty() || wanted == artifact::toString(v) || (wanted == "avx512" && v != Variant::avx2);
    known |= wanted == artifact::toString(v);
    if (matches) candidates.push_back(v);
  }
  if (!known)
    return makeError(StatusCode::invalidArgument,
                     "unknown variant '%s', expected avx2, avx512, avx512vnni, avx512bf16 or amx", wanted.c_str());
  std::string names;
  bool there = false;
  for (Variant v : present) names += (names.empty() ? "" : ", ") + std::string(artifact::toString(v));
  for (Variant v : candidates) {
    if (std::find(present.begin(), present.end(), v) == present.end()) continue;
    there = true;
    if (cpu.runs(v)) return v;
  }
  if (!there && !wanted.empty())
    return makeError(StatusCode::notFound, "the artifact has no code for '%s', it has: %s", wanted.c_str(),
                     names.empty() ? "none" : names.c_str());
  if (!cpu.avx2)
    return makeError(StatusCode::failedPrecondition,
                     "this processor lacks AVX2, FMA or F16C, which Lathe needs at least");
  if (!there) return makeError(StatusCode::dataLoss, "the artifact has no code for x86-64");
  return makeError(StatusCode::failedPrecondition,
                   "this processor does not run '%s'; the artifact has code for: %s%s",
                   wanted.empty() ? names.c_str() : wanted.c_str(), names.c_str(),
                   wanted.empty() ? "; compile with '--target x86'" : "");
}

} // namespace lathe::runtime
