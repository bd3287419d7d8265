// Matrices behind ONNX's DequantizeLinear become rows of our storage types.
#include "lathe/weights/Half.h"
#include "lathe/weights/WeightRows.h"
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace lathe;

namespace {

using Code = QDQMatrix::Code;

/// A file of codes, scales and zero points, and what they stand for.
struct Sample {
  QDQMatrix matrix;
  std::vector<float> values; ///< [rows][columns]

  /// |block|: of the axes of the codes, which are [columns, rows] when |transposed|.
  Sample(Code code, bool transposed, int64_t block0, int64_t block1, bool zeros, int64_t rows = 6, int64_t columns = 128, float scaleOf = 1) {
    std::mt19937 random(static_cast<unsigned>(block0 * 100 + block1 + zeros));
    int64_t shape[2] = {transposed ? columns : rows, transposed ? rows : columns};
    int64_t count[2] = {(shape[0] + block0 - 1) / block0, (shape[1] + block1 - 1) / block1};
    bool bytes = code == Code::int8 || code == Code::uint8, sign = code == Code::int8 || code == Code::int4;
    int low = bytes ? (sign ? -128 : 0) : sign ? -8 : 0, span = bytes ? 256 : 16;
    auto pack = [&](const std::vector<int> &list) {
      std::string out(bytes ? list.size() : (list.size() + 1) / 2, 0);
      for (size_t i = 0; i < list.size(); ++i)
        if (bytes) out[i] = static_cast<char>(list[i]);
        else out[i / 2] = static_cast<char>(out[i / 2] | (list[i] & 15) << (i % 2 * 4));
      return out;
    };
    std::vector<int> codes, zeroPoints;
    std::vector<float> scales;
    for (int64_t i = 0; i < rows * columns; ++i) codes.push_back(low + static_cast<int>(random() % static_cast<unsigned>(span)));
    for (int64_t i = 0; i < count[0] * count[1]; ++i) {
      scales.push_back(halfToFloat(floatToHalf(scaleOf * static_cast<float>(random() % 1000 + 1) / 3000.0f)));
      zeroPoints.push_back(zeros ? low + static_cast<int>(random() % static_cast<unsigned>(span)) : low + span / 2);
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        int64_t i = transposed ? c : r, j = transposed ? r : c, at = i / block0 * count[1] + j / block1;
        values.push_back(static_cast<float>(codes[i * shape[1] + j] - zeroPoints[at]) * scales[at]);
      }
    std::string path = ::testing::TempDir() + "qdq", text = pack(codes);
    int64_t scalesAt = static_cast<int64_t>(text.size()), zerosAt = scalesAt + static_cast<int64_t>(scales.size() * 4);
    text.append(reinterpret_cast<const char *>(scales.data()), scales.size() * 4);
    text += pack(zeroPoints);
    static int serial = 0;
    path += std::to_string(serial++);
    std::ofstream(path, std::ios::binary) << text;
    auto mapped = MappedFile::open(path);
    EXPECT_TRUE(mapped.ok());
    matrix.codes = matrix.scales = std::make_shared<const MappedFile>(*std::move(mapped));
    matrix.name = "w", matrix.rows = rows, matrix.columns = columns, matrix.code = code, matrix.transposed = transposed;
    matrix.block[0] = block0, matrix.block[1] = block1;
    matrix.scalesOffset = scalesAt;
    if (zeros) matrix.zeros = matrix.codes;
    else matrix.zeroValues = {low + span / 2};
    matrix.zerosOffset = zerosAt;
    matrix.target = qdqStorage(matrix.bits(), columns, transposed ? block0 : block1, zeros);
  }
};

Result<WeightRows> rowsOf(const QDQMatrix &matrix) { return WeightRows::fromQuantized(std::make_shared<QDQMatrix>(matrix)); }

TEST(QDQ, EveryLayoutAndType) {
  struct Case {
    Code code;
    bool transposed;
    int64_t block0, block1;
    bool zeros;
    StorageType storage;
  };
  for (const Case &c : {Case{Code::int8, false, 6, 128, false, StorageType::int8}, // one scale
                        {Code::int8, false, 1, 128, false, StorageType::int8},     // one a row
                        {Code::uint8, true, 128, 1, false, StorageType::int8},
                        {Code::int8, true, 32, 1, false, StorageType::q8_0}, // blocks along the columns
                        {Code::uint8, false, 1, 64, false, StorageType::q8_0},
                        {Code::int8, false, 1, 16, false, StorageType::f32},
                        {Code::uint8, false, 1, 128, true, StorageType::f32}, // zero points of 8 bits
                        {Code::int8, false, 6, 1, false, StorageType::f32},   // one a column
                        {Code::int4, true, 128, 1, false, StorageType::int4_g128},
                        {Code::uint4, true, 32, 1, false, StorageType::int4_g32},
                        {Code::int4, false, 1, 64, false, StorageType::int4_g64},
                        {Code::uint4, true, 32, 1, true, StorageType::int4z_g32},
                        {Code::int4, false, 1, 128, true, StorageType::int4z_g128},
                        {Code::uint4, false, 2, 128, true, StorageType::int4z_g128}, // rows in pairs
                        {Code::uint4, false, 1, 16, true, StorageType::f32}}) {
    Sample sample(c.code, c.transposed, c.block0, c.block1, c.zeros);
    EXPECT_EQ(sample.matrix.target, c.storage);
    auto rows = rowsOf(sample.matrix);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    auto values = rows->readAll();
    ASSERT_TRUE(values.ok()) << values.status().message();
    // Scales are f16 here; a minimum is rounded to f16 once more.
    bool minima = c.zeros && c.storage != StorageType::f32;
    for (size_t k = 0; k < sample.values.size(); ++k)
      ASSERT_NEAR((*values)[k], sample.values[k], minima ? 15 * 0.34 / 2048 : 0) << storageInfo(c.storage).name << ", element " << k;
    // What has a smaller type can be read as floats too.
    QDQMatrix plain = sample.matrix;
    plain.target = StorageType::f32;
    auto floats = rowsOf(plain);
    ASSERT_TRUE(floats.ok());
    EXPECT_EQ(*floats->readAll(), sample.values);
  }
}

TEST(QDQ, ValuesInsteadOfFiles) {
  Sample sample(Code::int8, false, 6, 128, false);
  QDQMatrix m = sample.matrix;
  m.scales = nullptr;
  m.scaleValues = {0.25f};
  auto values = rowsOf(m)->readAll();
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[5], 0.25f * static_cast<int8_t>(m.codes->bytes()[5]));
  m.zeroValues = {3};
  m.target = StorageType::f32;
  EXPECT_EQ((*rowsOf(m)->readAll())[5], 0.25f * (static_cast<int8_t>(m.codes->bytes()[5]) - 3));
}

TEST(QDQ, Errors) {
  auto message = [](const QDQMatrix &matrix) {
    auto rows = rowsOf(matrix);
    if (!rows.ok()) return rows.status().message();
    auto values = rows->readAll();
    return values.ok() ? std::string() : values.status().message();
  };
  Sample sample(Code::uint4, true, 32, 1, true);
  QDQMatrix m = sample.matrix;
  m.rows = 0;
  EXPECT_EQ(message(m), "tensor 'w': expected positive sizes");
  m = sample.matrix;
  m.block[0] = 0;
  EXPECT_EQ(message(m), "tensor 'w': expected blocks of at least one code and scales of f32, f16 or bf16");
  m = sample.matrix;
  m.target = StorageType::int4_g32; // has no minima
  EXPECT_EQ(message(m), "tensor 'w': its codes, blocks and zero points do not fit its storage type");
  m = sample.matrix;
  m.codesOffset = 1 << 20;
  EXPECT_NE(message(m).find("tensor 'w': its codes at offset 1048576 do not fit"), std::string::npos);
  m = sample.matrix;
  m.zerosOffset += 1;
  EXPECT_NE(message(m).find("tensor 'w': its zero points at offset"), std::string::npos);
  m = sample.matrix;
  m.scales = nullptr;
  EXPECT_EQ(message(m), "tensor 'w': expected 24 scales, found 0");
  m = sample.matrix;
  m.zeros = nullptr;
  m.zeroValues = {1, 2};
  EXPECT_EQ(message(m), "tensor 'w': expected one zero point or 24, found 2");
  // Sizes and blocks whose products or sums are beyond 64 bits.
  m = Sample(Code::int8, false, 6, 128, false).matrix;
  m.block[0] = m.block[1] = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(message(m), "");
  m.scales = nullptr;
  EXPECT_EQ(message(m), "tensor 'w': expected 1 scales, found 0");
  m.rows = m.columns = int64_t(1) << 30;
  EXPECT_NE(message(m).find("tensor 'w': its codes at offset 0 do not fit"), std::string::npos);
  m.rows = m.columns = int64_t(1) << 31;
  EXPECT_NE(message(m).find("tensor 'w': its codes at offset 0 do not fit"), std::string::npos);
  EXPECT_EQ(message(Sample(Code::int4, true, 32, 1, false, 6, 128, 1e6f).matrix), "tensor 'w': the scale of row 0 is beyond what f16 holds");
}

} // namespace
