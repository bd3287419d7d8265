//===- Evaluate.cpp - operators on numbers, by the interpreter ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What an operator computes is said once, by the hooks of the registry (lib/Interpreter/ONNX). Beside that, raising follows the angles behind
// cosines and sines.
//===----------------------------------------------------------------------===//
#include "Known.h"
#include "lathe/ONNX/Hooks.h"
#include <numeric>

using namespace mlir;

namespace lathe::raise {

FailureOr<int64_t> axisOf(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return failure();
  return axis;
}

Shape integersOf(NodeOp op, Inputs inputs, unsigned input, StringRef attribute) {
  if (input < inputs.size() && inputs[input]) return Shape(inputs[input]->i.begin(), inputs[input]->i.end());
  auto list = op.getInts(attribute);
  return Shape(list.begin(), list.end());
}

FailureOr<Shape> reshapedShape(NodeOp op, ArrayRef<int64_t> from, const Known &target) {
  Shape out(target.i.begin(), target.i.end());
  bool zero = op.getInt("allowzero", 0);
  int64_t known = 1, inferred = -1, all = elementsOf(from);
  for (auto [k, size] : llvm::enumerate(out)) {
    if (size == 0 && !zero) {
      if (k >= from.size()) return failure();
      size = from[k];
    }
    if (size < 0) {
      if (size != -1 || inferred >= 0) return failure();
      inferred = static_cast<int64_t>(k);
    } else if (__builtin_mul_overflow(known, size, &known)) {
      return failure();
    }
  }
  if (inferred >= 0) {
    if (known == 0 || all % known) return failure();
    out[inferred] = all / known;
  } else if (known != all) {
    return failure();
  }
  return out;
}

FailureOr<SmallVector<std::pair<int64_t, onnx::AxisRange>>> sliceRanges(NodeOp op, ArrayRef<int64_t> shape, Inputs inputs) {
  Shape starts = integersOf(op, inputs, 1, "starts"), ends = integersOf(op, inputs, 2, "ends");
  Shape axes = integersOf(op, inputs, 3, "axes"), steps = integersOf(op, inputs, 4, "");
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) return failure();
  SmallVector<std::pair<int64_t, onnx::AxisRange>> out;
  for (size_t k = 0; k < starts.size(); ++k) {
    auto axis = axisOf(axes[k], static_cast<int64_t>(shape.size()));
    if (failed(axis) || steps[k] == 0) return failure();
    out.push_back({*axis, onnx::rangeOf(starts[k], ends[k], steps[k], shape[*axis])});
  }
  return out;
}

FailureOr<Shape> splitSizes(NodeOp op, int64_t size, Inputs inputs) {
  Shape sizes = integersOf(op, inputs, 1, "split");
  auto parts = static_cast<int64_t>(op.getOutputs().size());
  if (sizes.empty()) {
    int64_t each = (size + parts - 1) / parts;
    for (int64_t k = 0; k < parts; ++k)
      sizes.push_back(std::min(each, size - k * each));
  }
  int64_t sum = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > size - sum) return failure();
    sum += part;
  }
  if (sum != size || static_cast<int64_t>(sizes.size()) != parts) return failure();
  return sizes;
}

static Result<std::vector<Known>> run(NodeOp op, Inputs inputs) {
  onnx::Hooks hooks = onnx::findHooks(op.getDomain(), op.getOpType());
  if (!hooks.evaluate) return Status(StatusCode::unsupported, "not an operator that raising runs");
  std::vector<onnx::HostTensor> tensors(inputs.size()), results(op.getNumResults());
  SmallVector<const onnx::HostTensor *> pointers;
  for (auto [tensor, in] : llvm::zip(tensors, inputs)) {
    if (in) tensor = toHost(*in);
    pointers.push_back(in ? &tensor : nullptr);
  }
  LATHE_RETURN_IF_ERROR(hooks.evaluate(op, pointers, results, maxKnownElements));
  std::vector<Known> out;
  for (const onnx::HostTensor &result : results)
    out.push_back(fromHost(result));
  return out;
}

static bool keepsAngles(StringRef name) {
  return llvm::is_contained({"Identity", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Transpose", "Expand", "Tile", "Slice", "Split", "Gather"}, name);
}

Result<std::vector<Known>> evaluate(NodeOp op, Inputs inputs) {
  for (unsigned k = 0; k < inputs.size(); ++k)
    if (!inputs[k] && op.input(k)) return Status(StatusCode::unsupported, "an input is not known");
  auto out = run(op, inputs);
  if (!out.ok()) return out;
  // Cosines stay cosines of moved angles.
  StringRef name = op.getOpType();
  if (!op.getDomain().empty()) return out;
  if (name == "Cos" || name == "Sin") {
    Known angles = *inputs[0];
    angles.angles = nullptr;
    (*out)[0].angles = std::make_shared<Known>(std::move(angles));
  } else if (name.starts_with("Cast") && inputs[0]->angles && (*out)[0].isFloat()) {
    (*out)[0].angles = inputs[0]->angles; // the values are rounded, not what they are cosines of
  } else if (keepsAngles(name) && inputs[0]->angles) {
    SmallVector<const Known *> moved(inputs.begin(), inputs.end());
    moved[0] = inputs[0]->angles.get();
    auto angles = run(op, moved);
    for (size_t k = 0; k < out->size(); ++k)
      (*out)[k].angles = angles.ok() ? std::make_shared<const Known>(std::move((*angles)[k])) : nullptr;
  } else if (name == "Concat" && llvm::all_of(inputs, [](const Known *in) { return in->angles != nullptr; })) {
    SmallVector<const Known *> moved;
    for (const Known *in : inputs)
      moved.push_back(in->angles.get());
    auto angles = run(op, moved);
    if (angles.ok()) (*out)[0].angles = std::make_shared<const Known>(std::move((*angles)[0]));
  } else if ((name == "Mul" || name == "Div") && inputs[0]->angles && inputs[1]->elements() == 1) {
    (*out)[0].angles = inputs[0]->angles;
  } else if (name == "Mul" && inputs[1]->angles && inputs[0]->elements() == 1) {
    (*out)[0].angles = inputs[1]->angles;
  }
  return out;
}

} // namespace lathe::raise
