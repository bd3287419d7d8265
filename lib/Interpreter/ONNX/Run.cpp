//===- Run.cpp - nodes and graphs on the interpreter ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ONNX/Array.h"
#include "ONNXOps/View.h"
#include "ONNXOps/Weights.h"
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <memory>

namespace lathe::interp {
using namespace mlir;
using onnx::DataType;
using onnx::HostTensor;

/// Elements that a result may have: beyond it the sizes come from a damaged graph, not from a model.
static constexpr int64_t mostElementsOfAGraph = int64_t(1) << 32;

static EvalFn find(StringRef domain, StringRef op) {
  for (auto table : {elementwiseEvaluations(), reductionEvaluations(), movementEvaluations(), indexingEvaluations(), networkEvaluations(), attentionEvaluations(),
                     quantizationEvaluations()})
    for (const EvalEntry &e : table)
      if (domain == e.domain && op == e.op) return e.fn;
  return nullptr;
}

static Status evaluate(onnx::NodeOp op, ArrayRef<const Array *> inputs, std::vector<Array> &outputs, int64_t most) {
  ops::NodeView view = ops::viewOf(op);
  EvalFn fn = find(view.domain == "ai.onnx" ? "" : view.domain, view.op);
  if (!fn || !ops::typeFunction(view.domain, view.op))
    return Status(StatusCode::unsupported, view.where() + ": expected an operator that general code covers, found '" + view.op + "'");
  ops::TypeContext types(view, ops::DimMath(), op.getNumResults());
  Evaluation e{view, types, {inputs.begin(), inputs.end()}, {}, most};
  for (const Array *a : inputs) {
    ops::TypeContext::Operand operand;
    if (a) {
      operand.element = onnx::elementType(op.getContext(), a->type);
      operand.shape.assign(a->shape.begin(), a->shape.end());
    }
    types.operands.push_back(operand);
  }
  types.elements = [&](unsigned i) -> std::optional<ops::Dims> {
    if (!e.has(i) || e.a(i).floating()) return std::nullopt;
    return ops::Dims(e.a(i).i.begin(), e.a(i).i.end());
  };
  std::string complaints;
  ScopedDiagnosticHandler handler(op.getContext(), [&](Diagnostic &d) {
    complaints += (complaints.empty() ? "" : "; ") + d.str();
    return success();
  });
  if (failed(ops::inferTypes(types))) return Status(types.unsupported ? StatusCode::unsupported : StatusCode::invalidArgument, complaints);
  for (const auto &result : types.results) {
    Sizes shape;
    int64_t count = 1;
    for (ops::Dim d : result.shape) {
      shape.push_back(d.known.value_or(0)); // sizes that depend on data: the function sets them
      // A dimension of 0 counts as 1: what lies beside it is bounded as well.
      int64_t n = std::max<int64_t>(shape.back(), 1);
      if (shape.back() < 0 || count > most / n) return e.bad("a result of at most " + std::to_string(most) + " elements", std::to_string(count) + " times " + std::to_string(shape.back()) + " or more");
      count *= n;
    }
    e.out.push_back(makeArray(onnx::dataType(result.element), std::move(shape)));
  }
  LATHE_RETURN_IF_ERROR(fn(e));
  if (e.out.size() < op.getNumResults()) return e.bad("at most " + std::to_string(e.out.size()) + " results", std::to_string(op.getNumResults()));
  e.out.resize(op.getNumResults());
  outputs = std::move(e.out);
  return Status();
}

Status evaluateONNX(onnx::NodeOp op, ArrayRef<const HostTensor *> inputs, MutableArrayRef<HostTensor> outputs, int64_t mostElements) {
  std::vector<Array> arrays(inputs.size()), results;
  std::vector<const Array *> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) {
      LATHE_ASSIGN_OR_RETURN(arrays[i], fromHost(*inputs[i]));
    }
    pointers.push_back(inputs[i] ? &arrays[i] : nullptr);
  }
  LATHE_RETURN_IF_ERROR(evaluate(op, pointers, results, mostElements));
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs[i] = toHost(results[i]);
  return Status();
}

namespace {

class GraphRun {
public:
  explicit GraphRun(ModuleOp m) : module(m) {}
  Status block(Block &block);
  llvm::DenseMap<Value, std::shared_ptr<Array>> values;

private:
  Status conditional(onnx::NodeOp op);
  ModuleOp module;
};

Status GraphRun::conditional(onnx::NodeOp op) {
  ops::NodeView view = ops::viewOf(op);
  auto condition = op.getInputs().empty() ? nullptr : values.lookup(op.getInputs()[0]);
  if (!condition || condition->type != DataType::boolean || condition->count() != 1)
    return Status(StatusCode::invalidArgument, view.where() + ": expected a condition of bool, found another value");
  Block &body = op.getBodies()[condition->i[0] ? 0 : 1].front();
  LATHE_RETURN_IF_ERROR(block(body));
  for (auto [result, v] : llvm::zip(op.getResults(), body.getTerminator()->getOperands()))
    values[result] = values.lookup(v);
  return Status();
}

Status GraphRun::block(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (isa<onnx::NoneOp>(op)) continue;
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      if (!cast<RankedTensorType>(constant.getResult().getType()).getElementType().isIntOrFloat())
        return Status(StatusCode::unsupported, "expected constants of numbers, found strings");
      LATHE_ASSIGN_OR_RETURN(HostTensor t, ops::readWeight(constant.getResult().getType(), constant.getValue()));
      LATHE_ASSIGN_OR_RETURN(Array array, fromHost(t));
      values[constant.getResult()] = std::make_shared<Array>(std::move(array));
      continue;
    }
    if (auto weight = dyn_cast<onnx::WeightOp>(op)) {
      auto param = module.lookupSymbol<onnx::ParamOp>(weight.getParam());
      LATHE_ASSIGN_OR_RETURN(HostTensor t, ops::readWeight(param.getType(), param.getValue()));
      LATHE_ASSIGN_OR_RETURN(Array array, fromHost(t));
      values[weight.getResult()] = std::make_shared<Array>(std::move(array));
      continue;
    }
    auto node = dyn_cast<onnx::NodeOp>(op);
    if (!node) return Status(StatusCode::unsupported, "expected ops of the onnx dialect, found '" + op.getName().getStringRef().str() + "'");
    if (node.getOpType() == "If" && node.getDomain().empty()) {
      LATHE_RETURN_IF_ERROR(conditional(node));
      continue;
    }
    std::vector<const Array *> inputs;
    for (Value v : node.getInputs())
      inputs.push_back(values.lookup(v).get());
    std::vector<Array> outputs;
    LATHE_RETURN_IF_ERROR(evaluate(node, inputs, outputs, mostElementsOfAGraph));
    for (auto [result, a] : llvm::zip(node.getResults(), outputs))
      values[result] = std::make_shared<Array>(std::move(a));
  }
  return Status();
}

} // namespace

Result<std::vector<HostTensor>> runONNX(ModuleOp module, const std::vector<HostTensor> &inputs) {
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main) return makeError(StatusCode::invalidArgument, "expected a function 'main' with an onnx graph");
  if (main.getNumArguments() != inputs.size()) return makeError(StatusCode::invalidArgument, "expected %u inputs, found %zu", main.getNumArguments(), inputs.size());
  GraphRun run(module);
  for (auto [argument, t] : llvm::zip(main.getArguments(), inputs)) {
    auto array = fromHost(t);
    if (!array.ok()) return Status(array.status()).at("input " + std::to_string(argument.getArgNumber()));
    run.values[argument] = std::make_shared<Array>(*std::move(array));
  }
  Block &body = main.getBody().front();
  LATHE_RETURN_IF_ERROR(run.block(body));
  std::vector<HostTensor> out;
  for (Value v : body.getTerminator()->getOperands()) {
    auto a = run.values.lookup(v);
    if (!a) return makeError(StatusCode::unsupported, "expected a tensor as result of the graph");
    out.push_back(toHost(*a));
  }
  return out;
}

static Status inferHook(onnx::NodeOp op, SmallVectorImpl<Type> &results) {
  ops::NodeView view = ops::viewOf(op);
  ops::TypeContext types(view, ops::DimMath(), op.getNumResults());
  for (Value v : op.getInputs()) {
    ops::TypeContext::Operand operand;
    if (auto tensor = dyn_cast<RankedTensorType>(v.getType())) {
      operand.element = tensor.getElementType();
      for (int64_t n : tensor.getShape())
        operand.shape.push_back(ShapedType::isDynamic(n) ? ops::Dim() : ops::Dim(n));
    } else if (!isa<NoneType>(v.getType())) {
      return Status(StatusCode::unsupported, view.where() + ": expected inputs of known rank, found " + ops::typeText(v.getType()));
    }
    types.operands.push_back(operand);
  }
  types.elements = [&](unsigned i) -> std::optional<ops::Dims> {
    Value v = op.getInputs()[i];
    if (auto constant = v.getDefiningOp<onnx::ConstantOp>()) {
      ops::Dims list;
      auto dense = dyn_cast<DenseIntElementsAttr>(constant.getValue());
      if (!dense) return std::nullopt;
      Type element = dense.getElementType();
      for (const APInt &x : dense.getValues<APInt>())
        list.push_back(ops::isUnsigned(element) || ops::isBool(element) ? int64_t(x.getZExtValue()) : x.getSExtValue());
      return list;
    }
    auto tensor = dyn_cast<RankedTensorType>(v.getType());
    if (!tensor || !tensor.hasStaticShape() || tensor.getNumElements() > 64) return std::nullopt;
    return ops::Dims(size_t(tensor.getNumElements()), ops::Dim());
  };
  std::string complaints;
  ScopedDiagnosticHandler handler(op.getContext(), [&](Diagnostic &d) {
    complaints += (complaints.empty() ? "" : "; ") + d.str();
    return success();
  });
  if (failed(ops::inferTypes(types))) return Status(StatusCode::invalidArgument, complaints);
  for (unsigned i = 0; i < op.getNumResults(); ++i) {
    if (i >= types.results.size()) return Status(StatusCode::invalidArgument, view.where() + ": expected fewer results, found " + std::to_string(op.getNumResults()));
    SmallVector<int64_t> shape;
    for (ops::Dim d : types.results[i].shape)
      shape.push_back(d.known && *d.known >= 0 ? *d.known : ShapedType::kDynamic);
    results.push_back(RankedTensorType::get(shape, types.results[i].element));
  }
  return Status();
}

void registerONNXHooks() {
  for (const auto &[domain, op] : ops::coveredOperators())
    onnx::registerHooks(domain, op, {inferHook, evaluateONNX});
}

} // namespace lathe::interp
