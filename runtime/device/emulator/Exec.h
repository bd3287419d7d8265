//===- Exec.h - lane loops of the executors ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A register of up to 32 bits has 32 lanes of uint32_t; 8- and 16-bit values are kept zero-extended.
// With all 32 lanes active an operation is one loop that the compiler vectorises.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Machine.h"
#include <bit>
#include <cmath>
#include <type_traits>

#if defined(__clang__)
#define LATHE_LANE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LATHE_LANE_LOOP _Pragma("GCC ivdep")
#endif

namespace lathe::emulator {

template <typename T> inline constexpr bool kHeldAsItself = sizeof(T) >= 4;
template <typename T> using Held = std::conditional_t<kHeldAsItself<T>, T, uint32_t>;
template <typename T> inline T unheld(Held<T> value) {
  if constexpr (kHeldAsItself<T>) return value;
  else return static_cast<T>(value);
}
template <typename T> inline Held<T> held(T value) {
  if constexpr (kHeldAsItself<T>) return value;
  else return static_cast<std::make_unsigned_t<T>>(value);
}

/// All lanes, or those of |mask|. The body gets the lane.
template <typename F> inline void forLanes(uint32_t mask, F &&body) {
  if (mask == ~0u) {
    LATHE_LANE_LOOP
    for (unsigned lane = 0; lane < 32; ++lane)
      body(lane);
  } else {
    eachLane(mask, body);
  }
}

template <typename D, typename A, typename F> inline void unary(Warp &warp, const Inst &inst, uint32_t mask, F op) {
  auto *d = warp.reg<Held<D>>(inst.d);
  const auto *a = warp.reg<Held<A>>(inst.s[0]);
  forLanes(mask, [=](unsigned lane) { d[lane] = held<D>(op(unheld<A>(a[lane]))); });
}
template <typename D, typename A, typename F> inline void binary(Warp &warp, const Inst &inst, uint32_t mask, F op) {
  auto *d = warp.reg<Held<D>>(inst.d);
  const auto *a = warp.reg<Held<A>>(inst.s[0]);
  const auto *b = warp.reg<Held<A>>(inst.s[1]);
  forLanes(mask, [=](unsigned lane) { d[lane] = held<D>(op(unheld<A>(a[lane]), unheld<A>(b[lane]))); });
}
/// d and c of type D, a and b of type A.
template <typename D, typename A, typename F> inline void ternary(Warp &warp, const Inst &inst, uint32_t mask, F op) {
  auto *d = warp.reg<Held<D>>(inst.d);
  const auto *a = warp.reg<Held<A>>(inst.s[0]);
  const auto *b = warp.reg<Held<A>>(inst.s[1]);
  const auto *c = warp.reg<Held<D>>(inst.s[2]);
  forLanes(mask, [=](unsigned lane) { d[lane] = held<D>(op(unheld<A>(a[lane]), unheld<A>(b[lane]), unheld<D>(c[lane]))); });
}

#define LATHE_UNARY(D, A, E) [](Warp &warp, const Inst &inst, uint32_t mask) { unary<D, A>(warp, inst, mask, [](A a) -> D { return (E); }); }
#define LATHE_BINARY(D, A, E) [](Warp &warp, const Inst &inst, uint32_t mask) { binary<D, A>(warp, inst, mask, [](A a, A b) -> D { return (E); }); }
#define LATHE_TERNARY(D, A, E) [](Warp &warp, const Inst &inst, uint32_t mask) { ternary<D, A>(warp, inst, mask, [](A a, A b, D c) -> D { return (E); }); }

inline void storePredicate(Warp &warp, uint32_t slot, uint32_t mask, uint32_t bits) {
  warp.predicates[slot] = (warp.predicates[slot] & ~mask) | (bits & mask);
}

/// PTX gives NaN results as 0x7fffffff; x86 keeps a payload. In integers, since a compiler may take NaNs for equal.
inline float canonical(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits);
}
inline float flush(float value) { return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }

} // namespace lathe::emulator
