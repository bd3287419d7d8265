//===- Inputs.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/ONNX/Inputs.h"

using namespace mlir;

namespace lathe::onnx {

StepInput stepInput(StringRef name, Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor) return StepInput::other;
  Type element = tensor.getElementType();
  bool integers = element.isInteger(64) || element.isInteger(32);
  if (integers && tensor.getRank() == 2) {
    if (name == "input_ids") return StepInput::tokens;
    if (name == "position_ids") return StepInput::positions;
  }
  if ((integers || isa<FloatType>(element)) && tensor.getRank() == 2 && name == "attention_mask") return StepInput::mask;
  if (integers && tensor.getRank() == 1) {
    if (name == "write_indices") return StepInput::writeIndex;
    if (name == "nonpad_kv_seqlen") return StepInput::lengths;
  }
  return presentName(name).empty() ? StepInput::other : StepInput::past;
}

std::string presentName(StringRef past) {
  for (StringRef prefix : {"past_key_values", "past"})
    if (past.starts_with(prefix)) return "present" + past.drop_front(prefix.size()).str();
  return "";
}

static std::string text(Attribute attribute) {
  auto name = dyn_cast_if_present<StringAttr>(attribute);
  return name ? name.str() : "";
}
std::string inputName(func::FuncOp graph, unsigned argument) { return text(graph.getArgAttr(argument, "onnx.name")); }
std::string resultName(func::FuncOp graph, unsigned result) { return text(graph.getResultAttr(result, "onnx.name")); }

/// One element of |bits| bits.
static bool isOne(Type type, unsigned bits) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getElementType().isInteger(bits) && tensor.hasStaticShape() && tensor.getNumElements() == 1;
}

bool asksForLogits(StringRef name, Type type) {
  return (name == "num_logits_to_keep" || name == "logits_to_keep") && (isOne(type, 64) || isOne(type, 32));
}

void fixChoices(func::FuncOp graph) {
  if (!graph || graph.isExternal()) return;
  for (unsigned i = graph.getNumArguments(); i-- > 0;) {
    std::string name = inputName(graph, i);
    auto type = dyn_cast<RankedTensorType>(graph.getArgument(i).getType());
    bool branch = name == "use_cache_branch" && isOne(type, 1);
    if (!branch && !asksForLogits(name, type)) continue;
    OpBuilder b = OpBuilder::atBlockBegin(&graph.front());
    auto value = b.getIntegerAttr(type.getElementType(), branch ? 1 : everyToken);
    auto chosen = ConstantOp::create(b, graph.getLoc(), type, DenseElementsAttr::get(type, ArrayRef<Attribute>(value)));
    graph.getArgument(i).replaceAllUsesWith(chosen);
    (void)graph.eraseArgument(i);
  }
}

bool isScattered(Value value) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    auto node = dyn_cast<NodeOp>(user);
    return node && node.getOpType() == "TensorScatter" && node.getInputs()[0] == value;
  });
}

} // namespace lathe::onnx
