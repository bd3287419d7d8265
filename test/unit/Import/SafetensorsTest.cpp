#include "lathe/import/Safetensors.h"
#include "lathe/import/Json.h"
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

std::string make(const std::string &header, size_t dataBytes) {
  uint64_t n = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  out += header;
  for (size_t i = 0; i < dataBytes; ++i)
    out += static_cast<char>(i);
  return out;
}
Result<std::vector<safetensors::TensorInfo>> parse(const std::string &bytes) {
  return safetensors::parseHeader({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()});
}
std::string error(const std::string &header, size_t dataBytes = 64) {
  return parse(make(header, dataBytes)).status().message();
}
std::string entry(const std::string &name, const std::string &dtype, const std::string &shape, const std::string &at) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + at + "}";
}

struct Scratch {
  fs::path dir;
  Scratch() {
    char name[] = "/tmp/lathe-test-XXXXXX";
    dir = mkdtemp(name);
  }
  ~Scratch() { fs::remove_all(dir); }
  void write(const std::string &name, const std::string &text) { std::ofstream(dir / name) << text; }
  std::string openError() { return safetensors::Model::openDirectory(dir.string()).status().message(); }
};
bool contains(const std::string &text, const std::string &part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
  return text.find(part) != std::string::npos;
}

TEST(Safetensors, ReadsOneFile) {
  Scratch s;
  s.write("model.safetensors",
          make("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "F16", "[2,3]", "[16,28]") + "," +
                   entry("a", "F32", "[4]", "[0,16]") + "," + entry("c", "BF16", "[]", "[28,30]") + "," +
                   entry("d", "I64", "[0]", "[0,0]") + "}  ",
               30));
  auto model = safetensors::Model::openDirectory(s.dir.string());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto *b = model->tensor("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->dtype, safetensors::DType::f16);
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(model->tensorBytes(*b)[0], 16);
  EXPECT_EQ(model->tensor("c")->elements(), 1u);
  EXPECT_TRUE(b->checkUsable().ok());
  EXPECT_EQ(model->tensor("d")->checkUsable().message(),
            "tensor 'd': type 'I64' is not supported, only F32, F16, BF16 are");
  EXPECT_EQ(model->tensor("e"), nullptr);
}

TEST(Safetensors, DamagedHeaders) {
  EXPECT_EQ(parse("1234567").status().message(), "expected a header length of 8 bytes, the file has 7 bytes");
  EXPECT_EQ(parse(std::string(8, '\xff')).status().message(),
            "expected a header of at most 100000000 bytes, found 18446744073709551615");
  EXPECT_EQ(parse(std::string("\x40\0\0\0\0\0\0\0{}", 10)).status().message(),
            "header of 64 bytes does not fit in a file of 10 bytes");
  contains(error("{"), "header: not valid JSON at byte 2");
  EXPECT_EQ(error("[]"), "header: expected a JSON object");
  EXPECT_EQ(error(std::string(100, '[')), "header: JSON is nested deeper than 8 levels");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4]", "[0,16]") + "," + entry("a", "F32", "[4]", "[16,32]") + "}"),
            "header: JSON: key 'a' occurs twice in one object");
  EXPECT_EQ(error("{\"a\":1}"), "tensor 'a': expected an object with dtype, shape and data_offsets");
  EXPECT_EQ(error("{\"a\":{\"dtype\":3}}"), "tensor 'a': expected a string 'dtype'");
  EXPECT_EQ(error("{\"a\":{\"dtype\":\"F32\"}}"), "tensor 'a': expected an array 'shape'");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4]", "[0]") + "}"),
            "tensor 'a': expected 'data_offsets' of two non-negative integers");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4]", "[-16,0]") + "}"),
            "tensor 'a': expected 'data_offsets' of two non-negative integers");
  EXPECT_EQ(error("{" + entry("a", "F32", "[-4]", "[0,16]") + "}"),
            "tensor 'a': expected 'shape' of non-negative integers");
  EXPECT_EQ(error("{" + entry("a", "F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]") + "}"),
            "tensor 'a': expected at most 8 dimensions, found 9");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,16]") + "}"),
            "tensor 'a': its dimensions make more than 2^60 elements");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4]", "[0,12]") + "}"),
            "tensor 'a': expected 16 bytes for its shape and type F32, found 12");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4]", "[56,72]") + "}"),
            "tensor 'a': data offsets 56 to 72 do not fit, the file has 64 bytes of data");
  EXPECT_EQ(error("{" + entry("a", "F32", "[4]", "[16,0]") + "}"),
            "tensor 'a': data offsets 16 to 0 do not fit, the file has 64 bytes of data");
  contains(error("{" + entry("a", "F32", "[4]", "[0,16]") + "," + entry("b", "F32", "[4]", "[8,24]") + "}"),
           "tensors 'a' and 'b' overlap at offset");
}

TEST(Safetensors, ReadsShards) {
  Scratch s;
  s.write("one.safetensors", make("{" + entry("a", "F32", "[4]", "[0,16]") + "}", 16));
  s.write("two.safetensors", make("{" + entry("b", "F32", "[4]", "[0,16]") + "}", 16));
  s.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  auto model = safetensors::Model::openDirectory(s.dir.string());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->files().size(), 2u);
  EXPECT_EQ(model->tensors().size(), 2u);
  EXPECT_EQ(model->tensor("b")->file, 1u);

  s.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  contains(s.openError(), "tensor 'b' is not in file 'one.safetensors'");
  s.write("model.safetensors.index.json", R"({"weight_map":{"a":"../one.safetensors"}})");
  contains(s.openError(), "'..' is not allowed");
  s.write("model.safetensors.index.json", R"({"weight_map":{"a":7}})");
  contains(s.openError(), "tensor 'a': expected a file name");
  s.write("model.safetensors.index.json", R"([1])");
  contains(s.openError(), "expected a JSON object");
  s.write("model.safetensors.index.json", R"({})");
  contains(s.openError(), "expected an object 'weight_map'");
  s.write("two.safetensors", make("{" + entry("a", "F32", "[4]", "[0,16]") + "}", 16));
  s.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  contains(s.openError(), "tensor 'a' is also in");
}

TEST(Safetensors, NothingToOpen) {
  Scratch s;
  contains(s.openError(), "expected model.safetensors.index.json or model.safetensors");
  s.write("pytorch_model.bin", "");
  contains(s.openError(), "found pytorch_model.bin, which is not supported; convert it to safetensors");
  s.write("target", "12345678");
  fs::create_directory(s.dir / "inner");
  fs::create_symlink(s.dir / "target", s.dir / "inner" / "model.safetensors");
  contains(safetensors::Model::openDirectory((s.dir / "inner").string()).status().message(),
           "resolves to a file outside the model's directory; of a cache of links, make a copy with 'cp -rL'");
}

TEST(Safetensors, FlippedBytesNeverCrash) {
  const std::string good =
      make("{" + entry("a", "F32", "[4]", "[0,16]") + "," + entry("b", "F16", "[2,2]", "[16,24]") + "}", 24);
  ASSERT_TRUE(parse(good).ok());
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned flips = 1 + random() % 4; flips; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    (void)parse(bytes);
  }
}

TEST(Json, SizeLimit) {
  EXPECT_EQ(parseJson("[1,2,3]", {4, 8}).status().message(), "expected at most 4 bytes of JSON, found 7");
}

} // namespace
