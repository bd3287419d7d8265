#include "lathe/weights/Storage.h"
#include "lathe/import/GGUF.h"
#include "lathe/weights/Half.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace lathe;

namespace {

const StorageType blockTypes[] = {StorageType::q4_0, StorageType::q4_1, StorageType::q5_0,  StorageType::q5_1,
                                  StorageType::q8_0, StorageType::q2_k, StorageType::q3_k,  StorageType::q4_k,
                                  StorageType::q5_k, StorageType::q6_k, StorageType::iq4_nl};
const StorageType ownTypes[] = {StorageType::int8,      StorageType::int4_g32,  StorageType::int4_g64,
                                StorageType::int4_g128, StorageType::int4z_g32, StorageType::int4z_g64,
                                StorageType::int4z_g128, StorageType::e4m3};

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }
bool sameBits(float a, float b) { return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b)); }

gguf::File fixture() {
  auto file = gguf::File::open(LATHE_SOURCE_DIR "/test/fixtures/import/blocks.gguf");
  if (!file.ok()) {
    ADD_FAILURE() << file.status().message();
    std::abort();
  }
  return *std::move(file);
}

const uint8_t *rowOf(const gguf::File &file, const std::string &name, uint64_t row) {
  const gguf::TensorInfo *info = file.tensor(name);
  if (!info) {
    ADD_FAILURE() << name;
    std::abort();
  }
  return file.tensorBytes(*info).data() + info->bytes / info->dims[1] * row;
}
std::vector<float> floatsOf(const gguf::File &file, const std::string &name, uint64_t row) {
  std::vector<float> out(256);
  std::memcpy(out.data(), rowOf(file, name, row), 1024);
  return out;
}

TEST(Half, RoundTripsEveryFloat16AndBfloat16) {
  for (uint32_t h = 0; h < 65536; ++h) {
    auto half = static_cast<uint16_t>(h);
    float f = halfToFloat(half), b = bfloatToFloat(half);
    if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff)) {
      EXPECT_TRUE(std::isnan(f) && std::isnan(halfToFloat(floatToHalf(f)))) << h;
    } else {
      ASSERT_EQ(floatToHalf(f), half);
      double expected = (h & 0x7c00) == 0x7c00 ? INFINITY
                        : (h & 0x7c00)         ? std::ldexp(1024 + (h & 0x3ff), static_cast<int>(h >> 10 & 31) - 25)
                                               : std::ldexp(h & 0x3ff, -24);
      ASSERT_EQ(f, h & 0x8000 ? -expected : expected) << h;
    }
    if (!std::isnan(b)) {
      ASSERT_EQ(floatToBfloat(b), half);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(floatToHalf(1 + 0x1p-11f), 0x3c00);     // tie to even
  EXPECT_EQ(floatToHalf(1 + 3 * 0x1p-11f), 0x3c02); // tie to even, upwards
  EXPECT_EQ(floatToHalf(1 + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(floatToHalf(0x1p-25f), 0); // half of the smallest: tie to even
  EXPECT_EQ(floatToHalf(3 * 0x1p-25f), 2);
  EXPECT_EQ(floatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(floatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(floatToHalf(-INFINITY), 0xfc00);
  EXPECT_EQ(floatToBfloat(1 + 0x1p-8f), 0x3f80);
  EXPECT_EQ(floatToBfloat(1 + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(bfloatToFloat(floatToBfloat(NAN))));
}

TEST(Half, E4m3IsWhatItsDefinitionSays) {
  std::vector<float> values; // of the positive codes
  for (int code = 0; code < 0x7f; ++code) {
    int exponent = code >> 3, fraction = code & 7;
    values.push_back(exponent ? std::ldexp(static_cast<float>(8 + fraction), exponent - 10) : std::ldexp(static_cast<float>(fraction), -9));
    auto byte = static_cast<uint8_t>(code), negative = static_cast<uint8_t>(code | 0x80);
    ASSERT_EQ(e4m3ToFloat(byte), values.back()) << code;
    ASSERT_EQ(bits(e4m3ToFloat(negative)), bits(-values.back())) << code;
    ASSERT_EQ(floatToE4m3(values.back()), byte);
    ASSERT_EQ(floatToE4m3(-values.back()), negative);
    ASSERT_FALSE(isE4m3NaN(byte) || isE4m3NaN(negative));
  }
  EXPECT_EQ(values.back(), 448);
  EXPECT_TRUE(isE4m3NaN(0x7f) && isE4m3NaN(0xff));
  for (size_t i = 0; i + 1 < values.size(); ++i) { // between two numbers: the middle goes to the even code, what lies beside it to its side
    float middle = (values[i] + values[i + 1]) / 2;
    ASSERT_EQ(floatToE4m3(middle), i + i % 2) << middle;
    ASSERT_EQ(floatToE4m3(std::nextafter(middle, 0.0f)), i) << middle;
    ASSERT_EQ(floatToE4m3(std::nextafter(middle, 1e9f)), i + 1) << middle;
  }
  for (float large : {449.0f, 464.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(floatToE4m3(large), 0x7e);
    EXPECT_EQ(floatToE4m3(-large), 0xfe);
  }
}

TEST(Storage, ValuesHaveTheBitsOfTheReference) {
  gguf::File file = fixture();
  for (StorageType type : blockTypes) {
    const StorageInfo &info = storageInfo(type);
    for (std::string kind : {".packed", ".fields"}) {
      std::string name = info.name + kind;
      const gguf::TensorInfo *tensor = file.tensor(name);
      ASSERT_TRUE(tensor) << name;
      EXPECT_EQ(static_cast<int>(tensor->type->id), info.ggufType);
      EXPECT_EQ(static_cast<int>(tensor->type->blockBytes), info.blockBytes);
      EXPECT_EQ(static_cast<int>(tensor->type->blockElements), info.blockElements);
      for (uint64_t row = 0; row < tensor->dims[1]; ++row) {
        std::vector<float> expected = floatsOf(file, name + ".values", row), got(256);
        dequantizeRow(type, rowOf(file, name, row), got);
        for (int k = 0; k < 256; ++k)
          ASSERT_TRUE(sameBits(got[k], expected[k]))
              << name << " row " << row << " column " << k << ": " << got[k] << " for " << expected[k];
      }
    }
  }
}

TEST(Storage, LegacyEncodersHaveTheBitsOfTheReference) {
  gguf::File file = fixture();
  for (StorageType type : {StorageType::q4_0, StorageType::q8_0})
    for (uint64_t row = 0; row < 4; ++row) {
      std::vector<float> values = floatsOf(file, "source.values", row);
      std::vector<uint8_t> packed(rowBytes(type, 256));
      ASSERT_TRUE(encodeRow(type, values, packed.data()).ok());
      std::string name = std::string(storageInfo(type).name) + ".packed";
      EXPECT_EQ(std::memcmp(packed.data(), rowOf(file, name, row), packed.size()), 0) << name << " row " << row;
    }
}

TEST(Storage, OwnEncodersRoundToNearest) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (StorageType type : ownTypes)
    for (int columns : {1, 31, 32, 100, 128, 200, 576}) {
      std::vector<float> row(columns), got(columns);
      for (float &x : row)
        x = normal(random);
      std::vector<uint8_t> packed(rowBytes(type, columns));
      ASSERT_TRUE(encodeRow(type, row, packed.data()).ok());
      dequantizeRow(type, packed.data(), got);
      PackedLayout layout = packedLayout(type);
      int group = layout.rowScale ? columns : layout.scaleK;
      for (int begin = 0; begin < columns; begin += group) {
        int end = std::min(columns, begin + group);
        auto [lo, hi] = std::minmax_element(row.begin() + begin, row.begin() + end);
        float low = std::min(*lo, 0.0f), high = std::max(*hi, 0.0f), amax = std::max(-low, high);
        // Symmetric 4-bit codes reach from -8 to 7: the extreme on the positive side may be half a step short.
        float step = type == StorageType::int8 ? amax / 127 : layout.min ? (high - low) / 15 : amax / 8;
        float bound = (type == StorageType::int8 || layout.min ? 0.5f : 1.0f) * step * 1.02f + amax * 2e-3f;
        for (int k = begin; k < end; ++k) {
          // 4 bits of a number remain, or steps of 2^-9 of 1/448 of the largest.
          if (layout.e4m3) bound = std::max(std::fabs(row[k]) / 16, amax * 0x1p-10f / 448) * 1.0001f;
          ASSERT_LE(std::fabs(got[k] - row[k]), bound) << storageInfo(type).name << " " << columns << " " << k;
        }
      }
    }
}

TEST(Storage, RowsOfZerosAndOfTinyNumbersStaySmall) {
  for (StorageType type : ownTypes)
    for (float value : {0.0f, -0.0f, 1e-42f, -1e-38f}) {
      std::vector<float> row(64, value), got(64);
      std::vector<uint8_t> packed(rowBytes(type, 64));
      ASSERT_TRUE(encodeRow(type, row, packed.data()).ok());
      dequantizeRow(type, packed.data(), got);
      for (float x : got)
        ASSERT_LE(std::fabs(x), 1e-37f);
    }
}

TEST(Storage, EncodersNameWhatTheyRefuse) {
  std::vector<float> row(64, 1.0f);
  std::vector<uint8_t> out(1024);
  row[3] = NAN;
  EXPECT_EQ(encodeRow(StorageType::q4_0, row, out.data()).message(), "cannot quantize to q4_0: column 3 is nan");
  row[3] = 1e9f;
  EXPECT_EQ(encodeRow(StorageType::int4_g32, row, out.data()).message(),
            "cannot quantize to int4_g32: the scale of the group at column 0 is too large for float16");
  EXPECT_EQ(encodeRow(StorageType::int4z_g64, row, out.data()).message(),
            "cannot quantize to int4z_g64: the scale of the group at column 0 is too large for float16");
  EXPECT_EQ(encodeRow(StorageType::q4_0, std::span(row).first(40), out.data()).message(),
            "expected rows of a multiple of 32 elements for type q4_0, found 40");
  EXPECT_EQ(encodeRow(StorageType::q4_1, row, out.data()).message(),
            "cannot quantize to q4_1, only to f32, f16, bf16, q4_0, q8_0, int8, int4_g32, int4_g64, int4_g128, "
            "int4z_g32, int4z_g64, int4z_g128, e4m3");
}

TEST(Storage, NamesAndNumbers) {
  for (StorageType type : blockTypes) {
    EXPECT_EQ(storageFromName(storageInfo(type).name), type);
    EXPECT_EQ(storageFromGGUF(storageInfo(type).ggufType), type);
  }
  EXPECT_FALSE(storageFromName("q9_0"));
  EXPECT_FALSE(storageFromGGUF(99));
  EXPECT_FALSE(storageFromGGUF(0xffffffff));
  EXPECT_EQ(storageTypeNames().substr(0, 20), "f32, f16, bf16, q4_0");
}

TEST(Storage, RandomBitsNeverCrash) {
  std::mt19937 random(7);
  for (StorageType type : blockTypes)
    for (int round = 0; round < 500; ++round) {
      std::vector<uint8_t> block(storageInfo(type).blockBytes);
      for (uint8_t &byte : block)
        byte = static_cast<uint8_t>(random());
      std::vector<float> out(storageInfo(type).blockElements);
      dequantizeRow(type, block.data(), out);
    }
}

} // namespace
