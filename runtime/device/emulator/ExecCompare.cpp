//===- ExecCompare.cpp - set, setp, selp, slct -----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// PTX ISA, "Comparison and Selection Instructions".
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Exec.h"
#include "runtime/device/emulator/Numerics.h"

namespace lathe::emulator {
namespace {

enum Compare : uint32_t { eq, ne, lt, le, gt, ge, num, nan, equ, neu, ltu, leu, gtu, geu };
constexpr const char *kCompareNames[] = {"eq", "ne", "lt", "le", "gt", "ge", "num", "nan", "equ", "neu", "ltu", "leu", "gtu", "geu"};

template <typename T> bool compare(uint32_t how, T a, T b) {
  bool unordered = a != a || b != b;
  switch (how) {
  case eq: return a == b;
  case ne: return !unordered && a != b;
  case lt: return a < b;
  case le: return a <= b;
  case gt: return a > b;
  case ge: return a >= b;
  case num: return !unordered;
  case nan: return unordered;
  case equ: return unordered || a == b;
  case neu: return unordered || a != b;
  case ltu: return unordered || a < b;
  case leu: return unordered || a <= b;
  case gtu: return unordered || a > b;
  case geu: return unordered || a >= b;
  }
  return false;
}

template <typename T, bool Flush> uint32_t compareLanes(Warp &warp, const Inst &inst, uint32_t mask, uint32_t how) {
  const auto *a = warp.reg<Held<T>>(inst.s[0]);
  const auto *b = warp.reg<Held<T>>(inst.s[1]);
  uint32_t bits = 0;
  auto one = [&](unsigned lane, auto op) {
    T x = unheld<T>(a[lane]), y = unheld<T>(b[lane]);
    if constexpr (Flush) x = flush(x), y = flush(y);
    bits |= static_cast<uint32_t>(op(x, y)) << lane;
  };
  auto all = [&](auto op) { forLanes(mask, [&](unsigned lane) { one(lane, op); }); };
  switch (how) {
  case eq: all([](T x, T y) { return x == y; }); break;
  case lt: all([](T x, T y) { return x < y; }); break;
  case gt: all([](T x, T y) { return x > y; }); break;
  case neu: all([](T x, T y) { return x != y; }); break;
  case ge: all([](T x, T y) { return x >= y; }); break;
  case le: all([](T x, T y) { return x <= y; }); break;
  default: all([how](T x, T y) { return compare<T>(how, x, y); }); break;
  }
  return bits;
}
template <bool Bfloat> uint32_t compareHalves(Warp &warp, const Inst &inst, uint32_t mask, uint32_t how, unsigned shift) {
  const uint32_t *a = warp.reg<uint32_t>(inst.s[0]), *b = warp.reg<uint32_t>(inst.s[1]);
  uint32_t bits = 0;
  eachLane(mask, [&](unsigned lane) {
    auto value = [&](uint32_t word) { return Bfloat ? bfloatToFloat(static_cast<uint16_t>(word >> shift)) : halfToFloat(static_cast<uint16_t>(word >> shift)); };
    bits |= static_cast<uint32_t>(compare<float>(how, value(a[lane]), value(b[lane]))) << lane;
  });
  return bits;
}

uint32_t compareType(Warp &warp, const Inst &inst, uint32_t mask, unsigned shift) {
  uint32_t how = inst.imm & 0xff;
  switch (static_cast<Type>(inst.imm >> 8 & 0xff)) {
  case Type::u16:
  case Type::b16: return compareLanes<uint16_t, false>(warp, inst, mask, how);
  case Type::s16: return compareLanes<int16_t, false>(warp, inst, mask, how);
  case Type::u32:
  case Type::b32: return compareLanes<uint32_t, false>(warp, inst, mask, how);
  case Type::s32: return compareLanes<int32_t, false>(warp, inst, mask, how);
  case Type::u64:
  case Type::b64: return compareLanes<uint64_t, false>(warp, inst, mask, how);
  case Type::s64: return compareLanes<int64_t, false>(warp, inst, mask, how);
  case Type::f32: return inst.imm >> 16 ? compareLanes<float, true>(warp, inst, mask, how) : compareLanes<float, false>(warp, inst, mask, how);
  case Type::f64: return compareLanes<double, false>(warp, inst, mask, how);
  case Type::f16:
  case Type::f16x2: return compareHalves<false>(warp, inst, mask, how, shift);
  case Type::bf16:
  case Type::bf16x2: return compareHalves<true>(warp, inst, mask, how, shift);
  default: return 0;
  }
}
/// imm2: 0 none, 1 and, 2 or, 3 xor, with the predicate s[2].
uint32_t combine(Warp &warp, const Inst &inst, uint32_t bits) {
  uint32_t other = inst.s[2] == kNoSlot ? 0 : warp.predicates[inst.s[2]];
  switch (inst.imm2 & 3) {
  case 1: return bits & other;
  case 2: return bits | other;
  case 3: return bits ^ other;
  default: return bits;
  }
}

void setPredicate(Warp &warp, const Inst &inst, uint32_t mask) {
  uint32_t bits = compareType(warp, inst, mask, 0);
  uint32_t second = combine(warp, inst, inst.imm2 & 4 ? compareType(warp, inst, mask, 16) : ~bits);
  storePredicate(warp, inst.d, mask, combine(warp, inst, bits));
  if (inst.d2 != kNoSlot) storePredicate(warp, inst.d2, mask, second);
}
/// extra: 0 integer result, 1 f32, 2 f16, 3 f16x2, 4 bf16, 5 bf16x2
void setRegister(Warp &warp, const Inst &inst, uint32_t mask) {
  static constexpr uint32_t one[] = {~0u, 0x3f800000u, 0x3c00u, 0x3c00u, 0x3f80u, 0x3f80u};
  uint32_t low = combine(warp, inst, compareType(warp, inst, mask, 0)), high = 0;
  bool pair = inst.extra == 3 || inst.extra == 5 || inst.imm2 & 4;
  if (pair) high = combine(warp, inst, compareType(warp, inst, mask, 16));
  uint32_t *d = warp.reg<uint32_t>(inst.d);
  eachLane(mask, [&](unsigned lane) {
    uint32_t value = low >> lane & 1 ? one[inst.extra] : 0;
    if (pair) value = (value & 0xffff) | (high >> lane & 1 ? one[inst.extra] << 16 : 0);
    d[lane] = value;
  });
}

/// {set,setp}.cmp{.bool}{.ftz}{.dtype}.type
Status decodeCompare(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst) {
  bool predicate = mods.mnemonic() == "setp";
  uint32_t how = UINT32_MAX;
  std::string_view name = mods.takeNext();
  for (uint32_t index = 0; index < std::size(kCompareNames); ++index)
    if (name == kCompareNames[index]) how = index;
  Type result = Type::pred;
  std::string_view boolean = mods.takeAny({"and", "or", "xor"});
  bool flushes = mods.take("ftz");
  if (!predicate) result = mods.takeType();
  Type type = mods.takeType();
  if (how == UINT32_MAX) {
    // lo, ls, hi, hs: unsigned comparisons
    static constexpr std::pair<const char *, uint32_t> names[] = {{"lo", lt}, {"ls", le}, {"hi", gt}, {"hs", ge}};
    for (auto [other, code] : names)
      if (name == other) how = code;
  }
  if (how == UINT32_MAX || type == Type::none || type == Type::pred) return decoder.error("expected a comparison and a type");
  if (!isFloat(type) && how > ge) return decoder.error("comparison '%.*s' is for floating-point types", static_cast<int>(name.size()), name.data());
  if (!isFloat(type) && how == ne) how = neu; // one meaning for integers
  inst.imm = how | static_cast<uint32_t>(type) << 8 | (flushes ? 1u << 16 : 0);
  inst.imm2 = boolean == "and" ? 1 : boolean == "or" ? 2 : boolean == "xor" ? 3 : 0;
  bool pair = type == Type::f16x2 || type == Type::bf16x2;
  if (pair) inst.imm2 |= 4;
  size_t operands = boolean.empty() ? 3 : 4;
  LATHE_RETURN_IF_ERROR(decoder.operandCount(text, operands, operands));
  for (unsigned index = 0; index < 2; ++index)
    LATHE_RETURN_IF_ERROR(decoder.source(text.operands[index + 1], type, inst.s[index]));
  if (!boolean.empty()) LATHE_RETURN_IF_ERROR(decoder.source(text.operands[3], Type::pred, inst.s[2]));
  const Operand &target = text.operands[0];
  LATHE_RETURN_IF_ERROR(decoder.dest(target, result, inst.d));
  if (predicate) {
    inst.run = setPredicate;
    if (target.hasPair) LATHE_RETURN_IF_ERROR(decoder.dest(target.parts.back(), Type::pred, inst.d2));
    return {};
  }
  inst.run = setRegister;
  switch (result) {
  case Type::u32:
  case Type::s32: inst.extra = 0; break;
  case Type::f32: inst.extra = 1; break;
  case Type::f16: inst.extra = 2; break;
  case Type::f16x2: inst.extra = 3; break;
  case Type::bf16: inst.extra = 4; break;
  case Type::bf16x2: inst.extra = 5; break;
  default: return decoder.error("set to .%s is not modelled", typeName(result));
  }
  return {};
}

template <typename T> void select(Warp &warp, const Inst &inst, uint32_t mask) {
  T *d = warp.reg<T>(inst.d);
  const T *a = warp.reg<T>(inst.s[0]), *b = warp.reg<T>(inst.s[1]);
  uint32_t predicate = warp.predicates[inst.s[2]];
  forLanes(mask, [=](unsigned lane) { d[lane] = predicate >> lane & 1 ? a[lane] : b[lane]; });
}

} // namespace

void addCompareOps(OpTable &table) {
  table.family("setp", decodeCompare, OpClass::integer);
  table.family("set", decodeCompare, OpClass::integer);
  for (const char *type : {"b16", "u16", "s16"})
    table.add((std::string("selp.") + type).c_str(), select<uint32_t>, "h=hhp", OpClass::integer);
  for (const char *type : {"b32", "u32", "s32", "f32"})
    table.add((std::string("selp.") + type).c_str(), select<uint32_t>, type[0] == 'f' ? "f=ffp" : "r=rrp", OpClass::integer);
  for (const char *type : {"b64", "u64", "s64", "f64"})
    table.add((std::string("selp.") + type).c_str(), select<uint64_t>, type[0] == 'f' ? "d=ddp" : "q=qqp", OpClass::integer);
  table.add("slct.u32.s32", LATHE_TERNARY(uint32_t, uint32_t, static_cast<int32_t>(c) >= 0 ? a : b), "r=rrr", OpClass::integer);
  table.add("slct.s32.s32", LATHE_TERNARY(uint32_t, uint32_t, static_cast<int32_t>(c) >= 0 ? a : b), "r=rrr", OpClass::integer);
}

} // namespace lathe::emulator
