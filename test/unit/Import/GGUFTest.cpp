#include "lathe/import/GGUF.h"
#include "GGUFBuilder.h"
#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using lathe::test::GGUFBuilder;

namespace {

Result<gguf::File> parse(const std::string &bytes) {
  return gguf::File::parse({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()}, "test.gguf");
}
std::string error(const std::string &bytes) { return parse(bytes).status().message(); }
template <typename T> std::string error(const Result<T> &result) { return result.status().message(); }

TEST(GGUF, ReadsEveryKindOfValue) {
  GGUFBuilder b;
  b.u32("u32", 7).f32("f32", 0.5f).flag("flag", true).string("name", "hello").strings("words", {"a", "", "ccc"});
  b.value("u8", 0, GGUFBuilder::raw<uint8_t>(255)).value("i8", 1, GGUFBuilder::raw<int8_t>(-1));
  b.value("u16", 2, GGUFBuilder::raw<uint16_t>(65535)).value("i16", 3, GGUFBuilder::raw<int16_t>(-2));
  b.value("i32", 5, GGUFBuilder::raw<int32_t>(-3)).value("u64", 10, GGUFBuilder::raw<uint64_t>(1));
  b.value("i64", 11, GGUFBuilder::raw<int64_t>(-4)).value("f64", 12, GGUFBuilder::raw<double>(0.25));
  b.value("big", 10, GGUFBuilder::raw<uint64_t>(~0ull));
  b.array<float>("floats", 6, {1.5f, 2.5f}).array<int16_t>("shorts", 3, {-1, 9}).array<uint8_t>("flags", 7, {1, 0, 1});
  b.array<uint32_t>("none", 4, {});
  std::string bytes = b.build();
  auto parsed = parse(bytes);
  ASSERT_TRUE(parsed.ok()) << error(parsed);
  gguf::File file = *std::move(parsed);
  EXPECT_EQ(*file.integer("u32"), 7);
  EXPECT_EQ(*file.integer("u8"), 255);
  EXPECT_EQ(*file.integer("i8"), -1);
  EXPECT_EQ(*file.integer("u16"), 65535);
  EXPECT_EQ(*file.integer("i16"), -2);
  EXPECT_EQ(*file.integer("i32"), -3);
  EXPECT_EQ(*file.integer("u64"), 1);
  EXPECT_EQ(*file.integer("i64"), -4);
  EXPECT_EQ(*file.number("f32"), 0.5);
  EXPECT_EQ(*file.number("f64"), 0.25);
  EXPECT_EQ(*file.number("i8"), -1);
  EXPECT_TRUE(*file.boolean("flag"));
  EXPECT_EQ(*file.string("name"), "hello");
  EXPECT_EQ(*file.strings("words"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(*file.floats("floats"), (std::vector<float>{1.5f, 2.5f}));
  EXPECT_EQ(*file.integers("shorts"), (std::vector<int64_t>{-1, 9}));
  EXPECT_EQ(*file.booleans("flags"), (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(file.strings("none")->empty());
  EXPECT_EQ(*file.integerOr("absent", 5), 5);
  EXPECT_EQ(*file.stringOr("absent", "x"), "x");
  EXPECT_EQ(*file.elementType("floats"), gguf::ValueType::float32);
  EXPECT_EQ(file.keys()[0], "u32");
  EXPECT_EQ(error(file.integer("absent")), "metadata 'absent' is missing");
  EXPECT_EQ(error(file.integer("name")), "metadata 'name': expected an integer, found string");
  EXPECT_EQ(error(file.integerOr("flag", 0)), "metadata 'flag': expected an integer, found bool");
  EXPECT_EQ(error(file.string("u32")), "metadata 'u32': expected a string, found uint32");
  EXPECT_EQ(error(file.number("words")), "metadata 'words': expected a number, found array");
  EXPECT_EQ(error(file.boolean("u8")), "metadata 'u8': expected a bool, found uint8");
  EXPECT_EQ(error(file.strings("floats")), "metadata 'floats': expected an array of strings, found array of float32");
  EXPECT_EQ(error(file.integers("floats")), "metadata 'floats': expected an array of integers, found array of float32");
  EXPECT_EQ(error(file.floats("u32")), "metadata 'u32': expected an array of numbers, found uint32");
  EXPECT_EQ(error(file.booleans("floats")), "metadata 'floats': expected an array of bools, found array of float32");
  EXPECT_EQ(error(file.integer("big")), "metadata 'big': 18446744073709551615 does not fit in a signed 64-bit integer");
}

TEST(GGUF, ReadsTheTensorTable) {
  GGUFBuilder b;
  b.alignment = 64;
  b.u32("general.alignment", 64).tensor("a", 2, {64, 3}, std::string(108, 'x')).tensor("b", 0, {2}, "12345678");
  std::string bytes = b.build();
  auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << error(file);
  ASSERT_EQ(file->tensors().size(), 2u);
  const gguf::TensorInfo *a = file->tensor("a"), *second = file->tensor("b");
  ASSERT_TRUE(a && second);
  EXPECT_STREQ(a->type->name, "Q4_0");
  EXPECT_EQ(a->dims, (std::vector<uint64_t>{64, 3}));
  EXPECT_EQ(a->bytes, 108u);
  EXPECT_EQ(a->elements(), 192u);
  auto view = file->tensorBytes(*second);
  EXPECT_EQ(std::string(view.begin(), view.end()), "12345678");
  EXPECT_EQ(file->tensor("c"), nullptr);
}

TEST(GGUF, VersionTwoIsReadAndOthersAreNamed) {
  GGUFBuilder b;
  b.version = 2;
  EXPECT_TRUE(parse(b.build()).ok());
  b.version = 1;
  EXPECT_EQ(error(b.build()), "test.gguf: GGUF version 1 is not supported, only versions 2 and 3 are");
  b.version = 0x03000000;
  EXPECT_EQ(error(b.build()), "test.gguf: big-endian GGUF file, only little-endian files are supported");
  EXPECT_EQ(error("GGML"), "test.gguf: not a GGUF file: expected the bytes 'GGUF' at offset 0");
}

TEST(GGUF, HostileCountsAreRefusedBeforeUse) {
  GGUFBuilder b;
  b.valueCount = 1ull << 60;
  EXPECT_EQ(error(b.build()), "test.gguf: 1152921504606846976 metadata entries do not fit in a file of 24 bytes");
  b.valueCount = 0;
  b.tensorCount = 1ull << 60;
  EXPECT_NE(error(b.build()).find("1152921504606846976 tensors do not fit in a file of"), std::string::npos);
  GGUFBuilder array;
  array.value("x", 9, GGUFBuilder::raw<uint32_t>(6) + GGUFBuilder::raw<uint64_t>(~0ull));
  EXPECT_NE(error(array.build()).find("'x': 18446744073709551615 values of type float32 do not fit"),
            std::string::npos);
  GGUFBuilder words;
  words.value("x", 9, GGUFBuilder::raw<uint32_t>(8) + GGUFBuilder::raw<uint64_t>(1ull << 61));
  EXPECT_NE(error(words.build()).find("values of type string do not fit"), std::string::npos);
  GGUFBuilder text;
  text.value("x", 8, GGUFBuilder::raw<uint64_t>(~0ull));
  EXPECT_NE(error(text.build()).find("metadata 'x': a string of 18446744073709551615 bytes at offset 37 does not fit"),
            std::string::npos);
}

TEST(GGUF, NestedArraysAreBounded) {
  std::string inner = GGUFBuilder::raw<uint32_t>(4) + GGUFBuilder::raw<uint64_t>(1) + GGUFBuilder::raw<uint32_t>(5);
  for (int i = 0; i < 20; ++i)
    inner = GGUFBuilder::raw<uint32_t>(9) + GGUFBuilder::raw<uint64_t>(1) + inner;
  GGUFBuilder b;
  b.value("deep", 9, inner);
  EXPECT_NE(error(b.build()).find("metadata 'deep': arrays are nested deeper than 4"), std::string::npos);
}

TEST(GGUF, DamagedMetadata) {
  EXPECT_NE(error(GGUFBuilder().value("x", 13, "").string("y", "zzzz").build())
                .find("metadata 'x': expected a value type of 0 to 12, found 13"),
            std::string::npos);
  EXPECT_NE(error(GGUFBuilder().value("x", 7, "\2").build()).find("metadata 'x': expected a bool of 0 or 1, found 2"),
            std::string::npos);
  EXPECT_NE(error(GGUFBuilder().u32("x", 1).u32("x", 1).build()).find("metadata 'x' occurs twice"), std::string::npos);
  EXPECT_NE(error(GGUFBuilder().u32("", 1).build()).find("empty metadata key"), std::string::npos);
  EXPECT_NE(error(GGUFBuilder().u32(std::string(70000, 'k'), 1).build()).find("expected at most 65535 bytes"),
            std::string::npos);
  EXPECT_NE(error(GGUFBuilder().u32("general.alignment", 24).build())
                .find("metadata 'general.alignment': expected a power of two of at least 8, found 24"),
            std::string::npos);
}

TEST(GGUF, DamagedTensors) {
  auto one = [](uint32_t type, std::vector<uint64_t> dims, uint64_t offset = 0) {
    return error(GGUFBuilder().tensorAt("t", type, dims, offset).build());
  };
  EXPECT_NE(one(0, {}).find("expected 1 to 4 dimensions, found 0"), std::string::npos);
  EXPECT_NE(one(0, {1, 1, 1, 1, 1}).find("tensor 't': expected 1 to 4 dimensions, found 5"), std::string::npos);
  EXPECT_NE(one(0, {4, 0}).find("tensor 't': dimension 1 is 0"), std::string::npos);
  EXPECT_NE(one(0, {1ull << 40, 1ull << 40}).find("more than 2^60 elements"), std::string::npos);
  EXPECT_EQ(one(23, {256}), "test.gguf: tensor 't': type IQ4_XS is not supported, only F32, F16, BF16, Q4_0, Q4_1, "
                            "Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL are");
  EXPECT_NE(one(99, {256}).find("type number 99 is not supported"), std::string::npos);
  EXPECT_NE(one(12, {128}).find("expected rows of a multiple of 256 elements for type Q4_K, found 128"),
            std::string::npos);
  EXPECT_NE(one(0, {8}, 16).find("expected an offset that is a multiple of 32, found 16"), std::string::npos);
  EXPECT_NE(one(0, {8}).find("tensor 't': expected 32 bytes at offset 0 of the data at 64, file ends at 64"),
            std::string::npos);
  EXPECT_NE(one(0, {8}, ~31ull).find("file ends at 64"), std::string::npos);
  GGUFBuilder twice;
  twice.tensor("t", 0, {8}, std::string(32, 0)).tensor("t", 0, {8}, std::string(32, 0));
  EXPECT_NE(error(twice.build()).find("tensor 't' occurs twice"), std::string::npos);
  GGUFBuilder overlap;
  overlap.tensor("a", 0, {9}, std::string(64, 0)).tensorAt("b", 0, {8}, 32);
  EXPECT_NE(error(overlap.build()).find("tensors 'a' and 'b' overlap at offset"), std::string::npos);
  GGUFBuilder hostile;
  hostile.tensorAt("\x1b[31m", 99, {8}, 0);
  EXPECT_NE(error(hostile.build()).find("tensor '\\x1b[31m': type"), std::string::npos);
  EXPECT_NE(error(GGUFBuilder().tensorAt("", 0, {8}, 0).build()).find("empty tensor name"), std::string::npos);
}

TEST(GGUF, EveryTruncationIsAnError) {
  GGUFBuilder b;
  b.u32("u32", 7).strings("words", {"a", "bb"}).array<float>("floats", 6, {1, 2});
  b.tensor("t", 0, {8}, std::string(32, 0));
  std::string bytes = b.build();
  ASSERT_TRUE(parse(bytes).ok());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(parse(bytes.substr(0, n)).ok()) << n;
  EXPECT_NE(error(bytes.substr(0, 6)).find("(4 bytes) at offset 4, file ends at 6"), std::string::npos) << error(bytes.substr(0, 6));
  std::string cut = GGUFBuilder().string("y", std::string(1000, 'z')).build().substr(0, 200);
  EXPECT_NE(error(cut).find("of 1000 bytes at offset 37 does not fit, file ends at 200"), std::string::npos) << error(cut);
}

TEST(GGUF, FlippedBytesNeverCrash) {
  GGUFBuilder b;
  b.u32("u32", 7).strings("words", {"a", "bb"}).array<float>("floats", 6, {1, 2});
  b.tensor("t", 2, {32, 2}, std::string(36, 0));
  const std::string good = b.build();
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned flips = 1 + random() % 4; flips; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    auto file = parse(bytes);
    if (!file.ok()) continue;
    for (std::string_view key : file->keys()) {
      (void)file->strings(key);
      (void)file->integers(key);
    }
  }
}

} // namespace
