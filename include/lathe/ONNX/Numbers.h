//===- Numbers.h - number formats, places and ranges of ONNX --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What an element's bits mean, where an element of a tensor that is broadcast lies, and what Shape and Slice take of an axis: said once for the importer, the
// interpreter, raising and general code. All functions are thread-safe.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/ONNX/Hooks.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <span>

namespace lathe::onnx {

// Formats.
/// A format with an exponent, down to float4e2m1 and float8e8m0.
bool isFloat(DataType type);
/// uint2 to uint64; not bool.
bool isUnsigned(DataType type);
/// Bytes of an element in memory: at least one.
int64_t elementBytes(DataType type);
/// ONNX Cast of a number to a float type: to nearest, ties to even (float8e8m0: up to a power of two). |saturate|: 8-bit formats take the largest number of
/// their sign for what is beyond it, otherwise infinity or NaN.
double castTo(DataType type, double x, bool saturate);
inline double roundTo(DataType type, double x) { return castTo(type, x, true); }
/// The low bits of |n| as an integer of |type|; of bool, whether it is not 0.
int64_t wrapTo(DataType type, int64_t n);

// Elements.
/// The bits of element |k| of a type of |bits| (2 or 4), which lie packed in |bytes| from the low bits up.
inline uint8_t packedBits(const uint8_t *bytes, size_t k, int bits) {
  return static_cast<uint8_t>(bytes[k * static_cast<size_t>(bits) / 8] >> (k * static_cast<size_t>(bits) % 8) & ((1 << bits) - 1));
}
/// |count| packed elements of a type below 8 bits in a byte each, as a HostTensor has them: signed ones with their sign.
std::vector<uint8_t> unpacked(DataType type, const uint8_t *bytes, size_t count);
/// |count| elements as a HostTensor has them to numbers: of float types to |f|, of all others to |i| (uint64 by its bits, bool 0 or 1). |bytes| has to be as long.
void load(DataType type, std::span<const uint8_t> bytes, size_t count, std::vector<double> &f, std::vector<int64_t> &i);
/// The reverse, of all of |f| or |i|. Numbers that are not of |type| are rounded to nearest.
std::vector<uint8_t> stored(DataType type, std::span<const double> f, std::span<const int64_t> i);

// Places.
/// Calls fn(index) for all indices of |shape|, the last fastest; not at all when a size is 0.
void forEach(llvm::ArrayRef<int64_t> shape, llvm::function_ref<void(const std::vector<int64_t> &index)> fn);
/// Row-major place of |index| in |shape|.
int64_t placeOf(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> index);
/// The same for a tensor of |shape| that is broadcast to the index's rank: aligned on the right, axes of one element repeated.
int64_t broadcastPlace(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> index);
/// How far each of |rank| axes moves in a tensor of |shape| that is broadcast to them: 0 where it is repeated.
llvm::SmallVector<int64_t, 4> broadcastStrides(llvm::ArrayRef<int64_t> shape, size_t rank);
/// What tensors of |a| and |b| are broadcast to; failure when they do not fit.
mlir::FailureOr<llvm::SmallVector<int64_t, 4>> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

/// Axes that a value may have, as a stored tensor may: what is made of a shape takes memory for each of them.
constexpr int64_t mostAxes = 64;

// Ranges.
/// Elements begin, begin + step, ... of an axis, |count| of them.
struct AxisRange {
  int64_t begin, end, step, count;
};
/// What Slice takes of an axis of |size|: negative places count from the end, places outside are moved to its ends. |step| is not 0. Backwards, |begin| is at most
/// the last element, and -1 on an empty axis; |end| may be -1.
AxisRange rangeOf(int64_t start, int64_t end, int64_t step, int64_t size);
/// Which sizes Shape gives, of |rank|: its attributes start and end. begin is at most end.
inline AxisRange shapeRange(int64_t start, int64_t end, int64_t rank) {
  AxisRange range = rangeOf(start, end, 1, rank);
  range.end = range.begin + range.count;
  return range;
}

} // namespace lathe::onnx
