//===- LLMToKernel.cpp - llm ops become kernel calls -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Walks the step in order and replaces every op, or every llm.fused of a known shape, by calls of
// kernel families. Each llm op has an unfused form here, so a fusion that was switched off or did not
// apply costs speed and nothing else.
//===----------------------------------------------------------------------===//
#include "dialects/Kernel/Kernel.h"
#include "lathe/Codegen/Layout.h"
#include "lathe/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/TypeSwitch.h"

namespace lathe {
#define GEN_PASS_DEF_LLMTOKERNELPASS
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe;
using kernel::RowsType;

namespace {

int64_t width(Value v) { return cast<RankedTensorType>(v.getType()).getShape().back(); }
int64_t padded(int64_t columns) { return llvm::alignTo(columns, 16); }

/// What an llm value became.
struct Lowered {
  /// Columns begin .. begin + width of the llm value are columns at .. at + width of the buffer.
  struct Segment {
    int64_t begin, at, width;
  };
  Value buffer;
  SmallVector<Segment, 3> segments; ///< more than one only for merged linears
  bool select = false;              ///< the value is the output rows of |buffer|, not yet copied
};

/// Symbols of packed weights by what they hold: functions that read one weight share it.
using Packings = llvm::StringMap<FlatSymbolRefAttr>;

class Lowering {
public:
  Lowering(ModuleOp module, func::FuncOp step, Packings &made)
      : module(module), step(step), symbols(module), b(module.getContext()), made(made) {}

  LogicalResult run() {
    auto type = step.getFunctionType();
    StringAttr name = step.getSymNameAttr();
    // A draft program may take rows of the step and have several heads; a step may return the rows that it takes.
    bool draft = name == "draft";
    size_t inputs = type.getNumInputs(), results = type.getNumResults();
    auto isRows = [](Type t) { return isa<RankedTensorType>(t) && cast<RankedTensorType>(t).getRank() == 2 && cast<RankedTensorType>(t).isDynamicDim(0); };
    if (inputs < 2 || inputs > (draft ? 3 : 2) || !isa<llm::BatchType>(type.getInput(0)) || !isa<llm::KVType>(type.getInput(1)) ||
        (inputs == 3 && !isRows(type.getInput(2))) || results < 2 || !isa<llm::KVType>(type.getResults().back()) ||
        !llvm::all_of(type.getResults().drop_back(), isRows))
      return step.emitError() << "expected a " << (draft ? "draft of type (!llm.batch, !llm.kv[, rows]) -> (logits..., !llm.kv)" : "step of type (!llm.batch, !llm.kv) -> (logits[, choices][, rows...], !llm.kv)")
                              << ", found " << type;
    SmallVector<Type> taken{type.getInput(1)};
    if (inputs == 3) taken.push_back(rowsType(cast<RankedTensorType>(type.getInput(2)).getDimSize(1), false));
    b.setInsertionPoint(step);
    kernels = func::FuncOp::create(b, step.getLoc(), "kernels", b.getFunctionType(taken, {}));
    b.setInsertionPointToStart(kernels.addEntryBlock());
    caches[step.getArgument(1)] = kernels.getArgument(0);
    if (inputs == 3) set(step.getArgument(2), kernels.getArgument(1));
    for (Operation &op : step.getBody().front())
      if (failed(lower(&op))) return failure();
    step.erase();
    kernels.setName(name);
    return success();
  }

private:
  //===--- weights ----------------------------------------------------------===//

  llm::ParamOp param(Value weight) {
    auto op = weightOf(weight).getDefiningOp<llm::WeightOp>();
    return op ? symbols.lookup<llm::ParamOp>(op.getParam()) : llm::ParamOp();
  }

  template <typename Create>
  FlatSymbolRefAttr once(const std::string &key, StringRef name, Create create) {
    auto [it, inserted] = made.try_emplace(key);
    if (!inserted) return it->second;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(kernels);
    std::string unique = name.str();
    for (int i = 1; symbols.lookup(unique); ++i)
      unique = (name + "." + Twine(i)).str();
    Operation *op = create(b.getStringAttr(unique));
    symbols.insert(op);
    return it->second = FlatSymbolRefAttr::get(op);
  }

  static std::string keyOf(ArrayRef<llm::ParamOp> params, int64_t interleave) {
    std::string key = std::to_string(interleave);
    for (llm::ParamOp p : params)
      key += "|" + p.getSymName().str();
    return key;
  }

  /// A packed matrix of the rows of |weights| (of one storage).
  FailureOr<FlatSymbolRefAttr> packed(ValueRange weights, int64_t interleave, Operation *user) {
    SmallVector<llm::ParamOp> params;
    SmallVector<Attribute> names;
    int64_t n = 0, k = width(weights[0]);
    for (Value weight : weights) {
      llm::ParamOp p = param(weight);
      if (!p) return user->emitError() << "expected a weight made by llm.weight";
      params.push_back(p);
      names.push_back(FlatSymbolRefAttr::get(p));
      int64_t rows = cast<RankedTensorType>(weight.getType()).getShape()[0];
      n += interleave ? llvm::alignTo(rows, interleave) : rows;
    }
    auto storage = llm::storageOf(weights[0].getType());
    return once("packed" + keyOf(params, interleave), ("packed." + params[0].getSymName()).str(), [&](StringAttr name) {
      return kernel::PackedOp::create(b, params[0].getLoc(), name, b.getArrayAttr(names),
                                      llm::StorageAttr::get(b.getContext(), storage), b.getI64IntegerAttr(n),
                                      b.getI64IntegerAttr(k), b.getI64IntegerAttr(interleave));
    });
  }

  FlatSymbolRefAttr vectorOf(llm::ParamOp p) {
    auto shape = cast<RankedTensorType>(p.getType()).getShape();
    int64_t n = shape.size() == 2 ? shape[0] : 1;
    return once("vector" + keyOf(p, 0), ("vector." + p.getSymName()).str(), [&](StringAttr name) {
      return kernel::VectorOp::create(b, p.getLoc(), name, b.getArrayAttr(FlatSymbolRefAttr::get(p)), b.getI64IntegerAttr(n),
                                      b.getI64IntegerAttr(shape.back()));
    });
  }
  FailureOr<FlatSymbolRefAttr> vector(Value weight, Operation *user) {
    llm::ParamOp p = param(weight);
    if (!p) return user->emitError() << "expected a weight made by llm.weight";
    return vectorOf(p);
  }
  /// Elements begin .. begin + n of a bias as a vector of its own.
  FailureOr<FlatSymbolRefAttr> vectorSlice(Value weight, int64_t begin, int64_t n, Operation *user) {
    llm::ParamOp p = param(weight);
    if (!p) return user->emitError() << "expected a weight made by llm.weight";
    if (begin == 0 && n == width(weight)) return vectorOf(p);
    std::string name = (p.getSymName() + "." + Twine(begin) + "." + Twine(n)).str();
    auto part = symbols.lookup<llm::ParamOp>(name);
    if (!part) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(kernels);
      auto type = RankedTensorType::get({n}, cast<RankedTensorType>(p.getType()).getElementType());
      Attribute value = llm::SliceAttr::get(b.getContext(), p.getValue(), begin, begin + n);
      part = llm::ParamOp::create(b, p.getLoc(), b.getStringAttr(name), value, TypeAttr::get(type));
      symbols.insert(part);
    }
    return vectorOf(part);
  }

  //===--- values -------------------------------------------------------------===//

  RowsType rowsType(int64_t columns, bool out) { return RowsType::get(b.getContext(), columns, padded(columns), out); }
  bool isOut(Value buffer) {
    if (auto rows = dyn_cast<RowsType>(buffer.getType())) return rows.getOut();
    if (auto act = dyn_cast<kernel::ActType>(buffer.getType())) return act.getOut();
    return false;
  }
  void set(Value v, Value buffer) { values[v] = {buffer, {{0, 0, width(v)}}}; }

  /// The rows that |v| became, output rows copied if they were only selected so far.
  Value rows(Value v) {
    Lowered &l = values[v];
    if (l.select) {
      auto in = cast<RowsType>(l.buffer.getType());
      l.buffer = kernel::SelectOp::create(b, v.getLoc(), rowsType(in.getWidth(), true), l.buffer);
      l.select = false;
    }
    // A merged linear with gaps between its parts read as a whole: never made by the passes.
    return l.buffer;
  }

  Value loops(Location loc, ArrayRef<Value> inputs, llvm::function_ref<Value(OpBuilder &, ValueRange)> body) {
    auto in = cast<RowsType>(inputs[0].getType());
    auto op = kernel::LoopsOp::create(b, loc, rowsType(in.getWidth(), in.getOut()), inputs);
    OpBuilder::InsertionGuard guard(b);
    Block *block = b.createBlock(&op.getBody());
    for (size_t i = 0; i < inputs.size(); ++i)
      block->addArgument(b.getF32Type(), loc);
    kernel::YieldOp::create(b, loc, body(b, block->getArguments()));
    return op.getResult();
  }
  Value constant(OpBuilder &at, Location loc, float value) {
    return arith::ConstantOp::create(at, loc, at.getF32FloatAttr(value));
  }

  //===--- ops ----------------------------------------------------------------===//

  LogicalResult lower(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<llm::WeightOp>([](auto) { return success(); })
        .Case<llm::EmbedOp, llm::LinearOp, llm::QuantizeOp, llm::AddOp, llm::MulOp, llm::ScaleOp, llm::SoftcapOp,
              llm::ActivationOp, llm::GluOp, llm::RmsNormOp, llm::LayerNormOp, llm::ColumnsOp, llm::SelectRowsOp, llm::ArgmaxOp,
              llm::AnglesOp, llm::RopeOp, llm::KVAppendOp, llm::AttentionOp, llm::FusedOp>(
            [&](auto o) { return lowerOp(o); })
        .Case<func::ReturnOp>([&](func::ReturnOp o) { return finish(o); })
        .Default([](Operation *o) { return o->emitError() << "unsupported: no kernel for this op in a step"; });
  }

  LogicalResult lowerOp(llm::EmbedOp op) {
    if (op.getPositions()) {
      learnedPositions[op.getResult()] = op;
      return success();
    }
    auto weight = packed(op.getWeight(), 0, op);
    if (failed(weight)) return failure();
    set(op.getResult(), kernel::GatherOp::create(b, op.getLoc(), rowsType(width(op.getResult()), false), *weight,
                                                 op.getScaleAttr(), FlatSymbolRefAttr()));
    return success();
  }

  kernel::ActType actType(Value tensor, bool out) {
    auto type = cast<RankedTensorType>(tensor.getType());
    auto format = llm::ActFormat::f32;
    if (auto act = dyn_cast<llm::ActType>(type.getElementType())) format = act.getFormat();
    return kernel::ActType::get(b.getContext(), type.getShape().back(), format, needsHalves(tensor), out);
  }
  /// True when a linear that reads |tensor| has scales for 16 values.
  bool needsHalves(Value tensor) {
    SmallVector<Value> work{tensor};
    while (!work.empty()) {
      Value v = work.pop_back_val();
      for (OpOperand &use : v.getUses()) {
        if (auto linear = dyn_cast<llm::LinearOp>(use.getOwner())) {
          for (Value weight : linear.getWeights())
            if (packedLayout(llm::storageType(llm::storageOf(weight.getType()))).subK == 16) return true;
        } else if (auto fused = dyn_cast<llm::FusedOp>(use.getOwner())) {
          work.push_back(fused.getBody().front().getArgument(use.getOperandNumber()));
        } else if (auto yield = dyn_cast<llm::YieldOp>(use.getOwner())) {
          work.push_back(yield->getParentOp()->getResult(use.getOperandNumber()));
        }
      }
    }
    return false;
  }

  LogicalResult lowerOp(llm::QuantizeOp op) {
    Value in = rows(op.getInput());
    values[op.getResult()] = {kernel::QuantizeOp::create(b, op.getLoc(), actType(op.getResult(), isOut(in)), in), {}};
    return success();
  }

  Value activations(Value input, Location loc) {
    if (isa<llm::ActType>(cast<RankedTensorType>(input.getType()).getElementType())) return values[input].buffer;
    Value in = rows(input);
    return kernel::QuantizeOp::create(b, loc, actType(input, isOut(in)), in);
  }

  /// |residual| is an llm value or null; |result| the llm value that the matmul makes.
  LogicalResult matmul(llm::LinearOp op, Value residual, Value result) {
    Value in = activations(op.getInput(), op.getLoc());
    SmallVector<Attribute> names, biases;
    SmallVector<int64_t> columns;
    Lowered lowered;
    int64_t begin = 0, at = 0;
    for (Value weight : op.getWeights()) {
      auto name = packed(weight, 0, op);
      if (failed(name)) return failure();
      int64_t n = cast<RankedTensorType>(weight.getType()).getShape()[0];
      names.push_back(*name);
      columns.push_back(at);
      lowered.segments.push_back({begin, at, n});
      if (op.getBias()) {
        auto bias = vectorSlice(op.getBias(), begin, n, op);
        if (failed(bias)) return failure();
        biases.push_back(*bias);
      }
      begin += n;
      at += padded(n);
    }
    // Residual and epilogue work on whole rows: parts with gaps are added afterwards.
    bool gaps = at - padded(begin) != 0 && op.getWeights().size() > 1;
    Value residualRows = residual && !gaps ? withStride(rows(residual), at, op.getLoc()) : Value(); // walked as the result is
    auto type = RowsType::get(b.getContext(), gaps ? at : begin, at, isOut(in));
    auto matmul = kernel::MatmulOp::create(b, op.getLoc(), type, in, residualRows, b.getArrayAttr(names),
                                           b.getDenseI64ArrayAttr(columns), b.getArrayAttr(biases), llm::ActivationAttr(), UnitAttr());
    lowered.buffer = matmul.getResult();
    values[result] = lowered;
    if (residual && gaps) return op.emitError() << "unsupported: a residual on a merged linear whose parts are not multiples of 16";
    return success();
  }
  LogicalResult lowerOp(llm::LinearOp op) { return matmul(op, Value(), op.getResult()); }

  LogicalResult lowerOp(llm::AddOp op) {
    for (auto [positions, tokens] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
      auto it = learnedPositions.find(positions);
      if (it == learnedPositions.end()) continue;
      auto gather = values[tokens].buffer ? values[tokens].buffer.getDefiningOp<kernel::GatherOp>() : kernel::GatherOp();
      auto table = vector(it->second.getWeight(), op);
      if (failed(table)) return failure();
      if (!gather || !tokens.hasOneUse()) return op.emitError() << "unsupported: position embeddings added to something else than token embeddings";
      gather.setPositionsAttr(*table);
      set(op.getResult(), gather.getResult());
      return success();
    }
    set(op.getResult(), loops(op.getLoc(), {rows(op.getLhs()), rows(op.getRhs())}, [&](OpBuilder &at, ValueRange v) -> Value {
          return arith::AddFOp::create(at, op.getLoc(), v[0], v[1]);
        }));
    return success();
  }
  LogicalResult lowerOp(llm::MulOp op) {
    set(op.getResult(), loops(op.getLoc(), {rows(op.getLhs()), rows(op.getRhs())}, [&](OpBuilder &at, ValueRange v) -> Value {
          return arith::MulFOp::create(at, op.getLoc(), v[0], v[1]);
        }));
    return success();
  }
  LogicalResult lowerOp(llm::ScaleOp op) {
    set(op.getResult(), loops(op.getLoc(), {rows(op.getInput())}, [&](OpBuilder &at, ValueRange v) -> Value {
          return arith::MulFOp::create(at, op.getLoc(), v[0], constant(at, op.getLoc(), op.getFactor().convertToFloat()));
        }));
    return success();
  }
  LogicalResult lowerOp(llm::SoftcapOp op) {
    float cap = op.getCap().convertToFloat();
    set(op.getResult(), loops(op.getLoc(), {rows(op.getInput())}, [&](OpBuilder &at, ValueRange v) -> Value {
          Value x = arith::MulFOp::create(at, op.getLoc(), v[0], constant(at, op.getLoc(), 1.0f / cap));
          Value t = kernel::FunctionOp::create(at, op.getLoc(), at.getF32Type(), "tanh", x);
          return arith::MulFOp::create(at, op.getLoc(), t, constant(at, op.getLoc(), cap));
        }));
    return success();
  }
  LogicalResult lowerOp(llm::ActivationOp op) {
    set(op.getResult(), loops(op.getLoc(), {rows(op.getInput())}, [&](OpBuilder &at, ValueRange v) -> Value {
          return kernel::FunctionOp::create(at, op.getLoc(), at.getF32Type(), stringifyActivation(op.getKind()), v[0]);
        }));
    return success();
  }
  LogicalResult lowerOp(llm::GluOp op) {
    set(op.getResult(), loops(op.getLoc(), {rows(op.getGate()), rows(op.getUp())}, [&](OpBuilder &at, ValueRange v) -> Value {
          Value f = kernel::FunctionOp::create(at, op.getLoc(), at.getF32Type(), stringifyActivation(op.getKind()), v[0]);
          return arith::MulFOp::create(at, op.getLoc(), f, v[1]);
        }));
    return success();
  }

  /// A norm of |input| into |type|; takes output rows on the way when they were only selected so far.
  LogicalResult norm(Operation *op, Value input, Value weight, Value bias, FloatAttr eps, Value residual, Value result, bool quantized) {
    Lowered &l = values[input];
    bool select = l.select, out = select || isOut(l.buffer);
    auto w = vector(weight, op);
    FailureOr<FlatSymbolRefAttr> bv = FlatSymbolRefAttr();
    if (bias) bv = vector(bias, op);
    if (failed(w) || failed(bv)) return failure();
    Type type = quantized ? Type(actType(result, out)) : Type(rowsType(width(input), out));
    // The kernel walks what it adds as it does its result.
    Value added = residual ? withStride(rows(residual), padded(width(input)), op->getLoc()) : Value();
    Value made = kernel::NormOp::create(b, op->getLoc(), type, l.buffer, added, *w,
                                        *bv, eps, bias ? b.getUnitAttr() : UnitAttr(), select ? b.getUnitAttr() : UnitAttr());
    // The first norm behind the selection is the last of the model: its rows as float32 are what embeddings are made of.
    if (select && !residual && !embedding && step.getSymName() == "step")
      embedding = kernel::NormOp::create(b, op->getLoc(), rowsType(width(input), true), l.buffer, Value(), *w, *bv, eps,
                                         bias ? b.getUnitAttr() : UnitAttr(), b.getUnitAttr());
    if (quantized)
      values[result] = {made, {}};
    else
      set(result, made);
    return success();
  }
  LogicalResult lowerOp(llm::RmsNormOp op) {
    if (op.getHeads() == 1) return norm(op, op.getInput(), op.getWeight(), Value(), op.getEpsAttr(), Value(), op.getResult(), false);
    auto weight = vector(op.getWeight(), op);
    if (failed(weight)) return failure();
    set(op.getResult(), headsInPlace(op, op.getInput(), Value(), op.getHeads(), *weight, op.getEpsAttr(), false));
    return success();
  }
  LogicalResult lowerOp(llm::LayerNormOp op) {
    return norm(op, op.getInput(), op.getWeight(), op.getBias(), op.getEpsAttr(), Value(), op.getResult(), false);
  }

  LogicalResult lowerOp(llm::ColumnsOp op) {
    int64_t begin = op.getBegin(), n = width(op.getResult());
    Value buffer = rows(op.getInput());
    auto type = cast<RowsType>(buffer.getType());
    for (auto s : values[op.getInput()].segments) {
      if (begin < s.begin || begin + n > s.begin + s.width) continue;
      auto view = kernel::ViewOp::create(b, op.getLoc(), RowsType::get(b.getContext(), n, type.getStride(), type.getOut()), buffer,
                                         b.getI64IntegerAttr(s.at + begin - s.begin));
      set(op.getResult(), view);
      return success();
    }
    // Columns across parts: fine when the parts follow each other without gaps.
    if (type.getWidth() != width(op.getInput())) return op.emitError() << "unsupported: columns across parts of a merged linear that are not multiples of 16";
    set(op.getResult(), kernel::ViewOp::create(b, op.getLoc(), RowsType::get(b.getContext(), n, type.getStride(), type.getOut()), buffer,
                                               op.getBeginAttr()));
    return success();
  }

  LogicalResult lowerOp(llm::SelectRowsOp op) {
    Value in = rows(op.getInput());
    if (isOut(in)) return op.emitError() << "unsupported: output rows are selected twice";
    values[op.getResult()] = {in, {{0, 0, width(op.getResult())}}, true};
    hidden = in;
    return success();
  }

  LogicalResult lowerOp(llm::ArgmaxOp op) {
    Value in = rows(op.getInput());
    if (llvm::any_of(values[op.getInput()].segments, [](Lowered::Segment s) { return s.begin != s.at; })) return op.emitError() << "unsupported: argmax over parts of a merged linear that are not multiples of 16";
    set(op.getResult(), kernel::ArgmaxOp::create(b, op.getLoc(), rowsType(2, isOut(in)), in, UnitAttr()));
    return success();
  }
  /// The linear never leaves its result: of each run of outputs it says the largest.
  FailureOr<bool> argmaxLinear(llm::LinearOp linear, llm::ArgmaxOp argmax) {
    if (linear.getWeights().size() != 1 || argmax.getInput() != linear.getResult()) return false;
    auto name = packed(linear.getWeights(), 0, linear);
    if (failed(name)) return failure();
    SmallVector<Attribute> biases;
    if (linear.getBias()) {
      auto bias = vector(linear.getBias(), linear);
      if (failed(bias)) return failure();
      biases.push_back(*bias);
    }
    Value in = activations(linear.getInput(), linear.getLoc());
    int64_t runs = llvm::divideCeil(width(argmax.getInput()), codegen::argmaxRun);
    Value best = kernel::MatmulOp::create(b, linear.getLoc(), rowsType(2 * runs, isOut(in)), in, Value(), b.getArrayAttr(*name), b.getDenseI64ArrayAttr({0}),
                                          b.getArrayAttr(biases), llm::ActivationAttr(), b.getUnitAttr());
    set(argmax.getResult(), kernel::ArgmaxOp::create(b, argmax.getLoc(), rowsType(2, isOut(in)), best, b.getUnitAttr()));
    return true;
  }

  LogicalResult lowerOp(llm::AnglesOp op) {
    auto freq = vector(op.getFrequencies(), op);
    if (failed(freq)) return failure();
    set(op.getResult(), kernel::AnglesOp::create(b, op.getLoc(), rowsType(width(op.getResult()), false), *freq, op.getFactorAttr()));
    return success();
  }

  //===--- rotation, cache, attention ----------------------------------------===//

  /// Rows that may be overwritten: |v|'s own when this is its only use, a copy else.
  Value writable(Value v, Location loc) {
    Value buffer = rows(v);
    if (v.hasOneUse()) return buffer;
    return loops(loc, {buffer}, [](OpBuilder &, ValueRange args) { return args[0]; });
  }
  Value headsInPlace(Operation *op, Value input, Value angles, int64_t heads, FlatSymbolRefAttr norm, FloatAttr eps, bool interleaved) {
    Value q = writable(input, op->getLoc());
    return ropeAppend(op->getLoc(), q, {}, {}, angles ? rows(angles) : Value(), {}, heads, {}, 0, 0, norm, {}, eps, interleaved).getRotated();
  }
  /// |v| in rows of |stride|: itself or a copy.
  Value withStride(Value v, int64_t stride, Location loc) {
    auto type = v ? cast<RowsType>(v.getType()) : RowsType();
    if (!v || type.getStride() == stride) return v;
    Value copy = loops(loc, {v}, [](OpBuilder &, ValueRange args) { return args[0]; });
    copy.setType(RowsType::get(b.getContext(), type.getWidth(), stride, type.getOut()));
    return copy;
  }
  kernel::RopeAppendOp ropeAppend(Location loc, Value q, Value k, Value v, Value angles, Value cache, int64_t heads,
                                  FlatSymbolRefAttr group, int64_t layer, int64_t kvHeads, FlatSymbolRefAttr qNorm,
                                  FlatSymbolRefAttr kNorm, FloatAttr eps, bool interleaved) {
    // The kernel walks q, k and v with one stride. Those of one merged linear have it; others are copied to the largest.
    int64_t stride = 0;
    for (Value part : {q, k, v})
      if (part) stride = std::max(stride, cast<RowsType>(part.getType()).getStride());
    q = withStride(q, stride, loc), k = withStride(k, stride, loc), v = withStride(v, stride, loc);
    return kernel::RopeAppendOp::create(b, loc, q ? q.getType() : Type(), cache ? cache.getType() : Type(), q, k, v, angles, cache,
                                        b.getI64IntegerAttr(heads), group, b.getI64IntegerAttr(layer), b.getI64IntegerAttr(kvHeads),
                                        qNorm, kNorm, eps ? eps : b.getF32FloatAttr(0), interleaved ? b.getUnitAttr() : UnitAttr());
  }
  LogicalResult lowerOp(llm::RopeOp op) {
    set(op.getResult(), headsInPlace(op, op.getInput(), op.getAngles(), op.getHeads(), {}, {}, op.getInterleaved()));
    return success();
  }
  LogicalResult lowerOp(llm::KVAppendOp op) {
    auto layer = llm::lookupLayer(group(op.getGroupAttr()), op.getLayer());
    auto call = ropeAppend(op.getLoc(), {}, rows(op.getKey()), rows(op.getValue()), {}, caches[op.getKv()], 0, op.getGroupAttr(),
                           op.getLayer(), layer.getHeads(), {}, {}, {}, false);
    caches[op.getResult()] = call.getCache();
    return success();
  }
  llm::KVGroupOp group(FlatSymbolRefAttr name) { return symbols.lookup<llm::KVGroupOp>(name.getValue()); }

  LogicalResult attention(llm::AttentionOp op, Value result, bool quantized) {
    if (group(op.getGroupAttr()).getPage() == 0)
      return op.emitError() << "unsupported: attention over a cache that is not paged; run llm-page-kv first";
    Value q = rows(op.getQuery());
    Type type = quantized ? Type(actType(result, false)) : Type(rowsType(width(op.getResult()), false));
    Value made = kernel::AttentionOp::create(b, op.getLoc(), type, q, caches[op.getKv()], op.getGroupAttr(), op.getLayerAttr(),
                                             op.getHeadsAttr(), op.getScaleAttr(), op.getSoftcapAttr());
    if (quantized)
      values[result] = {made, {}};
    else
      set(result, made);
    return success();
  }
  LogicalResult lowerOp(llm::AttentionOp op) { return attention(op, op.getResult(), false); }

  //===--- fused ops ------------------------------------------------------------===//

  LogicalResult lowerOp(llm::FusedOp op) {
    Block &body = op.getBody().front();
    for (auto [argument, input] : llvm::zip(body.getArguments(), op.getInputs())) {
      if (auto it = values.find(input); it != values.end()) {
        Lowered l = it->second;
        values[argument] = l;
      }
      if (auto it = caches.find(input); it != caches.end()) {
        Value cache = it->second;
        caches[argument] = cache;
      }
      if (auto weight = input.getDefiningOp<llm::WeightOp>()) aliases[argument] = weight;
    }
    auto matched = matchFused(op, body);
    if (failed(matched)) return failure();
    if (!*matched)
      for (Operation &inner : body.without_terminator())
        if (failed(lower(&inner))) return failure();
    for (auto [result, yielded] : llvm::zip(op.getResults(), body.getTerminator()->getOperands())) {
      if (auto it = values.find(yielded); it != values.end()) {
        Lowered l = it->second;
        values[result] = l;
      }
      if (auto it = caches.find(yielded); it != caches.end()) {
        Value cache = it->second;
        caches[result] = cache;
      }
    }
    return success();
  }

  /// True when the body was lowered as one kernel.
  FailureOr<bool> matchFused(llm::FusedOp fused, Block &body) {
    SmallVector<Operation *> ops;
    for (Operation &op : body.without_terminator())
      if (!isa<llm::WeightOp>(op)) ops.push_back(&op);
    auto is = [&](size_t i, auto type) { return i < ops.size() && isa<decltype(type)>(ops[i]); };
    auto done = [](LogicalResult r) -> FailureOr<bool> {
      if (failed(r)) return failure();
      return true;
    };
    StringRef kind = fused.getKind();
    if (kind == "norm" && ops.size() == 2 && is(1, llm::QuantizeOp())) {
      auto quantize = cast<llm::QuantizeOp>(ops[1]);
      if (quantize.getInput() != ops[0]->getResult(0)) return false;
      if (auto n = dyn_cast<llm::RmsNormOp>(ops[0]); n && n.getHeads() == 1)
        return done(norm(n, n.getInput(), n.getWeight(), Value(), n.getEpsAttr(), Value(), quantize.getResult(), true));
      if (auto n = dyn_cast<llm::LayerNormOp>(ops[0]))
        return done(norm(n, n.getInput(), n.getWeight(), n.getBias(), n.getEpsAttr(), Value(), quantize.getResult(), true));
      return false;
    }
    if (kind == "norm" && ops.size() == 2 && is(0, llm::RmsNormOp()) && is(1, llm::AddOp())) {
      // A norm behind a sublayer (Gemma): residual + norm(x).
      auto n = cast<llm::RmsNormOp>(ops[0]);
      auto add = cast<llm::AddOp>(ops[1]);
      Value other = add.getLhs() == n.getResult() ? add.getRhs() : add.getLhs();
      return done(norm(n, n.getInput(), n.getWeight(), Value(), n.getEpsAttr(), other, add.getResult(), false));
    }
    if (kind == "residual_linear" && ops.size() == 2 && is(0, llm::LinearOp()) && is(1, llm::AddOp())) {
      auto linear = cast<llm::LinearOp>(ops[0]);
      auto add = cast<llm::AddOp>(ops[1]);
      Value other = add.getLhs() == linear.getResult() ? add.getRhs() : add.getLhs();
      if (linear.getWeights().size() != 1) return false;
      return done(matmul(linear, other, add.getResult()));
    }
    if (kind == "glu_linear" && ops.size() == 4 && is(0, llm::LinearOp()) && is(1, llm::LinearOp()) && is(2, llm::GluOp()) &&
        is(3, llm::QuantizeOp()))
      return gluLinear(cast<llm::LinearOp>(ops[0]), cast<llm::LinearOp>(ops[1]), cast<llm::GluOp>(ops[2]), cast<llm::QuantizeOp>(ops[3]));
    if (kind == "attention" && ops.size() == 2 && is(0, llm::AttentionOp()) && is(1, llm::QuantizeOp())) {
      auto op = cast<llm::AttentionOp>(ops[0]);
      auto layer = llm::lookupLayer(group(op.getGroupAttr()), op.getLayer());
      if (layer.getValueSize() % 32) return false;
      return done(attention(op, ops[1]->getResult(0), true));
    }
    if (kind == "activate" && ops.size() == 2 && is(1, llm::QuantizeOp())) {
      Value gate, up;
      llm::ActivationAttr act;
      if (auto glu = dyn_cast<llm::GluOp>(ops[0]))
        gate = rows(glu.getGate()), up = rows(glu.getUp()), act = glu.getKindAttr();
      else if (auto single = dyn_cast<llm::ActivationOp>(ops[0]))
        gate = rows(single.getInput()), act = single.getKindAttr();
      else
        return false;
      if (up && cast<RowsType>(up.getType()).getStride() != cast<RowsType>(gate.getType()).getStride()) return false;
      values[ops[1]->getResult(0)] = {kernel::ActivateOp::create(b, ops[0]->getLoc(), actType(ops[1]->getResult(0), isOut(gate)), act, gate, up), {}};
      return true;
    }
    if (kind == "argmax_linear" && ops.size() == 2 && is(0, llm::LinearOp()) && is(1, llm::ArgmaxOp()))
      return argmaxLinear(cast<llm::LinearOp>(ops[0]), cast<llm::ArgmaxOp>(ops[1]));
    if (kind == "rope_append") return ropeAppendFused(ops);
    return false;
  }

  /// The llm.weight behind a body argument of a fused op, or the value itself.
  Value weightOf(Value v) {
    auto it = aliases.find(v);
    return it == aliases.end() ? v : it->second;
  }
  FailureOr<bool> gluLinear(llm::LinearOp gate, llm::LinearOp up, llm::GluOp glu, llm::QuantizeOp quantize) {
    if (glu.getGate() == up.getResult()) std::swap(gate, up);
    if (gate.getWeights().size() != 1 || up.getWeights().size() != 1 || gate.getBias() || up.getBias() ||
        gate.getInput() != up.getInput() || glu.getKind() == llm::Activation::gelu_erf || glu.getKind() == llm::Activation::relu)
      return false;
    Value weights[] = {gate.getWeights()[0], up.getWeights()[0]};
    if (weights[0].getType() != weights[1].getType()) return false;
    auto name = packed(weights, 32, gate);
    if (failed(name)) return failure();
    Value in = activations(gate.getInput(), gate.getLoc());
    auto matmul = kernel::MatmulOp::create(b, gate.getLoc(), actType(quantize.getResult(), isOut(in)), in, Value(), b.getArrayAttr(*name),
                                           b.getDenseI64ArrayAttr({0}), b.getArrayAttr({}), glu.getKindAttr(), UnitAttr());
    values[quantize.getResult()] = {matmul.getResult(), {}};
    return true;
  }

  FailureOr<bool> ropeAppendFused(ArrayRef<Operation *> ops) {
    llm::RmsNormOp qNorm, kNorm;
    llm::RopeOp qRope, kRope;
    llm::KVAppendOp append;
    for (Operation *op : ops)
      if (auto a = dyn_cast<llm::KVAppendOp>(op)) append = a;
    if (!append) return false;
    auto chain = [&](Value v, llm::RopeOp &rope, llm::RmsNormOp &norm) {
      if ((rope = v.getDefiningOp<llm::RopeOp>())) v = rope.getInput();
      if ((norm = v.getDefiningOp<llm::RmsNormOp>())) v = norm.getInput();
      return v;
    };
    Value k = chain(append.getKey(), kRope, kNorm), q;
    Value qResult;
    for (Value yielded : ops[0]->getBlock()->getTerminator()->getOperands())
      if (isa<RankedTensorType>(yielded.getType())) qResult = yielded;
    if (!qResult) return false;
    q = chain(qResult, qRope, qNorm);
    size_t expected = 1 + bool(qRope) + bool(kRope) + bool(qNorm) + bool(kNorm);
    if (ops.size() != expected || bool(qRope) != bool(kRope) || bool(qNorm) != bool(kNorm)) return false;
    if (qRope && (qRope.getAngles() != kRope.getAngles() || qRope.getInterleaved() != kRope.getInterleaved())) return false;
    if (qNorm && qNorm.getEps() != kNorm.getEps()) return false;
    Value qb = rows(q), kb = rows(k), vb = rows(append.getValue());
    auto layer = llm::lookupLayer(group(append.getGroupAttr()), append.getLayer());
    FlatSymbolRefAttr qw, kw;
    if (qNorm) {
      auto a = vector(qNorm.getWeight(), qNorm), c = vector(kNorm.getWeight(), kNorm);
      if (failed(a) || failed(c)) return failure();
      qw = *a, kw = *c;
    }
    int64_t heads = width(q) / layer.getKeySize();
    auto call = ropeAppend(append.getLoc(), qb, kb, vb, qRope ? rows(qRope.getAngles()) : Value(), caches[append.getKv()], heads,
                           append.getGroupAttr(), append.getLayer(), layer.getHeads(), qw, kw, qNorm ? qNorm.getEpsAttr() : FloatAttr(),
                           qRope && qRope.getInterleaved());
    set(qResult, call.getRotated());
    caches[append.getResult()] = call.getCache();
    return true;
  }


  /// |v| as what computes it: through results and arguments of llm.fused.
  static Value origin(Value v) {
    for (;;) {
      if (auto fused = v.getDefiningOp<llm::FusedOp>()) {
        v = fused.getBody().front().getTerminator()->getOperand(cast<OpResult>(v).getResultNumber());
      } else if (auto argument = dyn_cast<BlockArgument>(v)) {
        auto fused = dyn_cast_or_null<llm::FusedOp>(argument.getOwner()->getParentOp());
        if (!fused) return v;
        v = fused->getOperand(argument.getArgNumber());
      } else {
        return v;
      }
    }
  }
  /// Whether |a| and |b| are the same value, or made from the same ones by the same ops, |depth| of them at most.
  static bool sameValue(Value a, Value b, int depth = 4) {
    a = origin(a), b = origin(b);
    if (a == b) return true;
    Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
    if (!depth || !x || !y || x->getName() != y->getName() || x->getNumRegions() || x->getAttrDictionary() != y->getAttrDictionary() ||
        x->getNumOperands() != y->getNumOperands() || cast<OpResult>(a).getResultNumber() != cast<OpResult>(b).getResultNumber())
      return false;
    for (auto [p, q] : llvm::zip(x->getOperands(), y->getOperands()))
      if (!sameValue(p, q, depth - 1)) return false;
    return true;
  }

  LogicalResult finish(func::ReturnOp op) {
    if (!hidden) return op.emitError() << "expected an llm.select_rows before the logits";
    SmallVector<Value> logits, features;
    bool isStep = step.getSymName() == "step";
    for (auto [i, result] : llvm::enumerate(op.getOperands().drop_back())) {
      Value made = rows(result);
      bool feature = isStep && i && !isOut(made); // a draft's; behind them the head's
      if (!isOut(made) && !feature) return op.emitError() << "expected logits that depend on llm.select_rows";
      (feature ? features : logits).push_back(made);
    }
    if (isStep && logits.size() > 2) return op.emitError() << "expected logits and perhaps choices that depend on llm.select_rows, found " << logits.size() << " results";
    Value choices;
    if (logits.size() == 2 && isStep) {
      auto argmax = origin(op.getOperand(1)).getDefiningOp<llm::ArgmaxOp>();
      if (!argmax || !sameValue(argmax.getInput(), op.getOperand(0)))
        return op.emitError() << "expected the step's choices to be an llm.argmax of its logits";
      choices = logits.pop_back_val();
    }
    kernel::OutputOp::create(b, op.getLoc(), hidden, logits[0], embedding, choices, ArrayRef(logits).drop_front(), features);
    func::ReturnOp::create(b, op.getLoc());
    return success();
  }

  ModuleOp module;
  func::FuncOp step, kernels;
  SymbolTable symbols;
  OpBuilder b;
  llvm::DenseMap<Value, Lowered> values;
  llvm::DenseMap<Value, Value> caches;
  llvm::DenseMap<Value, Value> aliases;
  llvm::DenseMap<Value, llm::EmbedOp> learnedPositions;
  Packings &made;
  Value hidden, embedding;
};

struct LLMToKernelPass : lathe::impl::LLMToKernelPassBase<LLMToKernelPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (!step) {
      module.emitError() << "expected a function named 'step'";
      return signalPassFailure();
    }
    Packings made;
    if (failed(Lowering(module, step, made).run())) return signalPassFailure();
    if (auto draft = module.lookupSymbol<func::FuncOp>("draft"))
      if (failed(Lowering(module, draft, made).run())) signalPassFailure();
  }
};

} // namespace
