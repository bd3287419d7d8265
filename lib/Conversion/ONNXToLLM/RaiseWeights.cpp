//===- RaiseWeights.cpp - weights of a graph by reference -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Raiser.h"
#include "lathe/weights/Half.h"
#include "lathe/weights/Storage.h"
#include "lathe/weights/WeightRows.h"
#include <cmath>

using namespace mlir;

namespace lathe::raise {

/// Whether two weights hold the same numbers (a head that is a transposed copy of the embedding).
bool Raiser::sameMatrix(const Weight &a, const Weight &b) {
  if (a.rows != b.rows || a.columns != b.columns || a.bits || b.bits || a.qdq || b.qdq || a.end || b.end) return false;
  onnx::ParamOp p = a.param, q = b.param;
  auto pt = cast<RankedTensorType>(p.getType()), qt = cast<RankedTensorType>(q.getType());
  if (pt.getElementType() != qt.getElementType() || !pt.getElementType().isF32()) return false;
  auto bytesOf = [&](onnx::ParamOp param, std::optional<MappedFile> &file) -> const float * {
    auto where = dyn_cast<onnx::FileAttr>(param.getValue());
    if (!where) return nullptr;
    auto opened = MappedFile::open(where.getPath().str());
    if (!opened.ok()) return nullptr;
    file = *std::move(opened);
    auto bytes = file->bytes();
    auto offset = static_cast<uint64_t>(where.getOffset());
    if (offset > bytes.size() || static_cast<uint64_t>(where.getBytes()) > bytes.size() - offset) return nullptr;
    return reinterpret_cast<const float *>(bytes.data() + offset);
  };
  std::optional<MappedFile> first, second;
  const float *x = bytesOf(p, first), *y = bytesOf(q, second);
  if (!x || !y) return false;
  auto equal = [](const float *left, const float *right) { return std::memcmp(left, right, sizeof(float)) == 0; };
  // A few rows first: most different weights differ there.
  auto row = [&](int64_t r) {
    for (int64_t k = 0; k < a.columns; ++k) {
      int64_t i = a.transpose ? k * a.rows + r : r * a.columns + k, j = b.transpose ? k * b.rows + r : r * b.columns + k;
      if (!equal(x + i, y + j)) return false;
    }
    return true;
  };
  for (int64_t r = 0; r < a.rows; ++r)
    if (!row(r)) return false;
  return first->check().ok() && second->check().ok();
}

/// The storage types hold f16 scales, and |most| times a scale as a minimum: whether they hold |scales|, or |numbers| where there is no such param, but for small ones
/// beside larger ones of the same matrix. Notes what that changes. Nothing, with why, for a file that cannot be read.
std::optional<bool> Raiser::fitHalf(onnx::ParamOp scales, ArrayRef<double> numbers, double most) {
  double largest = 0, off = 0, change = 0;
  auto look = [&](ArrayRef<double> values) {
    for (double s : values) {
      if (!s) continue;
      double half = halfToFloat(floatToHalf(static_cast<float>(s)));
      largest = std::max(largest, std::fabs(s));
      off = std::max(off, std::fabs(half - s));
      change = std::max(change, std::fabs(half / s - 1));
    }
  };
  if (!scales) look(numbers);
  else if (Status status = params.visit(scales, [&](const Known &part) { look(part.f); }); !status.ok()) {
    why = status.message();
    return std::nullopt;
  }
  if (off > std::ldexp(largest, -11) || largest * most > 65504) return false;
  scaleChange = std::max(scaleChange, change);
  return true;
}

/// Where |param| is stored raw: sets |path| and |offset|. False if it is not in a file.
static bool place(onnx::ParamOp param, std::string &path, int64_t &offset) {
  auto file = dyn_cast<onnx::FileAttr>(param.getValue());
  if (!file) return false;
  path = file.getPath().str();
  offset = file.getOffset();
  return true;
}

/// |ref| as the rows that |weight| takes of a quantized matrix, in their order.
static WeightRef matrixOf(const Weight &weight, WeightRef ref) {
  ref.tensor.shape = {weight.rows, weight.columns};
  ref.begin = weight.begin;
  ref.end = weight.end;
  ref.unropeHeads = weight.unropeHeads;
  ref.shape = {weight.end ? weight.end - weight.begin : weight.rows, weight.columns};
  return ref;
}

/// A weight behind DequantizeLinear, or one in blocks that is stored as such a one would be: |weight| says where codes lie, not how they are packed.
std::optional<WeightRef> Raiser::dequantized(const Weight &weight, WeightRef ref) {
  onnx::ParamOp codes = weight.param, scales = weight.scales, zeros = weight.zeros;
  auto type = cast<RankedTensorType>(codes.getType());
  TensorRef::QDQ &qdq = ref.tensor.qdq;
  onnx::DataType code = onnx::dataType(type.getElementType());
  if (weight.bits == 4) code = DataType::uint4; // two in a byte
  qdq.code = code == DataType::int8 ? "int8" : code == DataType::uint8 ? "uint8" : code == DataType::int4 ? "int4" : "uint4";
  int bits = code == DataType::int8 || code == DataType::uint8 ? 8 : 4;
  qdq.transposed = weight.transpose;
  std::copy(weight.qdqBlock, weight.qdqBlock + 2, qdq.block);
  qdq.scaleValues.assign(weight.scaleNumbers.begin(), weight.scaleNumbers.end());
  qdq.zeroValues.assign(weight.zeroNumbers.begin(), weight.zeroNumbers.end());
  bool good = place(codes, ref.tensor.path, ref.tensor.offset) && (!scales || place(scales, qdq.scales, qdq.scalesOffset)) && (!zeros || place(zeros, qdq.zeros, qdq.zerosOffset));
  if (!good || weight.rows * weight.columns != type.getNumElements() * (weight.bits == 4 ? 2 : 1)) {
    why = "weight '" + ref.tensor.name + "' behind DequantizeLinear is not a whole matrix that is stored as raw data";
    return std::nullopt;
  }
  if (scales) {
    Type scaleType = cast<RankedTensorType>(scales.getType()).getElementType();
    assert((scaleType.isF32() || scaleType.isF16() || scaleType.isBF16()) && "GraphRun refuses scales of other types");
    qdq.scaleStorage = scaleType.isF16() ? StorageType::f16 : scaleType.isBF16() ? StorageType::bf16 : StorageType::f32;
  }
  int64_t middle = qdq.code == "uint8" ? 128 : qdq.code == "uint4" ? 8 : 0;
  bool centred = !zeros && qdq.zeroValues == std::vector<int64_t>{middle};
  ref.tensor.storage = qdqStorage(bits, weight.columns, qdq.block[qdq.transposed ? 0 : 1], !centred);
  const char *lacks = ref.tensor.storage == StorageType::f32 ? "has no storage type with its blocks and zero points" : nullptr;
  if (!lacks && ref.tensor.storage != StorageType::int8) {
    auto fits = fitHalf(scales, weight.scaleNumbers, centred ? 1 : 15);
    if (!fits) return std::nullopt;
    if (!*fits) lacks = "has scales that f16 does not hold";
  }
  if (lacks) {
    ref.tensor.storage = StorageType::f32;
    if (!widened++) remarks.push_back("weight '" + ref.tensor.name + "' of " + std::to_string(bits) + " bits " + lacks + ": its values are stored as f32");
  }
  return matrixOf(weight, std::move(ref));
}

/// Codes of MatMulNBits in blocks that no storage type has: as those of DequantizeLinear where nothing is padded, so that they lie in the same order.
static std::optional<Weight> asDequantized(Weight weight) {
  int64_t blocks = (weight.columns + weight.block - 1) / weight.block;
  bool even = weight.bits == 8 || blocks % 2 == 0;
  if (weight.columns != blocks * weight.block || weight.columns % 2 || (weight.zeros && !even)) return std::nullopt;
  weight.qdqBlock[0] = 1;
  weight.qdqBlock[1] = weight.block;
  if (!weight.zeros && weight.zeroNumbers.empty()) weight.zeroNumbers = {weight.bits == 8 ? 128.0 : 8.0};
  return weight;
}

/// A block-quantized weight.
std::optional<WeightRef> Raiser::blocks(const Weight &weight, WeightRef ref) {
  auto storage = nbitsStorage(static_cast<int>(weight.bits), weight.columns, weight.block, static_cast<bool>(const_cast<onnx::ParamOp &>(weight.zeros)));
  if (!storage || !weight.zeroNumbers.empty())
    if (auto other = asDequantized(weight)) return dequantized(*other, std::move(ref));
  TensorRef::Blocks &blocks = ref.tensor.blocks;
  blocks.bits = static_cast<int>(weight.bits);
  blocks.block = weight.block;
  onnx::ParamOp scales = weight.scales, zeros = weight.zeros;
  Type scaleType = cast<RankedTensorType>(scales.getType()).getElementType();
  blocks.scaleStorage = scaleType.isF16() ? StorageType::f16 : scaleType.isBF16() ? StorageType::bf16 : StorageType::f32;
  bool good = storage && weight.zeroNumbers.empty() && (scaleType.isF32() || scaleType.isF16() || scaleType.isBF16()) && place(weight.param, ref.tensor.path, ref.tensor.offset) &&
              place(scales, blocks.scales, blocks.scalesOffset) && (!zeros || place(zeros, blocks.zeros, blocks.zerosOffset));
  if (!good) {
    why = "weight '" + ref.tensor.name + "' of " + std::to_string(weight.bits) + " bits in blocks of " + std::to_string(weight.block) + " along " + std::to_string(weight.columns) +
          " columns has no storage type, or is not stored as raw data";
    return std::nullopt;
  }
  auto fits = fitHalf(scales, {}, zeros ? 15 : 1);
  if (!fits) return std::nullopt;
  if (!*fits) {
    WeightRef plain;
    plain.tensor.name = ref.tensor.name;
    if (auto other = asDequantized(weight)) return dequantized(*other, std::move(plain));
    why = "weight '" + ref.tensor.name + "' has scales that f16 does not hold, and padded rows or zero points";
    return std::nullopt;
  }
  ref.tensor.storage = *storage;
  return matrixOf(weight, std::move(ref));
}

std::optional<WeightRef> Raiser::reference(const Weight &weight) {
  onnx::ParamOp param = weight.param;
  auto type = cast<RankedTensorType>(param.getType());
  WeightRef ref;
  ref.tensor.name = param.getSymName().str();
  if (weight.bits) return blocks(weight, std::move(ref));
  if (weight.qdq) return dequantized(weight, std::move(ref));
  Type element = type.getElementType();
  if (element.isF32()) ref.tensor.storage = StorageType::f32;
  else if (element.isF16()) ref.tensor.storage = StorageType::f16;
  else if (element.isBF16()) ref.tensor.storage = StorageType::bf16;
  else {
    why = "weight '" + ref.tensor.name + "' has an element type that is no storage type";
    return std::nullopt;
  }
  if (auto file = dyn_cast<onnx::FileAttr>(param.getValue())) {
    ref.tensor.path = file.getPath().str();
    ref.tensor.offset = file.getOffset();
  } else {
    auto values = params.read(param);
    if (!values.ok() || !element.isF32()) {
      why = "weight '" + ref.tensor.name + "' is not stored as raw data";
      return std::nullopt;
    }
    ref.tensor.values.assign((*values)->f.begin(), (*values)->f.end());
  }
  if (!weight.columns) ref.tensor.shape = {type.getNumElements()};
  else ref.tensor.shape = weight.transpose ? std::vector<int64_t>{weight.columns, weight.rows} : std::vector<int64_t>{weight.rows, weight.columns};
  if (elementsOf(ref.tensor.shape) != type.getNumElements()) {
    why = "weight '" + ref.tensor.name + "' is used in another shape than it has";
    return std::nullopt;
  }
  ref.transpose = weight.transpose;
  ref.begin = weight.begin;
  ref.end = weight.end;
  ref.plusOne = weight.plusOne;
  ref.unropeHeads = weight.unropeHeads;
  int64_t rows = weight.end ? weight.end - weight.begin : weight.rows;
  ref.shape = weight.columns ? std::vector<int64_t>{rows, weight.columns} : std::vector<int64_t>{rows};
  return ref;
}

} // namespace lathe::raise
