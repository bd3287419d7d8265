//===- WeightRows.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/weights/WeightRows.h"
#include "lathe/import/Quote.h"
#include "lathe/weights/Half.h"
#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace lathe {
namespace {
constexpr int64_t maxRows = 0x7fffffff; // a row number takes 4 bytes of the table

Status bad(const std::string &name, const std::string &what) {
  return Status(StatusCode::invalidArgument, "tensor " + quoteName(name) + ": " + what);
}
} // namespace

Result<WeightRows> WeightRows::fromLeaf(Leaf leaf, std::span<const int64_t> shape) {
  if (shape.empty() || shape.size() > 2 || std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d <= 0; }))
    return bad(leaf.name, "expected 1 or 2 positive dimensions, found " + std::to_string(shape.size()));
  WeightRows out;
  out.vector = shape.size() == 1;
  out.width = out.vector ? 1 : shape[1];
  out.resultStorage = leaf.storage;
  if (shape[0] > maxRows) return bad(leaf.name, "expected fewer than 2^31 rows, found " + std::to_string(shape[0]));
  if (out.vector && !isFloatStorage(leaf.storage))
    return bad(leaf.name,
               std::string("expected a vector of f32, f16 or bf16, found ") + storageInfo(leaf.storage).name);
  leaf.rows = shape[0];
  leaf.columns = out.width;
  out.leaves.push_back(std::move(leaf));
  out.table.resize(static_cast<size_t>(shape[0]));
  for (size_t i = 0; i < out.table.size(); ++i)
    out.table[i] = {0, static_cast<uint32_t>(i)};
  return out;
}

Result<WeightRows> WeightRows::fromQuantized(std::shared_ptr<const QuantizedMatrix> matrix) {
  LATHE_RETURN_IF_ERROR(matrix->check());
  if (!rowFits(matrix->storage(), matrix->columns)) return bad(matrix->name, "expected rows of whole blocks, found " + std::to_string(matrix->columns) + " columns");
  Leaf leaf{matrix->name, matrix->storage(), nullptr, 0, 0};
  const int64_t shape[] = {matrix->rows, matrix->columns};
  leaf.matrix = std::move(matrix);
  return fromLeaf(std::move(leaf), shape);
}

Result<WeightRows> WeightRows::fromFile(std::shared_ptr<const MappedFile> file, std::string name, int64_t offset,
                                        StorageType storage, std::span<const int64_t> shape) {
  Leaf leaf{std::move(name), storage, nullptr, 0, 0};
  if (!rowFits(storage, shape.empty() ? 0 : shape.back()))
    return bad(leaf.name, "expected rows of a multiple of " + std::to_string(storageInfo(storage).blockElements) +
                              " elements for " + storageInfo(storage).name + ", found " + std::to_string(shape.back()));
  auto size = static_cast<int64_t>(file->fileSize());
  // Bounds first, without overflow: rows * rowBytes <= size.
  int64_t rows = shape.size() == 2 ? shape[0] : 1, columns = shape.empty() ? 0 : shape.back();
  if (rows > 0 && columns > 0) {
    bool fits = columns <= (int64_t(1) << 50) && offset >= 0 && offset <= size &&
                rows <= (size - offset) / rowBytes(storage, columns);
    if (!fits)
      return bad(leaf.name, "its data at offset " + std::to_string(offset) + " does not fit, " +
                                quoteName(file->path()) + " ends at " + std::to_string(size));
    leaf.data = file->bytes().data() + offset;
  }
  leaf.file = std::move(file);
  return fromLeaf(std::move(leaf), shape);
}

Result<WeightRows> WeightRows::fromValues(std::span<const float> values, std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (int64_t dim : shape)
    elements *= dim;
  if (elements != static_cast<int64_t>(values.size()))
    return bad("constant", "expected " + std::to_string(elements) + " values, found " + std::to_string(values.size()));
  auto bytes = std::make_shared<std::vector<uint8_t>>(values.size_bytes());
  if (!values.empty()) std::memcpy(bytes->data(), values.data(), values.size_bytes());
  Leaf leaf{"constant", StorageType::f32, bytes->data(), 0, 0};
  leaf.owned = std::move(bytes);
  return fromLeaf(std::move(leaf), shape);
}

void WeightRows::append(const WeightRows &other, int64_t begin, int64_t end) {
  auto base = static_cast<uint32_t>(leaves.size());
  leaves.insert(leaves.end(), other.leaves.begin(), other.leaves.end());
  for (int64_t i = begin; i < end; ++i) {
    Row row = other.table[static_cast<size_t>(i)];
    table.push_back({row.leaf == zeroRow ? zeroRow : row.leaf + base, row.row});
  }
}

Result<WeightRows> WeightRows::concat(std::span<const WeightRows> parts) {
  if (parts.empty()) return Status(StatusCode::invalidArgument, "expected at least one part in a concat");
  WeightRows out = parts[0];
  for (const WeightRows &part : parts.subspan(1)) {
    if (part.resultStorage != out.resultStorage || part.width != out.width || part.vector != out.vector)
      return bad(part.name(), "parts of a concat differ in storage or width: " + std::to_string(out.width) + " of " +
                                  storageInfo(out.resultStorage).name + ", found " + std::to_string(part.width) +
                                  " of " + storageInfo(part.resultStorage).name);
    if (out.rows() + part.rows() > maxRows) return bad(part.name(), "expected fewer than 2^31 rows in a concat");
    out.append(part, 0, part.rows());
  }
  return out;
}

Result<WeightRows> WeightRows::interleave(const WeightRows &first, const WeightRows &second, int64_t block) {
  if (first.resultStorage != second.resultStorage || first.width != second.width || first.rows() != second.rows())
    return bad(second.name(), "parts of an interleave differ in storage or shape");
  if (block <= 0 || block > maxRows || first.rows() > maxRows / 4)
    return bad(first.name(), "cannot interleave blocks of " + std::to_string(block) + " rows");
  WeightRows out = first;
  out.append(second, 0, 0);
  out.table.clear();
  auto base = static_cast<uint32_t>(first.leaves.size());
  for (int64_t begin = 0; begin < first.rows(); begin += block)
    for (int part = 0; part < 2; ++part)
      for (int64_t i = begin; i < begin + block; ++i) {
        Row row{zeroRow, 0};
        if (i < first.rows()) row = (part ? second : first).table[static_cast<size_t>(i)];
        if (part && row.leaf != zeroRow) row.leaf += base;
        out.table.push_back(row);
      }
  return out;
}

Result<WeightRows> WeightRows::slice(int64_t begin, int64_t end) const {
  if (begin < 0 || end <= begin || end > rows())
    return bad(name(), "slice " + std::to_string(begin) + " .. " + std::to_string(end) + " is outside " +
                           std::to_string(rows()) + " rows");
  WeightRows out = *this;
  out.table.assign(table.begin() + begin, table.begin() + end);
  return out;
}

Result<WeightRows> WeightRows::unrope(int64_t heads) const {
  if (heads <= 0 || heads > rows() || rows() % (2 * heads))
    return bad(name(), "expected rows that divide into " + std::to_string(heads) + " heads of even size, found " +
                           std::to_string(rows()));
  WeightRows out = *this;
  int64_t size = rows() / heads, half = size / 2;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < half; ++i) {
      out.table[static_cast<size_t>(head * size + i)] = table[static_cast<size_t>(head * size + 2 * i)];
      out.table[static_cast<size_t>(head * size + half + i)] = table[static_cast<size_t>(head * size + 2 * i + 1)];
    }
  return out;
}

Result<WeightRows> WeightRows::columnsOf(int64_t begin, int64_t end) const {
  if (begin < 0 || end <= begin || end > width)
    return bad(name(), "columns " + std::to_string(begin) + " .. " + std::to_string(end) + " are outside " + std::to_string(width) + " columns");
  WeightRows out = *this;
  for (Leaf &leaf : out.leaves) {
    if (vector || !isFloatStorage(leaf.storage) || leaf.transposed || leaf.rounded || leaf.matrix) return bad(leaf.name, "columns can be taken of an unquantized matrix only");
    leaf.firstColumn += begin;
  }
  out.width = end - begin;
  return out;
}

Result<WeightRows> WeightRows::transpose() const {
  bool whole = !vector && leaves.size() == 1 && rows() == leaves[0].rows && width == leaves[0].columns && !leaves[0].transposed;
  for (size_t i = 0; whole && i < table.size(); ++i)
    whole = table[i].leaf == 0 && table[i].row == i;
  if (!whole || !isFloatStorage(resultStorage) || leaves[0].plusOne || leaves[0].rounded)
    return bad(name(), "only a whole unquantized matrix can be transposed");
  WeightRows out = *this;
  out.leaves[0].transposed = true;
  if (width > maxRows) return bad(name(), "expected fewer than 2^31 columns, found " + std::to_string(width));
  out.table.resize(static_cast<size_t>(width));
  for (size_t i = 0; i < out.table.size(); ++i)
    out.table[i] = {0, static_cast<uint32_t>(i)};
  out.width = rows();
  return out;
}

Result<WeightRows> WeightRows::addOne() const {
  WeightRows out = *this;
  for (Leaf &leaf : out.leaves) {
    if (!isFloatStorage(resultStorage) || leaf.plusOne || leaf.rounded)
      return bad(leaf.name, "one can be added once, to an unquantized weight");
    leaf.plusOne = true;
  }
  out.resultStorage = StorageType::f32;
  return out;
}

Result<WeightRows> WeightRows::round(StorageType storage) const {
  WeightRows out = *this;
  for (Leaf &leaf : out.leaves) {
    if (leaf.rounded) return bad(leaf.name, "a weight can be rounded once");
    leaf.rounded = true;
  }
  // Whether the target can be made at all is known now, not after minutes of packing.
  std::vector<float> zeros(static_cast<size_t>(std::min<int64_t>(width, 256)));
  std::vector<uint8_t> bytes(static_cast<size_t>(rowBytes(storage, 256)) + 4);
  if (!rowFits(storage, width))
    return bad(name(), std::string("expected rows of a multiple of ") +
                           std::to_string(storageInfo(storage).blockElements) + " elements for " +
                           storageInfo(storage).name + ", found " + std::to_string(width));
  LATHE_RETURN_IF_ERROR(encodeRow(storage, zeros, bytes.data()));
  out.resultStorage = storage;
  return out;
}

std::vector<int64_t> WeightRows::shape() const {
  return vector ? std::vector<int64_t>{rows()} : std::vector<int64_t>{rows(), width};
}

Status WeightRows::leafRow(const Leaf &leaf, int64_t row, std::span<float> out) const {
  if (leaf.matrix) {
    std::vector<uint8_t> stored(static_cast<size_t>(rowBytes(leaf.storage, leaf.columns)));
    LATHE_RETURN_IF_ERROR(leaf.matrix->makeRow(row, stored.data()));
    dequantizeRow(leaf.storage, stored.data(), out);
  } else if (leaf.transposed) {
    auto bytes = static_cast<size_t>(storageInfo(leaf.storage).blockBytes);
    const uint8_t *at = leaf.data + static_cast<size_t>(row) * bytes;
    for (size_t k = 0; k < out.size(); ++k, at += static_cast<size_t>(leaf.columns) * bytes)
      dequantizeRow(leaf.storage, at, out.subspan(k, 1));
  } else {
    dequantizeRow(leaf.storage, leaf.data + row * rowBytes(leaf.storage, leaf.columns) + leaf.firstColumn * storageInfo(leaf.storage).blockBytes, out); // columns are taken of floats only
  }
  if (leaf.plusOne)
    for (float &x : out)
      x = 1.0f + x;
  return Status();
}

Status WeightRows::readRow(int64_t row, std::span<float> out) const {
  Row at = table[static_cast<size_t>(row)];
  if (at.leaf == zeroRow) {
    std::fill(out.begin(), out.end(), 0.0f);
    return Status();
  }
  const Leaf &leaf = leaves[at.leaf];
  LATHE_RETURN_IF_ERROR(leafRow(leaf, at.row, out));
  if (!leaf.rounded) return Status();
  std::vector<uint8_t> bytes(static_cast<size_t>(rowBytes(resultStorage, width)));
  Status status = encodeRow(resultStorage, out, bytes.data());
  if (!status.ok()) return std::move(status).at("tensor " + quoteName(leaf.name) + ", row " + std::to_string(at.row));
  dequantizeRow(resultStorage, bytes.data(), out);
  return Status();
}

Result<std::vector<float>> WeightRows::readAll() const {
  std::vector<float> out(static_cast<size_t>(rows() * width));
  for (int64_t row = 0; row < rows(); ++row)
    LATHE_RETURN_IF_ERROR(
        readRow(row, std::span(out).subspan(static_cast<size_t>(row * width), static_cast<size_t>(width))));
  LATHE_RETURN_IF_ERROR(check());
  return out;
}

Result<const uint8_t *> WeightRows::storedRow(int64_t row, std::vector<uint8_t> &scratch) const {
  Row at = table[static_cast<size_t>(row)];
  if (at.leaf == zeroRow) return static_cast<const uint8_t *>(nullptr);
  const Leaf &leaf = leaves[at.leaf];
  if (leaf.matrix && leaf.storage == resultStorage) {
    scratch.resize(static_cast<size_t>(rowBytes(resultStorage, width)));
    LATHE_RETURN_IF_ERROR(leaf.matrix->makeRow(at.row, scratch.data()));
    return static_cast<const uint8_t *>(scratch.data());
  }
  if (leaf.storage == resultStorage && !leaf.transposed && !leaf.plusOne)
    return leaf.data + at.row * rowBytes(leaf.storage, leaf.columns) + leaf.firstColumn * storageInfo(leaf.storage).blockBytes;
  std::vector<float> values(static_cast<size_t>(width));
  LATHE_RETURN_IF_ERROR(leafRow(leaf, at.row, values));
  scratch.resize(static_cast<size_t>(rowBytes(resultStorage, width)));
  Status status = encodeRow(resultStorage, values, scratch.data());
  if (!status.ok()) return std::move(status).at("tensor " + quoteName(leaf.name) + ", row " + std::to_string(at.row));
  return static_cast<const uint8_t *>(scratch.data());
}

Status WeightRows::check() const {
  for (const Leaf &leaf : leaves) {
    if (leaf.file) LATHE_RETURN_IF_ERROR(leaf.file->check());
    if (leaf.matrix)
      for (const auto &file : leaf.matrix->files())
        if (file) LATHE_RETURN_IF_ERROR(file->check());
  }
  return Status();
}

void WeightRows::drop() const {
  for (const Leaf &leaf : leaves)
    if (leaf.file)
      leaf.file->drop(static_cast<size_t>(leaf.data - leaf.file->bytes().data()),
                      static_cast<size_t>(leaf.rows * rowBytes(leaf.storage, leaf.columns)));
}

} // namespace lathe
