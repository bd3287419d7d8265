//===- MatrixTest.cpp - mma, ldmatrix, conversions, tensor maps, wgmma -----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Fragments are built element by element from the figures of the PTX ISA, and products compared with a
// plain matrix product.
//===----------------------------------------------------------------------===//
#include "Harness.h"
#include "runtime/device/emulator/MatrixMath.h"
#include "runtime/device/emulator/Numerics.h"
#include <bit>
#include <cmath>

namespace lathe::emulator {
namespace {

TEST(Formats, RoundTripEveryCode) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    for (const Format &format : {kHalf, kBfloat}) {
      double value = decode(bits, format);
      if (value != value) continue;
      for (Rounding rounding : {Rounding::nearest, Rounding::zero, Rounding::down, Rounding::up})
        ASSERT_EQ(encode(value, format, rounding, false), bits);
    }
  for (uint32_t bits = 0; bits < 256; ++bits)
    for (const Format &format : {kE4m3, kE5m2}) {
      double value = decode(bits, format);
      if (value == value) ASSERT_EQ(encode(value, format, Rounding::nearest, false), bits);
    }
  EXPECT_EQ(encode(1e9, kE4m3, Rounding::nearest, true), 0x7eu);
  EXPECT_EQ(encode(-1e9, kE5m2, Rounding::nearest, true), 0xfbu);
  EXPECT_EQ(encode(1e9, kE4m3, Rounding::nearest, false), 0x7fu);
}
TEST(Formats, NearestIsTheNearestOfAllCodes) {
  // Independent of the encoder: search the two neighbours among all decoded values.
  Random random{3};
  for (const Format &format : {kHalf, kE4m3, kE5m2}) {
    const unsigned codes = 1u << (format.exponentBits + format.mantissaBits);
    for (int round = 0; round < 300; ++round) {
      double value = std::ldexp(1.0 + (random.next() >> 40) * 0x1p-24, int(random.next() % 24) - 16);
      double best = INFINITY;
      uint32_t code = 0;
      for (uint32_t bits = 0; bits < codes; ++bits) {
        double candidate = decode(bits, format);
        if (candidate != candidate || std::isinf(candidate)) continue;
        double error = std::fabs(candidate - value);
        if (error < best || (error == best && !(bits & 1))) best = error, code = bits;
      }
      if (value > decode(format.hasInfinity ? (codes - 1) & ~((1u << format.mantissaBits) - 1) : codes - 1, format)) continue;
      ASSERT_EQ(encode(value, format, Rounding::nearest, true), code) << value;
    }
  }
}

/// Runs one mma with the operands given as matrices of raw elements.
struct MmaCase { const char *opcode; int m, k, bits; Format format; bool integer, isSigned, f16; };
class Mma : public testing::TestWithParam<MmaCase> {};
TEST_P(Mma, MatchesAPlainProduct) {
  const MmaCase &c = GetParam();
  const int perRegister = 32 / c.bits, na = c.m * c.k / 32 / perRegister, nb = 8 * c.k / 32 / perRegister, nc = c.f16 ? c.m / 8 : c.m / 4;
  Random random{17};
  std::vector<uint32_t> a(c.m * c.k), b(c.k * 8), fa(32 * na), fb(32 * nb), fc(32 * nc);
  std::vector<double> ref(c.m * 8);
  auto element = [&] {
    if (c.integer) return uint32_t(random.next() & ((1u << c.bits) - 1));
    double value = random.uniform(-2, 2);
    if (c.bits == 32) return std::bit_cast<uint32_t>(float(value)) & 0xffffe000u;
    return encode(value, c.format, Rounding::nearest, true);
  };
  auto number = [&](uint32_t bits) -> double {
    if (c.integer) return c.isSigned && bits >> (c.bits - 1) ? double(bits) - double(1u << c.bits) : double(bits);
    return c.bits == 32 ? double(std::bit_cast<float>(bits)) : decode(bits, c.format);
  };
  for (uint32_t &value : a)
    value = element();
  for (uint32_t &value : b)
    value = element();
  for (int row = 0; row < c.m; ++row)
    for (int k = 0; k < c.k; ++k) { // the lane and register that hold A[row][k]
      int lane = (row % 8) * 4 + k / perRegister % 4, reg = (c.m == 16 ? row / 8 : 0) + (c.m == 16 ? 2 : 1) * (k / (4 * perRegister));
      fa[reg * 32 + lane] |= a[row * c.k + k] << (k % perRegister * c.bits % 32);
    }
  for (int k = 0; k < c.k; ++k)
    for (int n = 0; n < 8; ++n)
      fb[k / (4 * perRegister) * 32 + n * 4 + k / perRegister % 4] |= b[k * 8 + n] << (k % perRegister * c.bits % 32);
  for (int row = 0; row < c.m; ++row)
    for (int n = 0; n < 8; ++n) {
      int lane = (row % 8) * 4 + n / 2, reg = c.f16 ? row / 8 : row / 8 * 2 + n % 2;
      double start = c.integer ? double(int(random.next() % 100) - 50) : double(int(random.next() % 9) - 4) * 0.25;
      ref[row * 8 + n] = start;
      uint32_t bits = c.integer ? uint32_t(int(start)) : c.f16 ? uint32_t(floatToHalf(float(start))) << (16 * (n % 2)) : std::bit_cast<uint32_t>(float(start));
      fc[reg * 32 + lane] |= bits;
      for (int k = 0; k < c.k; ++k)
        ref[row * 8 + n] += number(a[row * c.k + k]) * number(b[k * 8 + n]);
    }
  std::string body, list[4];
  auto registers = [&](int which, char name, int count) {
    for (int i = 0; i < count; ++i)
      list[which] += std::string(i ? ", " : "{") + name + std::to_string(i);
    list[which] += "}";
  };
  registers(0, 'd', nc), registers(1, 'a', na), registers(2, 'b', nb), registers(3, 'c', nc);
  auto loads = [&](char name, int count, int pointer) {
    for (int i = 0; i < count; ++i)
      body += std::string("add.u64 x, %p") + std::to_string(pointer) + ", o; ld.global.b32 " + name + std::to_string(i) + ", [x+" + std::to_string(i * 128) + "];\n";
  };
  body = "mul.wide.u32 o, %t, 4;\n";
  loads('a', na, 0), loads('b', nb, 1), loads('c', nc, 2);
  body += std::string(c.opcode) + " " + list[0] + ", " + list[1] + ", " + list[2] + ", " + list[3] + ";\nadd.u64 x, %p3, o;\n";
  for (int i = 0; i < nc; ++i)
    body += "st.global.b32 [x+" + std::to_string(i * 128) + "], d" + std::to_string(i) + ";\n";
  Options options;
  if (std::string(c.opcode).find("kind::") != std::string::npos) options.capability = 120;
  Harness h(options);
  ASSERT_TRUE(h.load(kernelText(".reg .b64 o, x; .reg .b32 a<4>, b<4>, c<4>, d<4>;", body, 4))) << errorOf(h);
  uint64_t out = h.space<uint32_t>(32 * nc);
  ASSERT_TRUE(h.run("k", {.grid = {}, .block = {32}, .cluster = {}}, Arguments().add(h.put(fa)).add(h.put(fb)).add(h.put(fc)).add(out))) << errorOf(h);
  auto found = h.get<uint32_t>(out, 32 * nc);
  for (int row = 0; row < c.m; ++row)
    for (int n = 0; n < 8; ++n) {
      uint32_t bits = found[(c.f16 ? row / 8 : row / 8 * 2 + n % 2) * 32 + (row % 8) * 4 + n / 2];
      double value = c.integer ? double(int32_t(bits)) : c.f16 ? double(halfToFloat(uint16_t(bits >> (16 * (n % 2))))) : double(std::bit_cast<float>(bits));
      double tolerance = c.integer ? 0 : c.f16 ? 0.04 : c.bits == 8 ? 0.02 : 2e-5;
      ASSERT_NEAR(value, ref[row * 8 + n], tolerance) << c.opcode << " row " << row << " column " << n;
    }
  EXPECT_EQ(h.stats.matrixInstructions, 1u);
}
INSTANTIATE_TEST_SUITE_P(Shapes, Mma, testing::Values(
    MmaCase{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 16, 16, kHalf, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 16, 8, 16, kHalf, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, 16, 16, kHalf, false, false, true},
    MmaCase{"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, 16, kBfloat, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 16, 8, 32, kHalf, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 16, 4, 32, kHalf, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 16, 32, 8, kE4m3, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", 16, 32, 8, kE5m2, false, false, false},
    MmaCase{"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 16, 32, 8, kHalf, true, true, false},
    MmaCase{"mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32", 16, 16, 8, kHalf, true, false, false},
    MmaCase{"mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", 8, 16, 8, kHalf, true, true, false},
    MmaCase{"mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 16, 64, 4, kHalf, true, true, false}));

TEST(Matrix, LoadAndTranspose) {
  for (bool transposed : {false, true}) {
    Harness h;
    std::string opcode = std::string("ldmatrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") + ".shared.b16";
    ASSERT_TRUE(h.load(kernelText(".reg .b64 o, x; .reg .b32 %r<9>; .shared .align 16 .b8 s[512];",
                                  "mov.u32 %r5, s; shl.b32 %r6, %t, 4; add.u32 %r5, %r5, %r6; mul.wide.u32 o, %t, 16; add.u64 x, %p0, o; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [x]; st.shared.v4.b32 [%r5], {%r1, %r2, %r3, %r4}; bar.sync 0;\n" +
                                      opcode + " {%r1, %r2, %r3, %r4}, [%r5]; add.u64 x, %p1, o; st.global.v4.b32 [x], {%r1, %r2, %r3, %r4};", 2)));
    std::vector<uint16_t> in(256);
    for (size_t i = 0; i < in.size(); ++i)
      in[i] = uint16_t(i * 7 + 1);
    uint64_t out = h.space<uint16_t>(256);
    ASSERT_TRUE(h.run("k", {.grid = {}, .block = {32}, .cluster = {}}, Arguments().add(h.put(in)).add(out))) << errorOf(h);
    auto found = h.get<uint16_t>(out, 256);
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int lane = 0; lane < 32; ++lane)
        for (int half = 0; half < 2; ++half) {
          int row = lane / 4, column = 2 * (lane % 4) + half;
          if (transposed) std::swap(row, column);
          ASSERT_EQ(found[lane * 8 + matrix * 2 + half], in[(matrix * 8 + row) * 8 + column]);
        }
  }
}

TEST(Tensor, SwizzlesAndEdges) {
  // A box of 16 rows x 64 bytes at (column, row) of a 100 x 20 matrix of u16; the tile comes back as it lies in shared memory.
  for (auto [swizzle, inner] : {std::pair{TensorSwizzle::none, 32u}, {TensorSwizzle::bytes32, 16u}, {TensorSwizzle::bytes64, 32u}, {TensorSwizzle::bytes128, 64u}}) {
    Harness h;
    ASSERT_TRUE(h.load(kernelText(".reg .b64 %d<4>; .reg .b32 %r<9>; .reg .pred %q<3>; .shared .align 1024 .b8 s[2048]; .shared .align 8 .b64 m;",
                                  "mov.u32 %r1, s; mov.u32 %r2, m; setp.eq.u32 %q1, %t, 0; @%q1 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0; mov.u32 %r5, 90; mov.u32 %r6, 12;"
                                  "@%q1 mbarrier.arrive.expect_tx.shared.b64 %d1, [%r2], " + std::to_string(inner * 2 * 16) + ";"
                                  "@%q1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%p0, {%r5, %r6}], [%r2];"
                                  "L: mbarrier.try_wait.parity.shared.b64 %q2, [%r2], 0; @!%q2 bra L; mul.wide.u32 %d2, %t, 4; add.u64 %d2, %d2, %p1; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r1; ld.shared.u32 %r4, [%r3]; st.global.u32 [%d2], %r4;", 2))) << errorOf(h);
    std::vector<uint16_t> matrix(104 * 20);
    for (size_t i = 0; i < matrix.size(); ++i)
      matrix[i] = uint16_t(i + 1);
    TensorMapDescription d;
    d.elementBytes = 2;
    d.address = h.put(matrix);
    d.size = {100, 20};
    d.stride = {0, 208};
    d.box = {inner, 16};
    d.swizzle = swizzle;
    auto map = encodeTensorMap(d);
    ASSERT_TRUE(map.ok()) << map.status().message();
    const unsigned words = inner * 16 / 2;
    uint64_t out = h.space<uint32_t>(words);
    ASSERT_TRUE(h.run("k", {.grid = {}, .block = {words}, .cluster = {}}, Arguments().add(h.put(std::vector<uint8_t>(map->begin(), map->end()))).add(out))) << errorOf(h);
    auto found = h.get<uint16_t>(out, inner * 16);
    // 16-byte chunk c of row r lies at chunk c ^ (pattern of the row): rows of 32, 64 or 128 bytes, pattern from address bits 7..9.
    for (unsigned row = 0; row < 16; ++row)
      for (unsigned column = 0; column < inner; ++column) {
        unsigned byte = (row * inner + column) * 2, line = byte / 128 % 8, chunk = byte / 16 % 8;
        unsigned flip = swizzle == TensorSwizzle::bytes128 ? line : swizzle == TensorSwizzle::bytes64 ? line & 3 : swizzle == TensorSwizzle::bytes32 ? line & 1 : 0;
        unsigned at = byte / 128 * 128 + (chunk ^ flip) * 16 + byte % 16;
        uint16_t expected = row + 12 < 20 && column + 90 < 100 ? matrix[(row + 12) * 104 + column + 90] : 0;
        ASSERT_EQ(found[at / 2], expected) << "row " << row << " column " << column;
      }
  }
}
TEST(MatrixMath, AColumnWithNanChangesNoOtherColumn) {
  Random random{11};
  constexpr unsigned k = 16, columns = 16;
  float a[k], b[k * columns], clean[columns], dirty[columns];
  auto draw = [&] { return static_cast<float>(std::ldexp(double(random.next() >> 40) - 0x1p23, int(random.next() % 12) - 24)); };
  for (float &v : a) v = draw();
  for (float &v : b) v = draw();
  for (unsigned n = 0; n < columns; ++n) clean[n] = dirty[n] = draw();
  MatrixArithmetic arithmetic = arithmeticOf(MatrixFamily::mma, Type::bf16);
  multiplyRow(a, b, clean, k, columns, arithmetic);
  b[5 * columns + 3] = NAN;
  dirty[9] = INFINITY;
  multiplyRow(a, b, dirty, k, columns, arithmetic);
  for (unsigned n = 0; n < columns; ++n) {
    if (n == 3) EXPECT_TRUE(std::isnan(dirty[n]));
    else if (n == 9) EXPECT_EQ(dirty[n], INFINITY);
    else EXPECT_EQ(std::bit_cast<uint32_t>(dirty[n]), std::bit_cast<uint32_t>(clean[n])) << n;
  }
}
TEST(Tensor, ChecksTheDescription) {
  TensorMapDescription d;
  d.address = 1 << 20;
  d.size = {64, 64};
  d.stride = {0, 128};
  d.box = {64, 8};
  d.swizzle = TensorSwizzle::bytes128;
  EXPECT_TRUE(encodeTensorMap(d).ok());
  auto message = [&](auto change) {
    TensorMapDescription copy = d;
    change(copy);
    return encodeTensorMap(copy).status().message();
  };
  EXPECT_EQ(message([](auto &x) { x.rank = 6; }), "tensor map: expected rank 1 to 5, found 6");
  EXPECT_EQ(message([](auto &x) { x.address = 8; }), "tensor map: expected an address that is a multiple of 16");
  EXPECT_EQ(message([](auto &x) { x.box[1] = 257; }), "tensor map: box 1 must be 1 to 256, found 257");
  EXPECT_EQ(message([](auto &x) { x.stride[1] = 24; }), "tensor map: stride 1 must be a multiple of 16 below 2^40");
  EXPECT_EQ(message([](auto &x) { x.box[0] = 128; }), "tensor map: the inner box has 256 bytes, the swizzle spans 128");
  EXPECT_EQ(message([](auto &x) { x.elementBytes = 3; }), "tensor map: expected elements of 1, 2, 4 or 8 bytes, found 3");
}

} // namespace
} // namespace lathe::emulator
