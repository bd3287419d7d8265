#include "lathe/weights/Pack.h"
#include "lathe/weights/Half.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

bool sameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct Scratch {
  fs::path dir;
  Scratch() {
    char name[] = "/tmp/lathe-test-XXXXXX";
    dir = mkdtemp(name);
  }
  ~Scratch() { fs::remove_all(dir); }
  std::shared_ptr<const MappedFile> map(const std::vector<uint8_t> &bytes) {
    std::string path = (dir / "weights").string();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    auto file = MappedFile::open(path);
    return file.ok() ? std::make_shared<const MappedFile>(*std::move(file)) : nullptr;
  }
};

std::vector<uint8_t> pack(const WeightRows &weight, int threads = 1, size_t buffer = 1 << 20) {
  std::vector<uint8_t> out;
  Status status = packWeight(weight, {threads, buffer}, [&](std::span<const uint8_t> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

WeightRows values(std::vector<int64_t> shape, float start = 0) {
  int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
  std::vector<float> data(static_cast<size_t>(n));
  std::iota(data.begin(), data.end(), start);
  auto rows = WeightRows::fromValues(data, shape);
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  return *std::move(rows);
}
std::vector<float> all(const Result<WeightRows> &rows) {
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  return rows.ok() ? *rows->readAll() : std::vector<float>();
}

class EveryType : public testing::TestWithParam<int> {};

TEST_P(EveryType, UnpackingGivesTheBitsOfTheRows) {
  auto type = static_cast<StorageType>(GetParam());
  const StorageInfo &info = storageInfo(type);
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  // Own types allow any width, others whole blocks; 37 rows leave a part of the last tile empty.
  std::vector<int64_t> widths = {info.blockElements, 3 * info.blockElements};
  if (rowFits(type, 1)) widths = {1, 31, 33, 100, 200};
  for (int64_t columns : widths)
    for (int64_t rows : {1, 16, 37}) {
      Scratch scratch;
      std::vector<uint8_t> bytes(static_cast<size_t>(rows * rowBytes(type, columns)) + 5);
      for (uint8_t &byte : bytes)
        byte = static_cast<uint8_t>(random());
      int64_t shape[] = {rows, columns};
      auto weight = WeightRows::fromFile(scratch.map(bytes), "w", 5, type, shape);
      ASSERT_TRUE(weight.ok()) << weight.status().message();
      std::vector<uint8_t> packed = pack(*weight);
      ASSERT_EQ(static_cast<int64_t>(packed.size()), packedBytes(type, rows, columns));
      std::vector<float> got = unpackWeight(type, rows, columns, packed);
      std::vector<float> expected(static_cast<size_t>(columns));
      for (int64_t n = 0; n < rows; ++n) {
        dequantizeRow(type, bytes.data() + 5 + n * rowBytes(type, columns), expected);
        for (int64_t k = 0; k < columns; ++k)
          ASSERT_TRUE(sameBits(got[static_cast<size_t>(n * columns + k)], expected[static_cast<size_t>(k)]))
              << info.name << " " << rows << "x" << columns << " at " << n << ", " << k;
      }
      EXPECT_EQ(pack(*weight, 3, 1), packed);
      // Padding rows and columns are zeros: the whole tiles, read as a larger matrix.
      PackedLayout layout = packedLayout(type);
      int64_t wide = (columns + layout.blockK - 1) / layout.blockK * layout.blockK, tall = (rows + 15) / 16 * 16;
      if (layout.rowScale || layout.floatBytes) wide = (columns + 31) / 32 * 32;
      if (layout.floatBytes && packed.size() < static_cast<size_t>(tall * wide * layout.floatBytes)) continue;
      std::vector<float> whole = unpackWeight(type, tall, wide, packed);
      for (int64_t n = rows; n < tall; ++n)
        for (int64_t k = 0; k < wide; ++k)
          ASSERT_EQ(whole[static_cast<size_t>(n * wide + k)], 0.0f) << info.name << " row " << n << " column " << k;
    }
}
std::string typeName(const testing::TestParamInfo<int> &info) {
  return storageInfo(static_cast<StorageType>(info.param)).name;
}
INSTANTIATE_TEST_SUITE_P(Pack, EveryType, testing::Range(0, 22), typeName);

TEST(Pack, PlacesAreThoseOfTheDescription) {
  // One row of q8_0, d = 1: code of column k is k + 128 in byte 4 row + k % 4 of zmm k / 4.
  Scratch scratch;
  std::vector<uint8_t> bytes = {0x00, 0x3c};
  for (uint8_t k = 0; k < 32; ++k)
    bytes.push_back(k);
  int64_t shape[] = {1, 32};
  std::vector<uint8_t> packed = pack(*WeightRows::fromFile(scratch.map(bytes), "w", 0, StorageType::q8_0, shape));
  for (int k = 0; k < 32; ++k)
    EXPECT_EQ(packed[64 * (k / 4) + k % 4], k + 128);
  PackedLayout layout = packedLayout(StorageType::q8_0);
  EXPECT_EQ(packed[layout.dOffset + 1], 0x3c);
  EXPECT_EQ(packed[4], 128);   // a padding row has codes of value zero
  EXPECT_EQ(packed[512], 128); // and so have the columns from 32 to 63
}

TEST(WeightRows, Rearranges) {
  WeightRows a = values({4, 2}), b = values({4, 2}, 100);
  WeightRows both[] = {a, b};
  EXPECT_EQ(all(a.slice(1, 3)), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(all(WeightRows::concat(both)),
            (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(all(WeightRows::interleave(a, b, 3)), (std::vector<float>{0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105,
                                                                      6, 7, 0, 0, 0, 0, 106, 107, 0,   0,   0,   0}));
  EXPECT_EQ(all(a.unrope(1)), (std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(all(values({8, 1}).unrope(2)), (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(all(a.transpose()), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(all(a.transpose()->slice(1, 2)), (std::vector<float>{1, 3, 5, 7}));
  EXPECT_EQ(all(a.slice(1, 2)->addOne()), (std::vector<float>{3, 4}));
  EXPECT_EQ(a.transpose()->shape(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(all(a.columnsOf(1, 2)), (std::vector<float>{1, 3, 5, 7}));
  EXPECT_EQ(all(values({2, 4}).columnsOf(1, 4)->columnsOf(1, 3)), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(all(WeightRows::concat(both)->columnsOf(0, 1)->slice(3, 5)), (std::vector<float>{6, 100}));
  EXPECT_EQ(all(values({1, 64}).columnsOf(32, 64)->round(StorageType::q8_0)), all(values({1, 32}, 32).round(StorageType::q8_0)));
}

TEST(WeightRows, VectorsAreRowsOfOneColumn) {
  WeightRows parts[] = {values({2}), values({3}, 10)};
  auto joined = WeightRows::concat(parts);
  EXPECT_EQ(all(joined), (std::vector<float>{0, 1, 10, 11, 12}));
  EXPECT_EQ(joined->shape(), (std::vector<int64_t>{5}));
  EXPECT_EQ(all(joined->slice(1, 3)), (std::vector<float>{1, 10}));
  EXPECT_EQ(all(values({2}).addOne()), (std::vector<float>{1, 2}));
}

TEST(WeightRows, RoundsOnce) {
  WeightRows a = values({2, 64});
  auto rounded = a.round(StorageType::q8_0);
  ASSERT_TRUE(rounded.ok());
  std::vector<float> got = all(rounded);
  std::vector<uint8_t> packed = pack(*rounded);
  EXPECT_EQ(unpackWeight(StorageType::q8_0, 2, 64, packed), got);
  for (int i = 0; i < 128; ++i)
    EXPECT_NEAR(got[i], i, 0.51);
  // 1 + w is computed before the rounding.
  EXPECT_EQ(all(a.addOne()->round(StorageType::f16)), all(a.addOne()));
  EXPECT_EQ(rounded->round(StorageType::f16).status().message(), "tensor 'constant': a weight can be rounded once");
  EXPECT_NE(a.round(StorageType::q4_k).status().message().find("expected rows of a multiple of 256"),
            std::string::npos);
  EXPECT_NE(values({1, 256}).round(StorageType::q4_k).status().message().find("cannot quantize to q4_k, only to"),
            std::string::npos);
}

TEST(WeightRows, TransposedFloat16IsPacked) {
  Scratch scratch;
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 40 * 20; ++i) {
    uint16_t half = floatToHalf(static_cast<float>(i));
    bytes.push_back(static_cast<uint8_t>(half));
    bytes.push_back(static_cast<uint8_t>(half >> 8));
  }
  int64_t shape[] = {40, 20};
  auto weight = WeightRows::fromFile(scratch.map(bytes), "c_attn", 0, StorageType::f16, shape)->transpose();
  ASSERT_TRUE(weight.ok());
  std::vector<float> got = unpackWeight(StorageType::f16, 20, 40, pack(*weight));
  for (int n = 0; n < 20; ++n)
    for (int k = 0; k < 40; ++k)
      ASSERT_EQ(got[n * 40 + k], static_cast<float>(k * 20 + n));
}

TEST(WeightRows, NamesWhatIsWrong) {
  WeightRows a = values({4, 2}), b = values({4, 3});
  auto message = [](const Result<WeightRows> &r) { return r.status().message(); };
  WeightRows both[] = {a, b};
  EXPECT_EQ(message(WeightRows::concat(both)),
            "tensor 'constant': parts of a concat differ in storage or width: 2 of f32, found 3 of f32");
  EXPECT_EQ(message(WeightRows::concat({})), "expected at least one part in a concat");
  EXPECT_EQ(message(WeightRows::interleave(a, b, 1)),
            "tensor 'constant': parts of an interleave differ in storage or shape");
  EXPECT_EQ(message(WeightRows::interleave(a, a, 0)), "tensor 'constant': cannot interleave blocks of 0 rows");
  EXPECT_EQ(message(a.slice(1, 5)), "tensor 'constant': slice 1 .. 5 is outside 4 rows");
  EXPECT_EQ(message(a.unrope(3)), "tensor 'constant': expected rows that divide into 3 heads of even size, found 4");
  EXPECT_EQ(message(a.slice(0, 2)->transpose()),
            "tensor 'constant': only a whole unquantized matrix can be transposed");
  EXPECT_EQ(message(a.columnsOf(1, 3)), "tensor 'constant': columns 1 .. 3 are outside 2 columns");
  for (const Result<WeightRows> &none : {a.transpose(), values({1, 64}).round(StorageType::q8_0), Result<WeightRows>(values({4}))})
    EXPECT_EQ(message(none->columnsOf(0, 1)), "tensor 'constant': columns can be taken of an unquantized matrix only");
  EXPECT_EQ(message(a.columnsOf(0, 1)->transpose()), "tensor 'constant': only a whole unquantized matrix can be transposed");
  EXPECT_EQ(message(a.addOne()->addOne()), "tensor 'constant': one can be added once, to an unquantized weight");
  int64_t zero[] = {0, 4}, wrong[] = {2, 2}, odd[] = {1, 33}, line[] = {32};
  EXPECT_EQ(message(WeightRows::fromValues({}, zero)),
            "tensor 'constant': expected 1 or 2 positive dimensions, found 2");
  EXPECT_EQ(message(WeightRows::fromValues({}, wrong)), "tensor 'constant': expected 4 values, found 0");
  Scratch scratch;
  auto file = scratch.map(std::vector<uint8_t>(16));
  EXPECT_NE(message(WeightRows::fromFile(file, "t", 4, StorageType::f32, wrong))
                .find("tensor 't': its data at offset 4 does not fit, '"),
            std::string::npos);
  EXPECT_EQ(message(WeightRows::fromFile(file, "t", 0, StorageType::q4_0, odd)),
            "tensor 't': expected rows of a multiple of 32 elements for q4_0, found 33");
  auto large = scratch.map(std::vector<uint8_t>(18));
  EXPECT_EQ(message(WeightRows::fromFile(large, "t", 0, StorageType::q4_0, line)),
            "tensor 't': expected a vector of f32, f16 or bf16, found q4_0");
}

TEST(Pack, AFileThatShrinksIsAnError) {
  Scratch scratch;
  auto file = scratch.map(std::vector<uint8_t>(64 * 4096, 1));
  int64_t shape[] = {1024, 64};
  auto weight = WeightRows::fromFile(file, "w", 0, StorageType::f32, shape);
  ASSERT_TRUE(weight.ok());
  fs::resize_file(scratch.dir / "weights", 4096);
  Status status = packWeight(*weight, {}, [](std::span<const uint8_t>) { return Status(); });
  EXPECT_EQ(status.code(), StatusCode::dataLoss);
  EXPECT_NE(status.message().find("became shorter than 262144 bytes"), std::string::npos) << status.message();
}

TEST(Pack, StopsAtTheSinksErrorAndNamesARowThatCannotBeRounded) {
  WeightRows a = values({64, 64});
  int calls = 0;
  Status status = packWeight(a, {2, 1}, [&](std::span<const uint8_t>) {
    return ++calls == 2 ? Status(StatusCode::resourceExhausted, "disk full") : Status();
  });
  EXPECT_EQ(status.message(), "disk full");
  EXPECT_EQ(calls, 2);
  std::vector<float> data(128, INFINITY);
  int64_t shape[] = {2, 64};
  auto rounded = WeightRows::fromValues(data, shape)->round(StorageType::int8);
  status = packWeight(*rounded, {}, [](std::span<const uint8_t>) { return Status(); });
  EXPECT_EQ(status.message(), "tensor 'constant', row 0: cannot quantize to int8: column 0 is inf");
}

} // namespace
