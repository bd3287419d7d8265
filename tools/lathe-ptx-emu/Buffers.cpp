//===- Buffers.cpp - kernel arguments from the command line ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Buffers.h"
#include "runtime/device/emulator/Numerics.h"
#include <cerrno>
#include <cinttypes>
#include <cstdlib>

namespace lathe::tools {
namespace {

using emulator::Rounding;

struct TypeInfo { const char *name; unsigned bytes; bool floating, isSigned; };
constexpr TypeInfo kTypes[] = {{"f64", 8, true, true}, {"f32", 4, true, true}, {"f16", 2, true, true}, {"bf16", 2, true, true}, {"e4m3", 1, true, true}, {"e5m2", 1, true, true},
                               {"i64", 8, false, true}, {"i32", 4, false, true}, {"i16", 2, false, true}, {"i8", 1, false, true},
                               {"u64", 8, false, false}, {"u32", 4, false, false}, {"u16", 2, false, false}, {"u8", 1, false, false}};
constexpr uint64_t kMaxBuffer = 8ull << 30;

const TypeInfo *find(std::string_view name) {
  for (const TypeInfo &type : kTypes)
    if (name == type.name) return &type;
  return nullptr;
}
uint64_t encodeValue(const TypeInfo &type, double value) {
  std::string_view name = type.name;
  if (name == "f64") return std::bit_cast<uint64_t>(value);
  if (name == "f32") return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (name == "f16") return emulator::encode(value, emulator::kHalf, Rounding::nearest, false);
  if (name == "bf16") return emulator::encode(value, emulator::kBfloat, Rounding::nearest, false);
  if (name == "e4m3") return emulator::encode(value, emulator::kE4m3, Rounding::nearest, true);
  if (name == "e5m2") return emulator::encode(value, emulator::kE5m2, Rounding::nearest, true);
  return value < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}
uint64_t nextRandom(uint64_t &state) { // splitmix64
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
Status bad(std::string_view text, const std::string &what) {
  return Status(StatusCode::invalidArgument, "argument '" + std::string(text) + "': " + what);
}
bool number(const std::string &text, double &value) {
  char *end = nullptr;
  errno = 0;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0;
}
bool integer(const std::string &text, uint64_t &value) {
  char *end = nullptr;
  errno = 0;
  value = text[0] == '-' ? static_cast<uint64_t>(std::strtoll(text.c_str(), &end, 0)) : std::strtoull(text.c_str(), &end, 0);
  return !text.empty() && *end == 0 && errno == 0;
}
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    size_t colon = text.find(':');
    parts.emplace_back(text.substr(0, colon));
    if (colon == text.npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

} // namespace

Result<KernelArgument> parseArgument(std::string_view text) {
  KernelArgument argument;
  argument.text = std::string(text);
  std::vector<std::string> parts = split(text);
  argument.isBuffer = parts[0] == "buf";
  const size_t at = argument.isBuffer ? 1 : 0;
  const TypeInfo *type = parts.size() > at ? find(parts[at]) : nullptr;
  if (!type) return bad(text, "expected buf:TYPE:COUNT or TYPE:VALUE with f64, f32, f16, bf16, e4m3, e5m2, i8..i64 or u8..u64");
  argument.type = type->name;
  if (!argument.isBuffer) {
    if (parts.size() != 2) return bad(text, "expected TYPE:VALUE");
    uint64_t bits = 0;
    double value = 0;
    if (type->floating ? !number(parts[1], value) : !integer(parts[1], bits)) return bad(text, "'" + parts[1] + "' is no number");
    if (type->floating) bits = encodeValue(*type, value);
    argument.bytes.resize(type->bytes);
    std::memcpy(argument.bytes.data(), &bits, type->bytes);
    return argument;
  }
  if (parts.size() < 3 || parts.size() > 4 || !integer(parts[2], argument.count) || argument.count == 0 || argument.count > kMaxBuffer / type->bytes) return bad(text, "expected a number of elements of up to 8 GiB");
  argument.bytes.resize(argument.count * type->bytes);
  std::string how = parts.size() == 4 ? parts[3] : "zero";
  uint64_t seed = 0;
  double value = 0;
  auto put = [&](uint64_t index, uint64_t bits) { std::memcpy(&argument.bytes[index * type->bytes], &bits, type->bytes); };
  if (how == "zero") return argument;
  if (how == "uninit") {
    std::fill(argument.bytes.begin(), argument.bytes.end(), uint8_t(0xff));
  } else if (how == "iota") {
    for (uint64_t index = 0; index < argument.count; ++index)
      put(index, encodeValue(*type, static_cast<double>(index)));
  } else if (how.rfind("fill=", 0) == 0 && number(how.substr(5), value)) {
    for (uint64_t index = 0; index < argument.count; ++index)
      put(index, encodeValue(*type, value));
  } else if (how.rfind("seed=", 0) == 0 && integer(how.substr(5), seed)) {
    // Floats uniform in [-1, 1), integers all values.
    for (uint64_t index = 0; index < argument.count; ++index) {
      uint64_t random = nextRandom(seed);
      put(index, type->floating ? encodeValue(*type, std::ldexp(static_cast<double>(random >> 11), -52) - 1) : random);
    }
  } else if (how.rfind("file=", 0) == 0) {
    LATHE_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, readFile(how.substr(5)));
    if (bytes.size() != argument.bytes.size()) return bad(text, "expected " + std::to_string(argument.bytes.size()) + " bytes, the file has " + std::to_string(bytes.size()));
    argument.bytes = std::move(bytes);
  } else {
    return bad(text, "expected seed=N, zero, fill=V, iota, uninit or file=PATH after the count");
  }
  return argument;
}

double elementValue(const KernelArgument &argument, uint64_t index) {
  const TypeInfo *type = find(argument.type);
  uint64_t bits = 0;
  std::memcpy(&bits, &argument.bytes[index * type->bytes], type->bytes);
  if (argument.type == "f64") return std::bit_cast<double>(bits);
  if (argument.type == "f32") return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (argument.type == "f16") return emulator::decode(static_cast<uint32_t>(bits), emulator::kHalf);
  if (argument.type == "bf16") return emulator::decode(static_cast<uint32_t>(bits), emulator::kBfloat);
  if (argument.type == "e4m3") return emulator::decode(static_cast<uint32_t>(bits), emulator::kE4m3);
  if (argument.type == "e5m2") return emulator::decode(static_cast<uint32_t>(bits), emulator::kE5m2);
  if (type->isSigned && type->bytes < 8 && bits >> (8 * type->bytes - 1)) bits |= ~0ull << (8 * type->bytes);
  return type->isSigned ? static_cast<double>(static_cast<int64_t>(bits)) : static_cast<double>(bits);
}
std::string elementText(const KernelArgument &argument, uint64_t index) {
  char text[40];
  const TypeInfo *type = find(argument.type);
  if (!type->floating && type->bytes == 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, &argument.bytes[index * 8], 8);
    if (type->isSigned) std::snprintf(text, sizeof(text), "%" PRId64, static_cast<int64_t>(bits));
    else std::snprintf(text, sizeof(text), "%" PRIu64, bits);
  } else {
    std::snprintf(text, sizeof(text), type->floating ? "%.9g" : "%.0f", elementValue(argument, index));
  }
  return text;
}

Result<std::vector<uint8_t>> readFile(const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "rb");
  if (!file) return Status(StatusCode::notFound, "cannot open '" + path + "'");
  std::vector<uint8_t> bytes;
  uint8_t chunk[1 << 16];
  for (size_t count; (count = std::fread(chunk, 1, sizeof(chunk), file)) > 0;)
    bytes.insert(bytes.end(), chunk, chunk + count);
  bool failed = std::ferror(file);
  std::fclose(file);
  if (failed) return Status(StatusCode::dataLoss, "cannot read '" + path + "'");
  return bytes;
}
Status writeFile(const std::string &path, const std::vector<uint8_t> &bytes) {
  std::FILE *file = std::fopen(path.c_str(), "wb");
  if (!file) return Status(StatusCode::invalidArgument, "cannot write '" + path + "'");
  bool good = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  good &= std::fclose(file) == 0;
  return good ? Status() : Status(StatusCode::resourceExhausted, "cannot write '" + path + "'");
}

} // namespace lathe::tools
