//===- WeightRows.h - a weight as rows of file tensors -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The plain form of a weight expression (dialects/LLM/LLMAttrs.td): for every row of the result, which row
// of which tensor it is. Slicing, joining and permuting only rearrange this table; bytes are read when a row is
// asked for. A vector of n elements (norm, bias) is n rows of one column, so that all operations work on it.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/MappedFile.h"
#include "lathe/base/Status.h"
#include "lathe/weights/Storage.h"
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lathe {

/// A matrix of codes, scales and zero points in tensors of their own, of which rows in one of our storage types are made. Const members are
/// thread-safe.
struct QuantizedMatrix {
  virtual ~QuantizedMatrix() = default;
  std::string name;
  int64_t rows = 0, columns = 0;
  /// What makeRow() makes; call check() before.
  virtual StorageType storage() const = 0;
  /// invalidArgument (names the tensor) when a part does not lie inside its file or no storage type fits.
  virtual Status check() const = 0;
  /// |out| has rowBytes bytes. invalidArgument for a scale that the storage cannot hold.
  virtual Status makeRow(int64_t row, uint8_t *out) const = 0;
  virtual std::vector<std::shared_ptr<const MappedFile>> files() const = 0;
};

/// A block-quantized matrix in ONNX Runtime's layout (MatMulNBits in its ContribOperators.md): for each row and block of columns, codes with the first
/// column in the lowest bits, one scale, and optionally a 4-bit zero point (two a byte, rows padded to bytes); without one it is half of the codes' range.
struct NBitsMatrix : QuantizedMatrix {
  int64_t block = 32;
  int bits = 4;
  StorageType scaleStorage = StorageType::f32; ///< f32, f16 or bf16
  std::shared_ptr<const MappedFile> codes, scales, zeros; ///< zeros: null when there are none
  int64_t codesOffset = 0, scalesOffset = 0, zerosOffset = 0;

  int64_t blocks() const { return (columns + block - 1) / block; }
  StorageType storage() const override { return *nbitsStorage(bits, columns, block, zeros != nullptr); }
  Status check() const override;
  /// Scales, and minima -zero * scale, rounded to f16.
  Status makeRow(int64_t row, uint8_t *out) const override;
  std::vector<std::shared_ptr<const MappedFile>> files() const override { return {codes, scales, zeros}; }
};

/// A matrix behind ONNX's DequantizeLinear: value = (code - zero) * scale. A tensor [shape[0], shape[1]] of codes, row-major, 4-bit ones two a byte
/// over the whole tensor, the first in the low bits; scales and zero points [ceil(shape[0] / block[0]), ceil(shape[1] / block[1])], so that one of each
/// for all, for each row or column, and for each block of either are the same thing.
struct QDQMatrix : QuantizedMatrix {
  enum class Code { int8, uint8, int4, uint4 };
  Code code = Code::int8;
  bool transposed = false;   ///< rows of the result are columns of the codes
  int64_t block[2] = {1, 1}; ///< of the axes of the codes
  StorageType scaleStorage = StorageType::f32; ///< f32, f16 or bf16
  StorageType target = StorageType::f32;       ///< one that qdqStorage gives, or f32
  std::shared_ptr<const MappedFile> codes, scales, zeros; ///< scales, zeros: null when the values below are them
  int64_t codesOffset = 0, scalesOffset = 0, zerosOffset = 0;
  std::vector<float> scaleValues;
  std::vector<int64_t> zeroValues; ///< one for all, or one a scale

  int bits() const { return code == Code::int8 || code == Code::uint8 ? 8 : 4; }
  StorageType storage() const override { return target; }
  Status check() const override;
  /// f32 and int8 hold the values as they are; the others' scales and minima are rounded to f16.
  Status makeRow(int64_t row, uint8_t *out) const override;
  std::vector<std::shared_ptr<const MappedFile>> files() const override { return {codes, scales, zeros}; }

private:
  int64_t shape(int axis) const { return (axis == 0) == transposed ? columns : rows; }
  /// Nothing is added to a block, which may be any positive number.
  int64_t scaleCount(int axis) const { return (shape(axis) - 1) / block[axis] + 1; }
  /// Element |at| of a tensor of codes that begins at |data|.
  int64_t element(const uint8_t *data, int64_t at) const;
  int64_t codeAt(int64_t row, int64_t column) const;
  int64_t scaleAt(int64_t row, int64_t column) const;
  float scaleOf(int64_t index) const;
  int64_t zeroOf(int64_t index) const;
};
/// The storage of |columns| columns of |bits| bits of which |block| share a scale (at least |columns|: a scale for the row); |zeros|: zero points that
/// are not in the middle of the codes. f32, which holds every value as it is, when no other does.
StorageType qdqStorage(int bits, int64_t columns, int64_t block, bool zeros);

/// A matrix of e4m3 codes, row-major, whose scales are a tensor of their own: one for all rows, or one a row. Value = code * scale.
struct ScaledMatrix : QuantizedMatrix {
  bool perRow = false;
  StorageType scaleStorage = StorageType::f32; ///< f32, f16 or bf16
  std::shared_ptr<const MappedFile> codes, scales;
  int64_t codesOffset = 0, scalesOffset = 0;

  StorageType storage() const override { return StorageType::e4m3; }
  Status check() const override;
  /// Exact. invalidArgument for a code of NaN and a scale that is no number: names the tensor, the row and the column.
  Status makeRow(int64_t row, uint8_t *out) const override;
  std::vector<std::shared_ptr<const MappedFile>> files() const override { return {codes, scales}; }
};

/// A value type; copies share the files. Const members are safe to call from several threads.
class WeightRows {
public:
  /// A tensor in |file|; |shape| has 1 or 2 positive sizes, innermost last. invalidArgument (names the
  /// tensor) if it does not lie inside the file, or its rows are not whole blocks.
  static Result<WeightRows> fromFile(std::shared_ptr<const MappedFile> file, std::string name, int64_t offset,
                                     StorageType storage, std::span<const int64_t> shape);
  /// check()s |matrix|.
  static Result<WeightRows> fromQuantized(std::shared_ptr<const QuantizedMatrix> matrix);
  /// Constants.
  static Result<WeightRows> fromValues(std::span<const float> values, std::span<const int64_t> shape);

  /// Rows of |parts| one after the other: same storage, width and rank.
  static Result<WeightRows> concat(std::span<const WeightRows> parts);
  /// |block| rows of |first|, |block| of |second|, and so on; a last short block is filled with zero rows.
  static Result<WeightRows> interleave(const WeightRows &first, const WeightRows &second, int64_t block);
  /// Rows begin .. end - 1.
  Result<WeightRows> slice(int64_t begin, int64_t end) const;
  /// GGUF's interleaved rotation pairs to halves, in each of |heads| heads.
  Result<WeightRows> unrope(int64_t heads) const;
  /// Columns begin .. end - 1 of an unquantized matrix that is neither transposed nor rounded.
  Result<WeightRows> columnsOf(int64_t begin, int64_t end) const;
  /// Of one whole unquantized matrix.
  Result<WeightRows> transpose() const;
  /// 1 + w in float32, of an unquantized weight.
  Result<WeightRows> addOne() const;
  /// Rounded to nearest into |storage| (see encodeRow for which); once.
  Result<WeightRows> round(StorageType storage) const;

  StorageType storage() const { return resultStorage; }
  int64_t rows() const { return static_cast<int64_t>(table.size()); }
  int64_t columns() const { return width; }
  bool isVector() const { return vector; }
  /// Elements of a matrix's shape: [rows, columns], or [rows] of a vector.
  std::vector<int64_t> shape() const;

  /// Exact values of one row, as the storage defines them.
  Status readRow(int64_t row, std::span<float> out) const;
  /// The whole weight, row by row.
  Result<std::vector<float>> readAll() const;
  /// Bytes of one row in storage(): in the file where they can be used as they are, else made in
  /// |scratch|. nullptr for a zero row.
  Result<const uint8_t *> storedRow(int64_t row, std::vector<uint8_t> &scratch) const;
  /// dataLoss when a file changed size while it was read.
  Status check() const;
  /// Tells the system that the tensors' bytes will not be read again soon.
  void drop() const;

private:
  struct Leaf {
    std::string name;
    StorageType storage;
    const uint8_t *data;
    int64_t rows, columns; ///< of the tensor as stored
    bool transposed = false, plusOne = false, rounded = false;
    int64_t firstColumn = 0; ///< of those that are taken
    std::shared_ptr<const MappedFile> file = nullptr;
    std::shared_ptr<const std::vector<uint8_t>> owned = nullptr;
    std::shared_ptr<const QuantizedMatrix> matrix = nullptr; ///< rows are made, |data| is null
  };
  struct Row {
    uint32_t leaf; ///< zeroRow: a row of zeros
    uint32_t row;
  };
  static constexpr uint32_t zeroRow = 0xffffffff;
  static Result<WeightRows> fromLeaf(Leaf leaf, std::span<const int64_t> shape);
  void append(const WeightRows &other, int64_t begin, int64_t end);
  Status leafRow(const Leaf &leaf, int64_t row, std::span<float> out) const;
  std::string name() const { return leaves.empty() ? "weight" : leaves[0].name; }

  StorageType resultStorage = StorageType::f32;
  int64_t width = 0;
  bool vector = false;
  std::vector<Leaf> leaves;
  std::vector<Row> table;
};

} // namespace lathe
