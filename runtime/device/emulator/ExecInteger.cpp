//===- ExecInteger.cpp - integer and bit instructions ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Extended-Precision ...".
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include <algorithm>
#include <limits>

namespace lathe::emulator {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
__extension__ typedef __int128 s128;
__extension__ typedef unsigned __int128 u128;

template <typename T> T divide(T a, T b) {
  // Division by zero gives an unspecified value: all ones, as the hardware does.
  if (b == 0) return static_cast<T>(~T(0));
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}
template <typename T> T remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <typename T> T shiftRight(T a, u32 by) {
  constexpr u32 bits = sizeof(T) * 8;
  if (std::is_signed_v<T>) return static_cast<T>(a >> std::min(by, bits - 1));
  return by >= bits ? T(0) : static_cast<T>(a >> by);
}
template <typename T> T shiftLeft(T a, u32 by) { return by >= sizeof(T) * 8 ? T(0) : static_cast<T>(a << by); }
s32 saturate(s64 value) { return static_cast<s32>(std::clamp<s64>(value, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max())); }

/// Bit field extract: |position| and |length| are taken modulo 256.
template <typename T> T extract(T a, u32 position, u32 length) {
  using U = std::make_unsigned_t<T>;
  constexpr u32 bits = sizeof(T) * 8;
  position &= 0xff;
  length &= 0xff;
  if (length == 0) return 0;
  U field = position >= bits ? U(0) : static_cast<U>(static_cast<U>(a) >> position);
  if (!std::is_signed_v<T>) return static_cast<T>(length >= bits ? field : field & ((U(1) << length) - 1));
  u32 top = std::min(position + length - 1, bits - 1); // the sign is the field's last bit, or a's
  bool negative = static_cast<U>(a) >> top & 1;
  U mask = length >= bits ? ~U(0) : (U(1) << length) - 1;
  u32 available = position >= bits ? 0 : bits - position;
  U value = field & mask;
  if (negative && std::min(length, available) < bits) value |= ~U(0) << std::min(length, available);
  return static_cast<T>(value);
}
template <typename U> U insert(U a, U b, u32 position, u32 length) {
  constexpr u32 bits = sizeof(U) * 8;
  position &= 0xff;
  length &= 0xff;
  if (position >= bits || length == 0) return b;
  U mask = length >= bits ? ~U(0) : (U(1) << length) - 1;
  return (b & ~(mask << position)) | ((a & mask) << position);
}

template <typename T> void shiftOp(Warp &warp, const Inst &inst, uint32_t mask, T (*op)(T, u32)) {
  auto *d = warp.reg<Held<T>>(inst.d);
  const auto *a = warp.reg<Held<T>>(inst.s[0]);
  const u32 *b = warp.reg<u32>(inst.s[1]);
  forLanes(mask, [=](unsigned lane) { d[lane] = held<T>(op(unheld<T>(a[lane]), b[lane])); });
}
template <typename T> void extractOp(Warp &warp, const Inst &inst, uint32_t mask) {
  T *d = warp.reg<T>(inst.d);
  const T *a = warp.reg<T>(inst.s[0]);
  const u32 *b = warp.reg<u32>(inst.s[1]), *c = warp.reg<u32>(inst.s[2]);
  forLanes(mask, [=](unsigned lane) { d[lane] = extract<T>(a[lane], b[lane], c[lane]); });
}
template <typename T> void insertOp(Warp &warp, const Inst &inst, uint32_t mask) {
  T *d = warp.reg<T>(inst.d);
  const T *a = warp.reg<T>(inst.s[0]), *b = warp.reg<T>(inst.s[1]);
  const u32 *c = warp.reg<u32>(inst.s[2]), *length = warp.reg<u32>(inst.s[3]);
  forLanes(mask, [=](unsigned lane) { d[lane] = insert<T>(a[lane], b[lane], c[lane], length[lane]); });
}

template <typename T> void addArithmetic(OpTable &table, const char *type, const char *signature2, const char *signature3, const char *signature1) {
  auto key = [&](const char *name) { return std::string(name) + "." + type; };
  auto op = [&](const char *name, Handler run, const char *signature) { table.add(key(name).c_str(), run, signature, OpClass::integer); };
  using U = std::make_unsigned_t<T>;
  op("add", LATHE_BINARY(T, T, static_cast<T>(static_cast<U>(a) + static_cast<U>(b))), signature2);
  op("sub", LATHE_BINARY(T, T, static_cast<T>(static_cast<U>(a) - static_cast<U>(b))), signature2);
  op("min", LATHE_BINARY(T, T, std::min(a, b)), signature2);
  op("max", LATHE_BINARY(T, T, std::max(a, b)), signature2);
  op("div", LATHE_BINARY(T, T, divide<T>(a, b)), signature2);
  op("rem", LATHE_BINARY(T, T, remainder<T>(a, b)), signature2);
  op("neg", LATHE_UNARY(T, T, static_cast<T>(U(0) - static_cast<U>(a))), signature1);
  op("abs", LATHE_UNARY(T, T, static_cast<T>(a < 0 ? U(0) - static_cast<U>(a) : static_cast<U>(a))), signature1);
  // A product of 16-bit values would be promoted to int and overflow.
  op("mul.lo", LATHE_BINARY(T, T, static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b))), signature2);
  op("mad.lo", LATHE_TERNARY(T, T, static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c))), signature3);
}
template <typename T, typename Wide> void addHigh(OpTable &table, const char *type, const char *signature2, const char *signature3) {
  constexpr unsigned bits = sizeof(T) * 8;
  table.add((std::string("mul.hi.") + type).c_str(), LATHE_BINARY(T, T, static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> bits)), signature2, OpClass::integer);
  table.add((std::string("mad.hi.") + type).c_str(), LATHE_TERNARY(T, T, static_cast<T>(static_cast<std::make_unsigned_t<T>>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> bits) + static_cast<std::make_unsigned_t<T>>(c))), signature3, OpClass::integer);
}

// --- add.cc and friends: the carry is a register of the thread ---
Status decodeCarry(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst);

} // namespace

void addIntegerOps(OpTable &table) {
  addArithmetic<u16>(table, "u16", "h=hh", "h=hhh", "h=h");
  addArithmetic<s16>(table, "s16", "h=hh", "h=hhh", "h=h");
  addArithmetic<u32>(table, "u32", "r=rr", "r=rrr", "r=r");
  addArithmetic<s32>(table, "s32", "r=rr", "r=rrr", "r=r");
  table.add("add.sat.s32", LATHE_BINARY(s32, s32, saturate(s64(a) + b)), "r=rr", OpClass::integer);
  table.add("sub.sat.s32", LATHE_BINARY(s32, s32, saturate(s64(a) - b)), "r=rr", OpClass::integer);
  addHigh<u16, u32>(table, "u16", "h=hh", "h=hhh");
  addHigh<s16, s32>(table, "s16", "h=hh", "h=hhh");
  addHigh<u32, u64>(table, "u32", "r=rr", "r=rrr");
  addHigh<s32, s64>(table, "s32", "r=rr", "r=rrr");
  table.add("mul.wide.u16", LATHE_BINARY(u32, u16, u32(a) * b), "r=hh", OpClass::integer);
  table.add("mul.wide.s16", LATHE_BINARY(s32, s16, s32(a) * b), "r=hh", OpClass::integer);
  table.add("mul.wide.u32", LATHE_BINARY(u64, u32, u64(a) * b), "q=rr", OpClass::integer);
  table.add("mul.wide.s32", LATHE_BINARY(s64, s32, s64(a) * b), "q=rr", OpClass::integer);
  table.add("mad.wide.u16", LATHE_TERNARY(u32, u16, u32(a) * b + c), "r=hhr", OpClass::integer);
  table.add("mad.wide.s16", LATHE_TERNARY(u32, s16, u32(s32(a) * b) + c), "r=hhr", OpClass::integer);
  table.add("mad.wide.u32", LATHE_TERNARY(u64, u32, u64(a) * b + c), "q=rrq", OpClass::integer);
  table.add("mad.wide.s32", LATHE_TERNARY(u64, s32, u64(s64(a) * b) + c), "q=rrq", OpClass::integer);
  table.add("mul24.lo.u32", LATHE_BINARY(u32, u32, (a & 0xffffff) * (b & 0xffffff)), "r=rr", OpClass::integer);
  table.add("mul24.lo.s32", LATHE_BINARY(u32, s32, u32(s64(s32(u32(a) << 8) >> 8) * (s32(u32(b) << 8) >> 8))), "r=rr", OpClass::integer);
  table.add("sad.u32", LATHE_TERNARY(u32, u32, c + (a < b ? b - a : a - b)), "r=rrr", OpClass::integer);
  table.add("sad.s32", LATHE_TERNARY(u32, s32, c + (a < b ? u32(b) - u32(a) : u32(a) - u32(b))), "r=rrr", OpClass::integer);
#define LATHE_LOGIC(NAME, T, SIG, SIG1)                                                                                \
  table.add("and." NAME, LATHE_BINARY(T, T, static_cast<T>(a & b)), SIG, OpClass::integer);                           \
  table.add("or." NAME, LATHE_BINARY(T, T, static_cast<T>(a | b)), SIG, OpClass::integer);                            \
  table.add("xor." NAME, LATHE_BINARY(T, T, static_cast<T>(a ^ b)), SIG, OpClass::integer);                           \
  table.add("not." NAME, LATHE_UNARY(T, T, static_cast<T>(~a)), SIG1, OpClass::integer);                              \
  table.add("cnot." NAME, LATHE_UNARY(T, T, static_cast<T>(a == 0)), SIG1, OpClass::integer);
  LATHE_LOGIC("b16", u16, "h=hh", "h=h")
  LATHE_LOGIC("b32", u32, "r=rr", "r=r")
  LATHE_LOGIC("b64", u64, "q=qq", "q=q")
#undef LATHE_LOGIC
#define LATHE_PREDICATE(NAME, E, SIG)                                                                                  \
  table.add(NAME ".pred", [](Warp &warp, const Inst &inst, uint32_t mask) {                                           \
    [[maybe_unused]] u32 a = warp.predicates[inst.s[0]], b = inst.s[1] == kNoSlot ? 0 : warp.predicates[inst.s[1]];   \
    storePredicate(warp, inst.d, mask, (E));                                                                          \
  }, SIG, OpClass::integer);
  LATHE_PREDICATE("and", a & b, "p=pp")
  LATHE_PREDICATE("or", a | b, "p=pp")
  LATHE_PREDICATE("xor", a ^ b, "p=pp")
  LATHE_PREDICATE("not", ~a, "p=p")
  LATHE_PREDICATE("mov", a, "p=p")
#undef LATHE_PREDICATE
#define LATHE_SHIFT(NAME, T, OP, SIG)                                                                                  \
  table.add(NAME, [](Warp &warp, const Inst &inst, uint32_t mask) { shiftOp<T>(warp, inst, mask, OP<T>); }, SIG, OpClass::integer);
  LATHE_SHIFT("shl.b16", u16, shiftLeft, "h=hr")
  LATHE_SHIFT("shl.b32", u32, shiftLeft, "r=rr")
  LATHE_SHIFT("shl.b64", u64, shiftLeft, "q=qr")
  LATHE_SHIFT("shr.b16", u16, shiftRight, "h=hr")
  LATHE_SHIFT("shr.u16", u16, shiftRight, "h=hr")
  LATHE_SHIFT("shr.s16", s16, shiftRight, "h=hr")
  LATHE_SHIFT("shr.b32", u32, shiftRight, "r=rr")
  LATHE_SHIFT("shr.u32", u32, shiftRight, "r=rr")
  LATHE_SHIFT("shr.s32", s32, shiftRight, "r=rr")
  LATHE_SHIFT("shr.b64", u64, shiftRight, "q=qr")
  LATHE_SHIFT("shr.u64", u64, shiftRight, "q=qr")
  LATHE_SHIFT("shr.s64", s64, shiftRight, "q=qr")
#undef LATHE_SHIFT
  table.add("shf.l.wrap.b32", LATHE_TERNARY(u32, u32, u32((u64(b) << 32 | a) << (c & 31) >> 32)), "r=rrr", OpClass::integer);
  table.add("shf.r.wrap.b32", LATHE_TERNARY(u32, u32, u32((u64(b) << 32 | a) >> (c & 31))), "r=rrr", OpClass::integer);
  table.add("shf.l.clamp.b32", LATHE_TERNARY(u32, u32, c >= 32 ? a : u32((u64(b) << 32 | a) << c >> 32)), "r=rrr", OpClass::integer);
  table.add("shf.r.clamp.b32", LATHE_TERNARY(u32, u32, u32((u64(b) << 32 | a) >> std::min(c, 32u))), "r=rrr", OpClass::integer);
  table.add("bfe.u32", extractOp<u32>, "r=rrr", OpClass::integer);
  table.add("bfe.s32", extractOp<s32>, "r=rrr", OpClass::integer);
  table.add("bfe.u64", extractOp<u64>, "q=qrr", OpClass::integer);
  table.add("bfe.s64", extractOp<s64>, "q=qrr", OpClass::integer);
  table.add("bfi.b32", insertOp<u32>, "r=rrrr", OpClass::integer);
  table.add("bfi.b64", insertOp<u64>, "q=qqrr", OpClass::integer);
  table.add("bmsk.clamp.b32", LATHE_BINARY(u32, u32, insert<u32>(~0u, 0u, std::min(a, 32u), std::min(b, 32u))), "r=rr", OpClass::integer);
  table.add("bmsk.wrap.b32", LATHE_BINARY(u32, u32, insert<u32>(~0u, 0u, a & 31, b & 31)), "r=rr", OpClass::integer);
  table.add("brev.b32", LATHE_UNARY(u32, u32, __builtin_bitreverse32(a)), "r=r", OpClass::integer);
  table.add("brev.b64", LATHE_UNARY(u64, u64, __builtin_bitreverse64(a)), "q=q", OpClass::integer);
  table.add("popc.b32", LATHE_UNARY(u32, u32, u32(std::popcount(a))), "r=r", OpClass::integer);
  table.add("popc.b64", LATHE_UNARY(u32, u64, u32(std::popcount(a))), "r=q", OpClass::integer);
  table.add("clz.b32", LATHE_UNARY(u32, u32, u32(std::countl_zero(a))), "r=r", OpClass::integer);
  table.add("clz.b64", LATHE_UNARY(u32, u64, u32(std::countl_zero(a))), "r=q", OpClass::integer);
  table.add("bfind.u32", LATHE_UNARY(u32, u32, u32(31 - std::countl_zero(a))), "r=r", OpClass::integer);
  table.add("bfind.s32", LATHE_UNARY(u32, s32, u32(31 - std::countl_zero(u32(a < 0 ? ~a : a)))), "r=r", OpClass::integer);
  table.add("bfind.u64", LATHE_UNARY(u32, u64, u32(63 - std::countl_zero(a))), "r=q", OpClass::integer);
  table.add("bfind.shiftamt.u32", LATHE_UNARY(u32, u32, a ? u32(std::countl_zero(a)) : ~0u), "r=r", OpClass::integer);
  table.add("lop3.b32", [](Warp &warp, const Inst &inst, uint32_t mask) {
    u32 *d = warp.reg<u32>(inst.d);
    const u32 *a = warp.reg<u32>(inst.s[0]), *b = warp.reg<u32>(inst.s[1]), *c = warp.reg<u32>(inst.s[2]);
    const u32 truth = warp.reg<u32>(inst.s[3])[__builtin_ctz(mask)];
    u32 term[8];
    for (unsigned index = 0; index < 8; ++index)
      term[index] = truth >> index & 1 ? ~0u : 0;
    forLanes(mask, [&](unsigned lane) {
      u32 x = a[lane], y = b[lane], z = c[lane];
      d[lane] = (term[0] & ~x & ~y & ~z) | (term[1] & ~x & ~y & z) | (term[2] & ~x & y & ~z) | (term[3] & ~x & y & z) |
                (term[4] & x & ~y & ~z) | (term[5] & x & ~y & z) | (term[6] & x & y & ~z) | (term[7] & x & y & z);
    });
  }, "r=rrrr", OpClass::integer);
  table.add("prmt.b32", LATHE_TERNARY(u32, u32, [](u32 low, u32 high, u32 selector) {
    u64 bytes = u64(high) << 32 | low;
    u32 result = 0;
    for (unsigned index = 0; index < 4; ++index) {
      u32 select = selector >> (4 * index) & 15;
      u32 byte = u32(bytes >> (8 * (select & 7))) & 0xff;
      if (select & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * index);
    }
    return result;
  }(a, b, c)), "r=rrr", OpClass::integer);
  auto dot = [&](const char *name, Handler run) { table.add(name, run, "r=rrr", OpClass::integer, 61); };
#define LATHE_DOT4(NAME, A, B)                                                                                         \
  dot(NAME, LATHE_TERNARY(u32, u32, [](u32 x, u32 y, u32 sum) {                                                       \
    for (unsigned index = 0; index < 4; ++index)                                                                      \
      sum += u32(s32(A(x >> (8 * index))) * s32(B(y >> (8 * index))));                                                \
    return sum;                                                                                                       \
  }(a, b, c)));
  LATHE_DOT4("dp4a.s32.s32", int8_t, int8_t)
  LATHE_DOT4("dp4a.u32.u32", uint8_t, uint8_t)
  LATHE_DOT4("dp4a.s32.u32", int8_t, uint8_t)
  LATHE_DOT4("dp4a.u32.s32", uint8_t, int8_t)
#undef LATHE_DOT4
#define LATHE_DOT2(NAME, A, B, HIGH)                                                                                   \
  dot(NAME, LATHE_TERNARY(u32, u32, c + u32(s32(A(a)) * s32(B(b >> (HIGH ? 16 : 0)))) + u32(s32(A(a >> 16)) * s32(B(b >> (HIGH ? 24 : 8))))));
  LATHE_DOT2("dp2a.lo.s32.s32", int16_t, int8_t, false)
  LATHE_DOT2("dp2a.hi.s32.s32", int16_t, int8_t, true)
  LATHE_DOT2("dp2a.lo.u32.u32", uint16_t, uint8_t, false)
  LATHE_DOT2("dp2a.hi.u32.u32", uint16_t, uint8_t, true)
#undef LATHE_DOT2
}

void addWideIntegerOps(OpTable &table) {
  addArithmetic<u64>(table, "u64", "q=qq", "q=qqq", "q=q");
  addArithmetic<s64>(table, "s64", "q=qq", "q=qqq", "q=q");
  addHigh<u64, u128>(table, "u64", "q=qq", "q=qqq");
  addHigh<s64, s128>(table, "s64", "q=qq", "q=qqq");
  for (const char *name : {"add", "addc", "sub", "subc", "madc"})
    table.family(name, decodeCarry, OpClass::integer);
  table.family("mad", decodeCarry, OpClass::integer);
}

namespace {
/// imm: 0 add, 1 sub, 2 mad.lo, 3 mad.hi; imm2: 1 reads the carry, 2 writes it. d2 and s[3]: the carry.
template <typename U, typename Wide> void carryOp(Warp &warp, const Inst &inst, uint32_t mask) {
  constexpr unsigned bits = sizeof(U) * 8;
  U *d = warp.reg<U>(inst.d);
  const U *a = warp.reg<U>(inst.s[0]), *b = warp.reg<U>(inst.s[1]), *c = inst.s[2] == kNoSlot ? nullptr : warp.reg<U>(inst.s[2]);
  u32 *carry = warp.reg<u32>(inst.d2);
  eachLane(mask, [&](unsigned lane) {
    Wide in = inst.imm2 & 1 ? carry[lane] : 0, sum;
    if (inst.imm == 1) {
      sum = Wide(a[lane]) - b[lane] - in;
    } else {
      U x = a[lane], y = b[lane];
      if (inst.imm >= 2) {
        Wide product = Wide(a[lane]) * b[lane];
        if (inst.extra) product = static_cast<Wide>(static_cast<s128>(static_cast<std::make_signed_t<U>>(a[lane])) * static_cast<std::make_signed_t<U>>(b[lane]));
        x = static_cast<U>(inst.imm == 3 ? product >> bits : product);
        y = c[lane];
      }
      sum = Wide(x) + y + in;
    }
    d[lane] = static_cast<U>(sum);
    if (inst.imm2 & 2) carry[lane] = static_cast<u32>(sum >> bits) & 1;
  });
}

Status decodeCarry(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  std::string_view name = mods.mnemonic();
  bool reads = name.size() == 4 && name[3] == 'c';
  bool writes = mods.take("cc");
  if (!reads && !writes) return decoder.error("unknown instruction, or a combination of modifiers that is not modelled");
  bool mad = name.substr(0, 3) == "mad";
  if (mad) inst.imm = mods.take("hi") ? 3 : mods.take("lo") ? 2 : 0;
  else inst.imm = name.substr(0, 3) == "sub" ? 1 : 0;
  if (mad && inst.imm == 0) return decoder.error("expected .lo or .hi");
  inst.imm2 = (reads ? 1 : 0) | (writes ? 2 : 0);
  Type type = mods.takeType();
  if (typeBits(type) != 32 && typeBits(type) != 64) return decoder.error("expected a type of 32 or 64 bits");
  inst.extra = isSigned(type);
  inst.run = typeBits(type) == 32 ? carryOp<u32, u64> : carryOp<u64, u128>;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, mad ? 4 : 3, mad ? 4 : 3));
  for (unsigned index = 0; index < (mad ? 3u : 2u); ++index)
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[index + 1], type, inst.s[index]));
  LATHE_RETURN_IF_ERROR(decoder.dest(text.operands[0], type, inst.d));
  inst.d2 = decoder.carrySlot();
  return {};
}
} // namespace

} // namespace lathe::emulator
