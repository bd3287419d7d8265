//===- NBits.cpp - ONNX Runtime's block-quantized matrices ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Quote.h"
#include "lathe/weights/Half.h"
#include "lathe/weights/WeightRows.h"
#include <cmath>
#include <cstring>

namespace lathe {

static int64_t scaleBytes(StorageType type) { return type == StorageType::f32 ? 4 : 2; }

Status NBitsMatrix::check() const {
  auto bad = [&](const std::string &what) { return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": " + what); };
  if (rows <= 0 || columns <= 0 || rows > (int64_t(1) << 31) || columns > (int64_t(1) << 31)) return bad("expected positive sizes");
  if (!nbitsStorage(bits, columns, block, zeros != nullptr) || !isFloatStorage(scaleStorage)) return bad("no storage type for its bits, columns and blocks");
  auto inside = [&](const char *what, const MappedFile &file, int64_t offset, int64_t perRow) {
    auto size = static_cast<int64_t>(file.fileSize());
    if (offset >= 0 && offset <= size && rows <= (size - offset) / perRow) return Status();
    return bad(std::string("its ") + what + " at offset " + std::to_string(offset) + " do not fit, " + quoteName(file.path()) + " ends at " + std::to_string(size));
  };
  LATHE_RETURN_IF_ERROR(inside("codes", *codes, codesOffset, blocks() * block * bits / 8));
  LATHE_RETURN_IF_ERROR(inside("scales", *scales, scalesOffset, blocks() * scaleBytes(scaleStorage)));
  return zeros ? inside("zero points", *zeros, zerosOffset, (blocks() + 1) / 2) : Status();
}

Status NBitsMatrix::makeRow(int64_t row, uint8_t *out) const {
  int64_t count = blocks();
  const uint8_t *code = codes->bytes().data() + codesOffset + row * count * block * bits / 8;
  const uint8_t *scale = scales->bytes().data() + scalesOffset + row * count * scaleBytes(scaleStorage);
  const uint8_t *zero = zeros ? zeros->bytes().data() + zerosOffset + row * ((count + 1) / 2) : nullptr;
  const int64_t group = storageInfo(storage()).blockElements; // a block or a part of one
  for (int64_t first = 0; first < columns; first += group) {
    int64_t b = first / block;
    float d = 0;
    dequantizeRow(scaleStorage, scale + b * scaleBytes(scaleStorage), std::span<float>(&d, 1));
    uint16_t half = floatToHalf(d);
    if (!std::isfinite(halfToFloat(half)))
      return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": the scale of row " + std::to_string(row) + " is beyond what f16 holds");
    std::memcpy(out, &half, 2);
    out += 2;
    if (zero) {
      int z = zero[b / 2] >> (b % 2 * 4) & 15;
      uint16_t minimum = floatToHalf(-static_cast<float>(z) * halfToFloat(half));
      std::memcpy(out, &minimum, 2);
      out += 2;
    }
    if (bits == 8) { // codes around 128 to signed bytes
      for (int64_t k = first; k < first + group; ++k)
        *out++ = static_cast<uint8_t>(code[k] - 128);
      continue;
    }
    auto nibble = [&](int64_t k) { return code[k / 2] >> (k % 2 * 4) & 15; };
    for (int64_t k = first; k < first + group; k += 32)
      for (int64_t j = 0; j < 16; ++j)
        *out++ = static_cast<uint8_t>(nibble(k + j) | nibble(k + 16 + j) << 4);
  }
  return Status();
}

} // namespace lathe
