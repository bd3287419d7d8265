//===- InstructionTest.cpp - instructions against formulas of their own ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// To add an instruction: one row with its text (d, a, b, c are registers) and the value expected.
//===----------------------------------------------------------------------===//
#include "Harness.h"
#include <cmath>
#include <functional>

namespace lathe::emulator {
namespace {

template <typename T> std::vector<T> operands(unsigned which) {
  std::vector<T> values;
  const T edges[] = {T(0), T(1), T(2), T(31), T(32), T(33), T(63), T(64), T(255), T(~T(0)), T(T(1) << (sizeof(T) * 8 - 1)), T((T(1) << (sizeof(T) * 8 - 1)) - 1)};
  Random random{which * 77u + 5};
  for (unsigned index = 0; index < 1024; ++index) {
    if (index < 144) values.push_back(edges[which == 0 ? index % 12 : which == 1 ? index / 12 : (index * 7) % 12]);
    else if (index % 3 == 0) values.push_back(static_cast<T>(random.next() % 40));
    else values.push_back(static_cast<T>(random.next()));
  }
  return values;
}

/// Runs "op" on 1024 triples; a, b, c and d have |T|'s size unless they are named otherwise.
template <typename T> std::vector<T> evaluate(const std::string &op, const std::vector<T> &a, const std::vector<T> &b, const std::vector<T> &c) {
  const std::string bits = std::to_string(sizeof(T) * 8), shift = sizeof(T) == 8 ? "3" : "2";
  Harness harness;
  EXPECT_TRUE(harness.load(kernelText(".reg .b" + bits + " d, a, b, c; .reg .b32 bl, cl, dl, w; .reg .pred p, q; .reg .b64 o, x; .reg .b16 h, i;",
                                      ".reg .b32 %c; mov.u32 %c, %ctaid.x; mad.lo.u32 %t, %c, 256, %t; mul.wide.u32 o, %t, " + std::to_string(sizeof(T)) + ";\n"
                                      "add.u64 x, %p0, o; ld.global.b" + bits + " a, [x]; add.u64 x, %p1, o; ld.global.b" + bits + " b, [x]; add.u64 x, %p2, o; ld.global.b" + bits + " c, [x];\n" +
                                          (sizeof(T) == 8 ? "cvt.u32.u64 bl, b; cvt.u32.u64 cl, c;\n" : "mov.b32 bl, b; mov.b32 cl, c;\n") + op + "\nadd.u64 x, %p3, o; st.global.b" + bits + " [x], d;",
                                      4)))
      << op << ": " << errorOf(harness);
  if (!harness.module) return {};
  uint64_t out = harness.space<T>(a.size());
  Arguments arguments;
  arguments.add(harness.put(a)).add(harness.put(b)).add(harness.put(c)).add(out);
  EXPECT_TRUE(harness.run("k", {.grid = {4}, .block = {256}, .cluster = {}}, arguments)) << op << ": " << errorOf(harness);
  return harness.get<T>(out, a.size());
}

template <typename T> struct Row { const char *op; std::function<T(T, T, T)> expected; };
template <typename T> void check(const std::vector<Row<T>> &rows) {
  auto a = operands<T>(0), b = operands<T>(1), c = operands<T>(2);
  for (const Row<T> &row : rows) {
    auto found = evaluate<T>(row.op, a, b, c);
    for (size_t index = 0; index < found.size(); ++index)
      if (T expected = row.expected(a[index], b[index], c[index]); expected != static_cast<T>(~T(1))) // ~1: the formula cannot tell
        ASSERT_EQ(found[index], expected) << row.op << " of " << a[index] << ", " << b[index] << ", " << c[index];
  }
}

using U = uint32_t;
using S = int32_t;
using L = uint64_t;

TEST(Integer, ThirtyTwoBits) {
  check<U>({
      {"add.u32 d, a, b;", [](U a, U b, U) { return U((L(a) + b) & 0xffffffff); }},
      {"sub.s32 d, a, b;", [](U a, U b, U) { return U((L(a) + (L(1) << 32) - b) & 0xffffffff); }},
      {"add.sat.s32 d, a, b;", [](U a, U b, U) { double s = double(S(a)) + S(b); return s > INT32_MAX ? U(INT32_MAX) : s < INT32_MIN ? U(INT32_MIN) : U(S(s)); }},
      {"mul.lo.s32 d, a, b;", [](U a, U b, U) { return U(L(a) * b); }},
      {"mul.hi.u32 d, a, b;", [](U a, U b, U) { return U((L(a) * b) >> 32); }},
      {"mul.hi.s32 d, a, b;", [](U a, U b, U) { L p = L(a) * b; U h = U(p >> 32); return h - (S(a) < 0 ? b : 0) - (S(b) < 0 ? a : 0); }},
      {"mad.lo.u32 d, a, b, c;", [](U a, U b, U c) { return U(L(a) * b + c); }},
      {"mad.hi.u32 d, a, b, c;", [](U a, U b, U c) { return U((L(a) * b) >> 32) + c; }},
      {"min.s32 d, a, b;", [](U a, U b, U) { return (a ^ 0x80000000u) < (b ^ 0x80000000u) ? a : b; }},
      {"max.u32 d, a, b;", [](U a, U b, U) { return a > b ? a : b; }},
      {"div.u32 d, a, b;", [](U a, U b, U) { return b ? a / b : ~0u; }},
      {"rem.u32 d, a, b;", [](U a, U b, U) { return b ? a % b : a; }},
      {"div.s32 d, a, b;", [](U a, U b, U) { return b == 0 ? ~0u : U(static_cast<int64_t>(S(a)) / S(b)); }},
      {"rem.s32 d, a, b;", [](U a, U b, U) { return b == 0 ? a : U(static_cast<int64_t>(S(a)) % S(b)); }},
      {"neg.s32 d, a;", [](U a, U, U) { return ~a + 1; }},
      {"abs.s32 d, a;", [](U a, U, U) { return a >> 31 ? ~a + 1 : a; }},
      {"and.b32 d, a, b; xor.b32 d, d, c;", [](U a, U b, U c) { return (a & b) ^ c; }},
      {"or.b32 d, a, b; not.b32 d, d;", [](U a, U b, U) { return ~(a | b); }},
      {"shl.b32 d, a, bl;", [](U a, U b, U) { return b > 31 ? 0 : U(L(a) << b); }},
      {"shr.u32 d, a, bl;", [](U a, U b, U) { return b > 31 ? 0 : a >> b; }},
      {"shr.s32 d, a, bl;", [](U a, U b, U) { U n = b > 31 ? 31 : b; return U(S(std::floor(double(S(a)) / std::ldexp(1.0, int(n))))); }},
      {"shf.l.wrap.b32 d, a, b, c;", [](U a, U b, U c) { c &= 31; return c ? b << c | a >> (32 - c) : b; }},
      {"shf.r.clamp.b32 d, a, b, c;", [](U a, U b, U c) { return c >= 32 ? b : c ? a >> c | b << (32 - c) : a; }},
      {"bfe.u32 d, a, b, c;", [](U a, U b, U c) { U r = 0; b &= 255; c &= 255; for (U i = 0; i < c && i < 32 && b + i < 32; ++i) r |= (a >> (b + i) & 1) << i; return r; }},
      {"bfe.s32 d, a, b, c;", [](U a, U b, U c) { b &= 255; c &= 255; U r = 0; if (c == 0) return r; U sign = a >> (b + c - 1 < 31 ? b + c - 1 : 31) & 1; for (U i = 0; i < 32; ++i) r |= (i < c && b + i < 32 ? a >> (b + i) & 1 : sign) << i; return r; }},
      {"bfi.b32 d, a, b, 5, 9;", [](U a, U b, U) { U r = b; for (U i = 0; i < 9; ++i) r = (r & ~(1u << (5 + i))) | (a >> i & 1) << (5 + i); return r; }},
      {"brev.b32 d, a;", [](U a, U, U) { U r = 0; for (U i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i); return r; }},
      {"popc.b32 d, a;", [](U a, U, U) { U n = 0; for (; a; a &= a - 1) ++n; return n; }},
      {"clz.b32 d, a;", [](U a, U, U) { U n = 0; while (n < 32 && !(a >> (31 - n))) ++n; return n; }},
      {"bfind.u32 d, a;", [](U a, U, U) { U r = ~0u; for (U i = 0; i < 32; ++i) if (a >> i & 1) r = i; return r; }},
      {"lop3.b32 d, a, b, c, 0xe8;", [](U a, U b, U c) { return (a & b) | (a & c) | (b & c); }},
      {"lop3.b32 d, a, b, c, 0x1b;", [](U a, U b, U c) { U r = 0; for (U i = 0; i < 32; ++i) r |= (0x1bu >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i; return r; }},
      {"prmt.b32 d, a, b, c;", [](U a, U b, U c) { U r = 0; for (U i = 0; i < 4; ++i) { U s = c >> (4 * i) & 15; U v = (s & 4 ? b : a) >> (8 * (s & 3)) & 255; if (s & 8) v = v >> 7 ? 255 : 0; r |= v << (8 * i); } return r; }},
      {"dp4a.s32.s32 d, a, b, c;", [](U a, U b, U c) { for (U i = 0; i < 32; i += 8) { S x = S(a >> i & 255), y = S(b >> i & 255); c += U((x - (x > 127 ? 256 : 0)) * (y - (y > 127 ? 256 : 0))); } return c; }},
      {"dp4a.u32.s32 d, a, b, c;", [](U a, U b, U c) { for (U i = 0; i < 32; i += 8) { S x = S(a >> i & 255), y = S(b >> i & 255); c += U(x * (y - (y > 127 ? 256 : 0))); } return c; }},
      {"sad.u32 d, a, b, c;", [](U a, U b, U c) { return c + (a > b ? a - b : b - a); }},
      {"setp.lt.s32 p, a, b; selp.b32 d, a, c, p;", [](U a, U b, U c) { return S(a) < S(b) ? a : c; }},
      {"setp.hi.u32 p, a, b; selp.u32 d, 1, 0, p;", [](U a, U b, U) { return U(a > b); }},
      {"setp.ge.u32 q, b, c; setp.eq.and.u32 p|q, a, b, q; selp.b32 d, 1, 0, p; selp.b32 w, 2, 0, q; or.b32 d, d, w;", [](U a, U b, U c) { return U(a == b && b >= c) | U(a != b && b >= c) << 1; }},
      {"setp.lt.s32 p, a, b; setp.gt.s32 q, a, c; xor.pred p, p, q; not.pred p, p; selp.b32 d, b, a, p;", [](U a, U b, U c) { return (S(a) < S(b)) == (S(a) > S(c)) ? b : a; }},
      {"cvt.u16.u32 h, a; cvt.s32.s16 d, h;", [](U a, U, U) { U low = a & 0xffff; return low > 0x7fff ? low | 0xffff0000u : low; }},
      {"cvt.s32.s8 d, a;", [](U a, U, U) { U low = a & 0xff; return low > 0x7f ? low | 0xffffff00u : low; }},
      {"cvt.u32.u8 d, a;", [](U a, U, U) { return a & 0xff; }},
      {"cvt.sat.u8.s32 d, a;", [](U a, U, U) { return S(a) < 0 ? 0 : a > 255 ? 255 : a; }},
      {"cvt.sat.s16.s32 h, a; cvt.s32.s16 d, h;", [](U a, U, U) { return S(a) < -32768 ? U(-32768) : S(a) > 32767 ? 32767 : a; }},
      {"mov.b32 {h, i}, a; mov.b32 d, {i, h};", [](U a, U, U) { return a << 16 | a >> 16; }},
      {"cvt.u16.u32 h, a; cvt.u16.u32 i, b; mul.wide.u16 d, h, i;", [](U a, U b, U) { return (a & 0xffff) * (b & 0xffff); }},
      {"add.cc.u32 d, a, b; addc.u32 d, c, 0;", [](U a, U b, U c) { return c + U((L(a) + b) >> 32); }},
      {"sub.cc.u32 d, a, b; subc.u32 d, c, 0;", [](U a, U b, U c) { return c - U(a < b); }},
      {"setp.lt.u32 p, a, b; mov.b32 d, c; @p bra L; add.u32 d, a, 1; L: add.u32 d, d, b;", [](U a, U b, U c) { return (a < b ? c : a + 1) + b; }},
  });
}

TEST(Integer, SixtyFourBits) {
  using Q = int64_t;
  __extension__ typedef unsigned __int128 W;
  check<L>({
      {"add.s64 d, a, b;", [](L a, L b, L) { return a + b; }},
      {"copysign.f64 d, a, b;", [](L a, L b, L) { return b << 1 >> 1 | a >> 63 << 63; }},
      {"sub.u64 d, a, b;", [](L a, L b, L) { return a - b; }},
      {"mul.lo.u64 d, a, b;", [](L a, L b, L) { return L(W(a) * b); }},
      {"mul.hi.u64 d, a, b;", [](L a, L b, L) { return L(W(a) * b >> 64); }},
      {"mad.lo.s64 d, a, b, c;", [](L a, L b, L c) { return L(W(a) * b + c); }},
      {"div.u64 d, a, b;", [](L a, L b, L) { return b ? a / b : ~L(0); }},
      {"rem.s64 d, a, b;", [](L a, L b, L) { return b == 0 ? a : b == ~L(0) ? 0 : L(Q(a) % Q(b)); }},
      {"shl.b64 d, a, bl;", [](L a, L b, L) { U n = U(b); return n > 63 ? 0 : a << n; }},
      {"shr.s64 d, a, bl;", [](L a, L b, L) { U n = U(b) > 63 ? 63 : U(b); L r = a >> n; return a >> 63 && n ? r | ~L(0) << (64 - n) : r; }},
      {"bfe.u64 d, a, 7, 40;", [](L a, L, L) { return a >> 7 & ((L(1) << 40) - 1); }},
      {"popc.b64 w, a; cvt.u64.u32 d, w;", [](L a, L, L) { L n = 0; for (; a; a &= a - 1) ++n; return n; }},
      {"clz.b64 w, a; cvt.u64.u32 d, w;", [](L a, L, L) { L n = 0; while (n < 64 && !(a >> (63 - n))) ++n; return n; }},
      {"mul.wide.u32 d, bl, cl;", [](L, L b, L c) { return L(U(b)) * U(c); }},
      {"mul.wide.s32 d, bl, cl;", [](L, L b, L c) { return L(Q(S(U(b))) * S(U(c))); }},
      {"mad.wide.s32 d, bl, cl, a;", [](L a, L b, L c) { return a + L(Q(S(U(b))) * S(U(c))); }},
      {"cvt.s64.s32 d, bl;", [](L, L b, L) { return L(Q(S(U(b)))); }},
      {"cvt.s64.s8 d, a;", [](L a, L, L) { L low = a & 0xff; return low > 0x7f ? low | ~L(0xff) : low; }},
      {"mov.b64 {w, dl}, a; mov.b64 d, {dl, w};", [](L a, L, L) { return a << 32 | a >> 32; }},
      {"min.u64 d, a, b;", [](L a, L b, L) { return a < b ? a : b; }},
      {"setp.ge.s64 p, a, b; selp.b64 d, a, c, p;", [](L a, L b, L c) { return Q(a) >= Q(b) ? a : c; }},
  });
}

float asFloat(U bits) { float value; std::memcpy(&value, &bits, 4); return value; }
U asBits(float value) { U bits; std::memcpy(&bits, &value, 4); return value != value ? 0x7fffffffu : bits; }
float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value; }

TEST(Float, Arithmetic) {
  check<U>({
      {"add.rn.f32 d, a, b;", [](U a, U b, U) { return asBits(float(double(asFloat(a)) + asFloat(b))); }},
      {"sub.f32 d, a, b;", [](U a, U b, U) { return asBits(asFloat(a) - asFloat(b)); }},
      {"mul.rn.f32 d, a, b;", [](U a, U b, U) { return asBits(float(double(asFloat(a)) * asFloat(b))); }},
      {"fma.rn.f32 d, a, b, c;", [](U a, U b, U c) { return asBits(std::fma(asFloat(a), asFloat(b), asFloat(c))); }},
      {"add.ftz.f32 d, a, b;", [](U a, U b, U) { return asBits(flushed(flushed(asFloat(a)) + flushed(asFloat(b)))); }},
      {"div.rn.f32 d, a, b;", [](U a, U b, U) { return asBits(float(double(asFloat(a)) / asFloat(b))); }},
      {"sqrt.rn.f32 d, a;", [](U a, U, U) { return asBits(float(std::sqrt(double(asFloat(a))))); }},
      {"rcp.rn.f32 d, a;", [](U a, U, U) { return asBits(float(1.0 / asFloat(a))); }},
      {"neg.f32 d, a;", [](U a, U, U) { return a ^ 0x80000000u; }},
      {"abs.f32 d, a;", [](U a, U, U) { return a & 0x7fffffffu; }},
      {"max.f32 d, a, b;", [](U a, U b, U) { float x = asFloat(a), y = asFloat(b); if (x == y) return asBits(std::signbit(x) ? y : x); return asBits(x != x ? y : y != y ? x : x > y ? x : y); }},
      {"min.NaN.f32 d, a, b;", [](U a, U b, U) { float x = asFloat(a), y = asFloat(b); if (x != x || y != y) return 0x7fffffffu; if (x == y) return asBits(std::signbit(x) ? x : y); return asBits(x < y ? x : y); }},
      {"setp.ltu.f32 p, a, b; selp.b32 d, 1, 0, p;", [](U a, U b, U) { return U(!(asFloat(a) >= asFloat(b))); }},
      {"setp.ne.f32 p, a, b; selp.b32 d, 1, 0, p;", [](U a, U b, U) { float x = asFloat(a), y = asFloat(b); return U(x < y || x > y); }},
      {"setp.num.f32 p, a, b; selp.b32 d, 1, 0, p;", [](U a, U b, U) { return U(asFloat(a) == asFloat(a) && asFloat(b) == asFloat(b)); }},
      {"cvt.rni.s32.f32 d, a;", [](U a, U, U) { float x = asFloat(a); if (x != x) return 0u; double r = std::nearbyint(double(x)); return U(r > 2147483647.0 ? INT32_MAX : r < -2147483648.0 ? INT32_MIN : S(r)); }},
      {"cvt.rzi.u32.f32 d, a;", [](U a, U, U) { float x = asFloat(a); return x != x || x <= 0 ? 0u : x >= 4294967296.0f ? ~0u : U(x); }},
      {"cvt.rn.f32.s32 d, a;", [](U a, U, U) { return asBits(float(double(S(a)))); }},
      {"cvt.rn.f32.u32 d, a;", [](U a, U, U) { return asBits(float(double(a))); }},
      {"add.rz.f32 d, a, b;", [](U a, U b, U) { double exact = double(asFloat(a)) + asFloat(b); float r = float(exact); double e1 = std::fabs(double(std::ilogb(asFloat(a))) - std::ilogb(asFloat(b))); if (e1 > 28 || !std::isfinite(exact)) return ~1u; if (std::fabs(double(r)) > std::fabs(exact)) r = std::nextafterf(r, 0); return asBits(r); }},
  });
}

// Every f16, and bf16 of every exponent, with float32: against float64, which holds both products and sums of these.
TEST(Half, MixedPrecision) {
  Options options;
  options.capability = 100;
  for (bool bfloat : {false, true}) {
    const std::string type = bfloat ? "bf16" : "f16";
    Harness machine(options);
    ASSERT_TRUE(machine.load(kernelText(".reg .b16 a, b; .reg .f32 c, d; .reg .b64 i, q;",
                                        "mul.wide.u32 i, %t, 4; add.u64 q, %p0, i; ld.global.u16 a, [q]; ld.global.u16 b, [q+2]; add.u64 q, %p1, i; ld.global.f32 c, [q];\n"
                                        "mul.wide.u32 i, %t, 16; add.u64 q, %p2, i;\n"
                                        "add.rn.f32." + type + " d, a, c; st.global.f32 [q], d; sub.rn.f32." + type + " d, a, c; st.global.f32 [q+4], d;\n"
                                        "fma.rn.f32." + type + " d, a, b, c; st.global.f32 [q+8], d; add.sat.f32." + type + " d, a, c; st.global.f32 [q+12], d;",
                                        3, "sm_100a")))
        << machine.status.message();
    Random random{7};
    for (int round = 0; round < 64; ++round) {
      std::vector<uint16_t> halves;
      std::vector<float> singles;
      for (int i = 0; i < 1024; ++i) {
        for (int k = 0; k < 2; ++k) {
          auto bits = static_cast<uint16_t>(random.next());
          uint16_t exponent = bfloat ? 0x7f80 : 0x7c00;
          if (bfloat) bits = static_cast<uint16_t>((bits & 0x807f) | (100 + (bits >> 7 & 63)) << 7); // what float64 holds the sum of
          if ((bits & exponent) == exponent) bits ^= 0x4000;
          halves.push_back(bits);
        }
        singles.push_back(std::ldexp(static_cast<float>(static_cast<int64_t>(random.next() >> 40) - (1 << 23)), static_cast<int>(random.next() % 24) - 30));
      }
      uint64_t p0 = machine.put(halves), p1 = machine.put(singles), p2 = machine.space<float>(4096);
      ASSERT_TRUE(machine.run("k", {{1, 1, 1}, {1024, 1, 1}}, Arguments().add(p0).add(p1).add(p2))) << machine.status.message();
      std::vector<float> out = machine.get<float>(p2, 4096);
      auto wide = [&](uint16_t bits) {
        int e = bfloat ? bits >> 7 & 255 : bits >> 10 & 31, m = bfloat ? bits & 127 : bits & 1023, digits = bfloat ? 7 : 10, bias = bfloat ? 127 : 15;
        double value = e ? std::ldexp(double(m + (1 << digits)), e - bias - digits) : std::ldexp(double(m), 1 - bias - digits);
        return bits >> 15 ? -value : value;
      };
      for (size_t i = 0; i < 1024; ++i) {
        double a = wide(halves[2 * i]), b = wide(halves[2 * i + 1]), c = singles[i];
        ASSERT_EQ(out[4 * i], static_cast<float>(a + c)) << i;
        ASSERT_EQ(out[4 * i + 1], static_cast<float>(a - c)) << i;
        if (!bfloat) ASSERT_EQ(out[4 * i + 2], static_cast<float>(a * b + c)) << i; // the exponents of two bf16 lie too far apart
        ASSERT_EQ(out[4 * i + 3], std::clamp(static_cast<float>(a + c), 0.0f, 1.0f)) << i;
      }
    }
  }
  Harness older;
  EXPECT_FALSE(older.load(kernelText(".reg .b16 a; .reg .f32 d;", "mov.b16 a, 0; mov.f32 d, 0f00000000; add.rn.f32.f16 d, a, d;", 0)));
  EXPECT_NE(older.status.message().find("needs sm_100"), std::string::npos) << older.status.message();
}

} // namespace
} // namespace lathe::emulator
