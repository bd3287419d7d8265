// Block-quantized matrices in ONNX Runtime's layout become rows of our storage types.
#include "lathe/weights/Half.h"
#include "lathe/weights/WeightRows.h"
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

using namespace lathe;

namespace {

/// A file of 3 x 96 codes, scales and zero points, and what they stand for.
struct Sample {
  int bits;
  int64_t block, rows = 3, columns = 96;
  std::vector<double> values; ///< (code - zero) * f16(scale)
  NBitsMatrix matrix;

  Sample(int bits, int64_t block, bool zeros, float scaleOf = 1.0f) : bits(bits), block(block) {
    std::mt19937 random(bits * 1000 + block);
    int64_t blocks = (columns + block - 1) / block;
    std::vector<uint8_t> codes(rows * blocks * block * bits / 8), zero(rows * ((blocks + 1) / 2));
    std::vector<float> scales(rows * blocks);
    for (uint8_t &byte : codes) byte = static_cast<uint8_t>(random());
    for (uint8_t &byte : zero) byte = static_cast<uint8_t>(random());
    for (float &scale : scales) scale = scaleOf * static_cast<float>(random() % 1000 + 1) / 3000.0f;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < columns; ++k) {
        int64_t b = k / block, at = r * blocks * block + k;
        int code = bits == 8 ? codes[at] : codes[at / 2] >> (at % 2 * 4) & 15;
        int z = !zeros ? 1 << (bits - 1) : zero[r * ((blocks + 1) / 2) + b / 2] >> (b % 2 * 4) & 15;
        values.push_back((code - z) * double(halfToFloat(floatToHalf(scales[r * blocks + b]))));
      }
    std::string path = ::testing::TempDir() + "nbits-" + std::to_string(bits) + "-" + std::to_string(block) + (zeros ? "z" : "");
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(codes.data()), codes.size());
    file.write(reinterpret_cast<const char *>(scales.data()), scales.size() * 4);
    file.write(reinterpret_cast<const char *>(zero.data()), zero.size());
    file.close();
    auto mapped = MappedFile::open(path);
    EXPECT_TRUE(mapped.ok());
    auto shared = std::make_shared<const MappedFile>(*std::move(mapped));
    matrix.name = "w", matrix.rows = rows, matrix.columns = columns, matrix.block = block, matrix.bits = bits;
    matrix.codes = matrix.scales = shared;
    matrix.scalesOffset = static_cast<int64_t>(codes.size());
    if (zeros) matrix.zeros = shared;
    matrix.zerosOffset = matrix.scalesOffset + static_cast<int64_t>(scales.size() * 4);
  }
};

TEST(NBits, Values) {
  for (auto [bits, block, zeros] : {std::tuple(4, 32, false), {4, 64, false}, {4, 128, false}, {4, 32, true}, {4, 64, true}, {4, 128, true}, {8, 32, false}}) {
    Sample sample(bits, block, zeros);
    auto rows = WeightRows::fromQuantized(std::make_shared<NBitsMatrix>(sample.matrix));
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    EXPECT_EQ(rows->storage(), *nbitsStorage(bits, block == 64 || block == 128 ? 32 : block, zeros)); // 96 columns are three groups of 32
    auto values = rows->readAll();
    ASSERT_TRUE(values.ok()) << values.status().message();
    for (size_t k = 0; k < sample.values.size(); ++k)
      // A minimum is rounded to f16 as well: up to 15 scales of 2^-11.
      EXPECT_NEAR((*values)[k], sample.values[k], zeros ? 15 * 0.34 / 2048 : 1e-6) << bits << " bits, blocks of " << block << ", element " << k;
    // Stored rows and slices of them say the same.
    auto part = rows->slice(1, 3);
    ASSERT_TRUE(part.ok());
    std::vector<uint8_t> scratch;
    auto stored = part->storedRow(1, scratch);
    ASSERT_TRUE(stored.ok());
    std::vector<float> row(96);
    dequantizeRow(rows->storage(), *stored, row);
    EXPECT_EQ(row, std::vector<float>(values->end() - 96, values->end()));
  }
}

TEST(NBits, Errors) {
  auto message = [](const NBitsMatrix &matrix) {
    auto rows = WeightRows::fromQuantized(std::make_shared<NBitsMatrix>(matrix));
    if (!rows.ok()) return rows.status().message();
    auto values = rows->readAll();
    return values.ok() ? std::string() : values.status().message();
  };
  Sample sample(4, 32, true);
  NBitsMatrix m = sample.matrix;
  m.block = 16;
  EXPECT_EQ(message(m), "tensor 'w': no storage type for its bits, columns and blocks");
  m = sample.matrix;
  m.columns = 80;
  EXPECT_EQ(message(m), "tensor 'w': no storage type for its bits, columns and blocks");
  m = sample.matrix;
  m.rows = 0;
  EXPECT_EQ(message(m), "tensor 'w': expected positive sizes");
  m = sample.matrix;
  m.zerosOffset += 1;
  EXPECT_NE(message(m).find("tensor 'w': its zero points at offset"), std::string::npos);
  m = sample.matrix;
  m.rows = int64_t(1) << 31;
  EXPECT_NE(message(m).find("tensor 'w': its codes at offset 0 do not fit"), std::string::npos);
  EXPECT_EQ(message(Sample(4, 32, false, 1e6f).matrix).substr(0, 35), "tensor 'w': the scale of row 0 is b");
}

} // namespace
