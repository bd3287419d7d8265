//===- Known.h - values that a graph computes without its weights ---*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Raising runs a graph for chosen sizes. Shapes, positions, masks and rotary tables then are numbers, whatever chain of nodes an
// exporter wrote for them, and this is how they are computed.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/ONNX/ONNX.h"
#include "lathe/ONNX/Numbers.h"
#include "lathe/base/MappedFile.h"
#include "lathe/base/Status.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <map>
#include <memory>

namespace lathe::raise {

using onnx::DataType;
using onnx::NodeOp;
using Shape = llvm::SmallVector<int64_t, 4>;

/// No value of a graph has more elements, nor a larger size: what a damaged file says of sizes is added up and multiplied.
constexpr int64_t mostElements = int64_t(1) << 48;
/// No evaluation makes a tensor of more elements.
constexpr int64_t maxKnownElements = int64_t(1) << 24;
/// What a run holds at a time of values that it computed (8 bytes an element), and what a ParamReader keeps of weights that it read.
constexpr int64_t maxHeldElements = int64_t(1) << 27;

/// How many elements a tensor of |shape| has: 2^63 - 1 if there are more.
int64_t elementsOf(llvm::ArrayRef<int64_t> shape);

/// A tensor of numbers. Integers and bools are in |i|, everything else in |f|, rounded to the type.
struct Known {
  DataType type = DataType::undefined;
  Shape shape;
  std::vector<double> f;
  std::vector<int64_t> i;
  /// For a value of cosines or sines that was only moved or scaled since: the angles, moved alike.
  std::shared_ptr<const Known> angles;

  static Known make(DataType type, llvm::ArrayRef<int64_t> shape);
  static Known integers(llvm::ArrayRef<int64_t> values, bool scalar = false);
  bool isFloat() const { return onnx::isFloat(type); }
  int64_t elements() const { return elementsOf(shape); }
  double number(int64_t k) const { return isFloat() ? f[k] : static_cast<double>(i[k]); }
  void set(int64_t k, double value);
  /// All elements equal.
  bool uniform() const;
};

/// Decodes little-endian |bytes|, packed below 8 bits.
Known decode(DataType type, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<uint8_t> bytes);

/// Files of params, opened once.
class ParamReader {
public:
  /// The values of |param|; unsupported when it has more than |limit| elements.
  Result<std::shared_ptr<const Known>> read(onnx::ParamOp param, int64_t limit = maxKnownElements);
  /// Calls |take| with the values of |param| in order, however many, in parts of |part| at most (a multiple of 8). Keeps none of them. invalidArgument when the file is too short.
  Status visit(onnx::ParamOp param, llvm::function_ref<void(const Known &)> take, int64_t part = int64_t(1) << 20);

private:
  /// The bytes of |param|, which has a file, and that file.
  Result<std::pair<llvm::ArrayRef<uint8_t>, const MappedFile *>> mapped(onnx::ParamOp param);
  std::shared_ptr<const Known> keep(mlir::Operation *param, std::shared_ptr<const Known> known);
  std::map<std::string, MappedFile> files;
  std::map<mlir::Operation *, std::shared_ptr<const Known>> cache; ///< of maxHeldElements at most
  int64_t kept = 0;
};
Known fromElements(mlir::ElementsAttr value);

onnx::HostTensor toHost(const Known &value);
Known fromHost(const onnx::HostTensor &tensor);

/// Runs a node on known inputs (null: absent) by the registry's hooks. Unsupported for an operator without one, and for results of more than
/// maxKnownElements.
Result<std::vector<Known>> evaluate(NodeOp op, llvm::ArrayRef<const Known *> inputs);

using Inputs = llvm::ArrayRef<const Known *>;

/// Helpers that layouts need too. Axes may be negative; failure when out of range.
mlir::FailureOr<int64_t> axisOf(int64_t axis, int64_t rank);
/// The shape that Reshape gives to |from|.
mlir::FailureOr<Shape> reshapedShape(NodeOp op, llvm::ArrayRef<int64_t> from, const Known &target);
/// Integers of an input, or of an attribute in older operator sets; empty when neither is there.
Shape integersOf(NodeOp op, Inputs inputs, unsigned input, llvm::StringRef attribute);
/// The axes that a Slice cuts, and what it takes of each.
mlir::FailureOr<llvm::SmallVector<std::pair<int64_t, onnx::AxisRange>>> sliceRanges(NodeOp op, llvm::ArrayRef<int64_t> shape, Inputs inputs);
/// Sizes of Split's outputs.
mlir::FailureOr<Shape> splitSizes(NodeOp op, int64_t size, Inputs inputs);

} // namespace lathe::raise
