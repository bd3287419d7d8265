// Matrices of e4m3 with scales in another tensor become rows of the storage type.
#include "lathe/weights/Half.h"
#include "lathe/weights/WeightRows.h"
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

using namespace lathe;

namespace {

constexpr int64_t rows = 3, columns = 5;

/// A file of codes and bf16 or f32 scales behind them.
ScaledMatrix sample(const std::vector<uint8_t> &codes, const std::vector<float> &scales, StorageType storage) {
  std::string text(codes.begin(), codes.end());
  for (float scale : scales) {
    uint16_t half = floatToBfloat(scale);
    storage == StorageType::f32 ? text.append(reinterpret_cast<const char *>(&scale), 4) : text.append(reinterpret_cast<const char *>(&half), 2);
  }
  static int serial = 0;
  std::string path = ::testing::TempDir() + "scaled" + std::to_string(serial++);
  std::ofstream(path, std::ios::binary) << text;
  auto mapped = MappedFile::open(path);
  EXPECT_TRUE(mapped.ok());
  ScaledMatrix m;
  m.codes = m.scales = std::make_shared<const MappedFile>(*std::move(mapped));
  m.name = "w", m.rows = rows, m.columns = columns, m.perRow = scales.size() > 1, m.scaleStorage = storage;
  m.scalesOffset = static_cast<int64_t>(codes.size());
  return m;
}
std::vector<uint8_t> someCodes() {
  std::vector<uint8_t> codes;
  for (int i = 0; i < rows * columns; ++i) codes.push_back(static_cast<uint8_t>(17 * i));
  return codes;
}
Result<WeightRows> rowsOf(const ScaledMatrix &m) { return WeightRows::fromQuantized(std::make_shared<ScaledMatrix>(m)); }

TEST(Scaled, AScaleForAllOrOneARow) {
  std::vector<uint8_t> codes = someCodes();
  for (StorageType storage : {StorageType::f32, StorageType::bf16})
    for (const std::vector<float> &scales : {std::vector<float>{0.375f}, {0.5f, -0.0078125f, 3.0f}}) {
      auto made = rowsOf(sample(codes, scales, storage));
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_EQ(made->storage(), StorageType::e4m3);
      auto values = made->readAll();
      ASSERT_TRUE(values.ok()) << values.status().message();
      for (int64_t i = 0; i < rows * columns; ++i)
        EXPECT_EQ((*values)[static_cast<size_t>(i)], e4m3ToFloat(codes[static_cast<size_t>(i)]) * scales[scales.size() > 1 ? static_cast<size_t>(i / columns) : 0]) << i;
      std::vector<uint8_t> scratch;
      auto stored = made->slice(1, 3)->storedRow(0, scratch);
      ASSERT_TRUE(stored.ok());
      EXPECT_EQ(std::memcmp(*stored + 4, codes.data() + columns, columns), 0);
    }
}

TEST(Scaled, SaysWhatIsWrong) {
  std::vector<uint8_t> codes = someCodes();
  codes[7] = 0xff;
  auto made = rowsOf(sample(codes, {1.0f}, StorageType::f32));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->readAll().status().message(), "tensor 'w': expected numbers, found NaN in row 1, column 2");
  made = rowsOf(sample(someCodes(), {1.0f, 1.0f, INFINITY}, StorageType::bf16));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->readAll().status().message(), "tensor 'w': expected a finite scale of row 2, found inf");
  ScaledMatrix m = sample(someCodes(), {1.0f, 1.0f, 1.0f}, StorageType::f32);
  m.rows = 4;
  EXPECT_NE(m.check().message().find("tensor 'w': its scales at offset 15 do not fit, '"), std::string::npos) << m.check().message();
  m.rows = 10;
  EXPECT_NE(m.check().message().find("tensor 'w': its codes at offset 0 do not fit, '"), std::string::npos) << m.check().message();
  m.codesOffset = -1;
  EXPECT_NE(m.check().message().find("its codes at offset -1 do not fit"), std::string::npos);
  m = sample(someCodes(), {1.0f}, StorageType::f32);
  m.columns = 0;
  EXPECT_EQ(m.check().message(), "tensor 'w': expected positive sizes");
  m.columns = columns, m.scaleStorage = StorageType::q8_0;
  EXPECT_EQ(m.check().message(), "tensor 'w': expected scales of f32, f16 or bf16");
}

} // namespace
