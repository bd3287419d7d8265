//===- QDQ.cpp - matrices behind ONNX's DequantizeLinear --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Quote.h"
#include "lathe/weights/Half.h"
#include "lathe/weights/WeightRows.h"
#include <cmath>
#include <cstring>

namespace lathe {

StorageType qdqStorage(int bits, int64_t columns, int64_t block, bool zeros) {
  bool whole = block >= columns;
  // A group of the storage lies in one block; blocks of several groups repeat their scale.
  auto fits = [&](int64_t group) { return columns % group == 0 && (whole || block % group == 0); };
  if (bits == 8) {
    if (zeros) return StorageType::f32;
    return whole ? StorageType::int8 : fits(32) ? StorageType::q8_0 : StorageType::f32;
  }
  for (int64_t group : {128, 64, 32})
    if (fits(group)) return *nbitsStorage(4, group, zeros);
  return StorageType::f32;
}

int64_t QDQMatrix::element(const uint8_t *data, int64_t at) const {
  int nibble = bits() == 4 ? data[at / 2] >> (at % 2 * 4) & 15 : 0;
  switch (code) {
  case Code::int8: return static_cast<int8_t>(data[at]);
  case Code::uint8: return data[at];
  case Code::int4: return nibble < 8 ? nibble : nibble - 16;
  default: return nibble;
  }
}

int64_t QDQMatrix::codeAt(int64_t row, int64_t column) const {
  return element(codes->bytes().data() + codesOffset, transposed ? column * rows + row : row * columns + column);
}

int64_t QDQMatrix::scaleAt(int64_t row, int64_t column) const {
  int64_t first = transposed ? column : row, second = transposed ? row : column;
  return first / block[0] * scaleCount(1) + second / block[1];
}

float QDQMatrix::scaleOf(int64_t index) const {
  if (!scales) return scaleValues[static_cast<size_t>(index)];
  float d = 0;
  dequantizeRow(scaleStorage, scales->bytes().data() + scalesOffset + index * storageInfo(scaleStorage).blockBytes, std::span<float>(&d, 1));
  return d;
}

int64_t QDQMatrix::zeroOf(int64_t index) const {
  if (!zeros) return zeroValues[zeroValues.size() == 1 ? 0 : static_cast<size_t>(index)];
  return element(zeros->bytes().data() + zerosOffset, index);
}

Status QDQMatrix::check() const {
  auto bad = [&](const std::string &what) { return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": " + what); };
  constexpr int64_t most = int64_t(1) << 31;
  if (rows <= 0 || columns <= 0 || rows > most || columns > most) return bad("expected positive sizes");
  if (block[0] < 1 || block[1] < 1 || !isFloatStorage(scaleStorage)) return bad("expected blocks of at least one code and scales of f32, f16 or bf16");
  int64_t perRow = transposed ? block[0] : block[1], count = scaleCount(0) * scaleCount(1);
  bool centred = !zeros && zeroValues.size() == 1 && zeroValues[0] == (code == Code::uint8 ? 128 : code == Code::uint4 ? 8 : 0);
  if (target != StorageType::f32 && target != qdqStorage(bits(), columns, perRow, !centred)) return bad("its codes, blocks and zero points do not fit its storage type");
  // |numbers| of |each| bits. Compared by division: a product of sizes that a file may name is beyond 64 bits.
  auto inside = [&](const char *what, const MappedFile &file, int64_t offset, int64_t numbers, int64_t each) {
    auto size = static_cast<int64_t>(file.fileSize());
    if (offset >= 0 && offset <= size && numbers <= (size - offset) * 8 / each) return Status();
    return bad(std::string("its ") + what + " at offset " + std::to_string(offset) + " do not fit, " + quoteName(file.path()) + " ends at " + std::to_string(size));
  };
  LATHE_RETURN_IF_ERROR(inside("codes", *codes, codesOffset, rows * columns, bits()));
  if (scales) LATHE_RETURN_IF_ERROR(inside("scales", *scales, scalesOffset, count, 8 * storageInfo(scaleStorage).blockBytes));
  else if (static_cast<int64_t>(scaleValues.size()) != count) return bad("expected " + std::to_string(count) + " scales, found " + std::to_string(scaleValues.size()));
  if (zeros) return inside("zero points", *zeros, zerosOffset, count, bits());
  if (zeroValues.size() != 1 && static_cast<int64_t>(zeroValues.size()) != count) return bad("expected one zero point or " + std::to_string(count) + ", found " + std::to_string(zeroValues.size()));
  return Status();
}

Status QDQMatrix::makeRow(int64_t row, uint8_t *out) const {
  auto put = [&](const auto &value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  };
  auto tooLarge = [&] { return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": the scale of row " + std::to_string(row) + " is beyond what f16 holds"); };
  // Distance of a code from the middle of the codes.
  int64_t middle = code == Code::uint8 ? 128 : code == Code::uint4 ? 8 : 0;
  if (target == StorageType::f32) {
    for (int64_t k = 0; k < columns; ++k) {
      int64_t at = scaleAt(row, k);
      put(static_cast<float>(codeAt(row, k) - zeroOf(at)) * scaleOf(at));
    }
    return Status();
  }
  if (target == StorageType::int8) {
    put(scaleOf(scaleAt(row, 0)));
    for (int64_t k = 0; k < columns; ++k)
      *out++ = static_cast<uint8_t>(codeAt(row, k) - middle + 128);
    return Status();
  }
  const int64_t group = storageInfo(target).blockElements;
  bool minima = target == StorageType::int4z_g32 || target == StorageType::int4z_g64 || target == StorageType::int4z_g128;
  for (int64_t k = 0; k < columns; k += group) {
    int64_t at = scaleAt(row, k);
    uint16_t half = floatToHalf(scaleOf(at));
    if (!std::isfinite(halfToFloat(half))) return tooLarge();
    put(half);
    if (bits() == 8) {
      for (int64_t j = 0; j < group; ++j)
        *out++ = static_cast<uint8_t>(codeAt(row, k + j) - middle);
      continue;
    }
    // A nibble counts from the lowest code.
    int64_t lowest = middle - 8;
    if (minima) {
      uint16_t minimum = floatToHalf(static_cast<float>(lowest - zeroOf(at)) * halfToFloat(half));
      if (!std::isfinite(halfToFloat(minimum))) return tooLarge();
      put(minimum);
    }
    for (int64_t j = 0; j < group; j += 32)
      for (int64_t i = 0; i < 16; ++i)
        *out++ = static_cast<uint8_t>((codeAt(row, k + j + i) - lowest) | (codeAt(row, k + j + 16 + i) - lowest) << 4);
  }
  return Status();
}

} // namespace lathe
