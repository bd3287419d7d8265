//===- Scaled.cpp - matrices of 8-bit floats with scales beside them --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Quote.h"
#include "lathe/weights/Half.h"
#include "lathe/weights/WeightRows.h"
#include <cmath>
#include <cstring>

namespace lathe {

Status ScaledMatrix::check() const {
  auto bad = [&](const std::string &what) { return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": " + what); };
  constexpr int64_t most = int64_t(1) << 31;
  if (rows <= 0 || columns <= 0 || rows > most || columns > most) return bad("expected positive sizes");
  if (!isFloatStorage(scaleStorage)) return bad("expected scales of f32, f16 or bf16");
  auto inside = [&](const char *what, const MappedFile &file, int64_t offset, int64_t count, int64_t each) {
    auto size = static_cast<int64_t>(file.fileSize());
    if (offset >= 0 && offset <= size && count <= (size - offset) / each) return Status();
    return bad(std::string("its ") + what + " at offset " + std::to_string(offset) + " do not fit, " + quoteName(file.path()) + " ends at " + std::to_string(size));
  };
  LATHE_RETURN_IF_ERROR(inside("codes", *codes, codesOffset, rows, columns));
  return inside("scales", *scales, scalesOffset, perRow ? rows : 1, storageInfo(scaleStorage).blockBytes);
}

Status ScaledMatrix::makeRow(int64_t row, uint8_t *out) const {
  auto bad = [&](const std::string &what) { return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": " + what); };
  float scale = 0;
  int64_t at = scalesOffset + (perRow ? row : 0) * storageInfo(scaleStorage).blockBytes;
  dequantizeRow(scaleStorage, scales->bytes().data() + at, std::span<float>(&scale, 1));
  if (!std::isfinite(scale)) return bad("expected a finite scale of row " + std::to_string(row) + ", found " + std::to_string(scale));
  std::memcpy(out, &scale, 4);
  const uint8_t *from = codes->bytes().data() + codesOffset + row * columns;
  for (int64_t k = 0; k < columns; ++k)
    if (isE4m3NaN(from[k])) return bad("expected numbers, found NaN in row " + std::to_string(row) + ", column " + std::to_string(k));
  std::memcpy(out + 4, from, static_cast<size_t>(columns));
  return Status();
}

} // namespace lathe
