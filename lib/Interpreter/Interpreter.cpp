//===- Interpreter.cpp - the reference interpreter of the llm dialect -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Interpreter/Interpreter.h"
#include "KVCache.h"
#include "Kernels.h"
#include "WeightReader.h"
#include "dialects/LLM/LLM.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include <atomic>

using namespace mlir;
using namespace lathe;
using namespace lathe::llm;
using namespace lathe::interp;

namespace {

template <typename Real>
struct Rows {
  Rows(int64_t rows, int64_t cols) : rows(rows), cols(cols), data(rows * cols) {}
  int64_t rows, cols;
  std::vector<Real> data;
  Real *row(int64_t r) { return data.data() + r * cols; }
};

template <typename Real>
using KVState = llvm::DenseMap<StringAttr, KVGroupCache<Real>>;

/// What an SSA value is: rows, a weight or the KV cache (a batch is nothing: there is one).
template <typename Real>
struct Datum {
  std::shared_ptr<Rows<Real>> rows;
  ParamOp weight;
  std::shared_ptr<KVState<Real>> kv;
};

int64_t widthOf(Value v) { return cast<RankedTensorType>(v.getType()).getShape().back(); }

template <typename Real>
class Machine final : public Interpreter {
public:
  Machine(ModuleOp module, func::FuncOp function, InterpreterOptions options)
      : module(module), symbols(module), function(function), options(options),
        weights(options.weightDirectory, options.weightCacheBytes) {
    reset();
  }

  void reset() override {
    if (model) model->reset();
    lastFeatures.clear();
    forget();
  }
  void forget() {
    cache = std::make_shared<KVState<Real>>();
    for (KVGroupOp group : module.getOps<KVGroupOp>()) {
      std::vector<KVLayerShape> layers;
      for (auto layer : group.getLayers().getAsRange<KVLayerAttr>())
        layers.push_back({layer.getHeads() * layer.getKeySize(), layer.getHeads() * layer.getValueSize()});
      cache->try_emplace(group.getSymNameAttr(), KVGroupCache<Real>(group.getPage(), group.getWindow(), std::move(layers)));
    }
  }

  FailureOr<std::vector<RowValues>> step(const StepBatch &stepBatch) override {
    if (failed(check(stepBatch))) return failure();
    batch = &stepBatch;
    SmallVector<Datum<Real>> arguments, results;
    for (Type type : function.getArgumentTypes()) {
      arguments.emplace_back();
      if (isa<KVType>(type)) arguments.back().kv = cache;
      if (!isa<RankedTensorType>(type)) continue;
      auto taken = takenRows(stepBatch, cast<RankedTensorType>(type).getDimSize(1));
      if (failed(taken)) return failure();
      arguments.back().rows = *taken;
    }
    forget(); // the arguments are the only owners now
    if (failed(runBlock(function.getBody().front(), arguments, results))) return failure();
    std::vector<RowValues> out;
    for (Datum<Real> &result : results) {
      if (result.kv) cache = std::move(result.kv);
      if (result.weight) return function.emitError() << "expected rows as a result, found a weight";
      if (result.rows) out.push_back(widen(*result.rows));
    }
    // Of a draft tree any path may go on, or none: no more than its root is known to have left a window.
    for (const StepRow &row : stepBatch.rows)
      for (auto &group : *cache)
        if (row.parent < 0) group.second.release(row.sequence, row.slot);
    return out;
  }

  /// Makes this the interpreter of a draft that takes what |step|'s head starts from.
  LogicalResult takeHiddenOf(func::FuncOp step) {
    auto selects = llvm::to_vector(step.getOps<SelectRowsOp>());
    if (selects.size() != 1) return step.emitError() << "expected one llm.select_rows in the step of a draft that takes rows, found " << selects.size();
    auto value = dyn_cast<OpResult>(selects[0].getInput());
    auto taken = cast<RankedTensorType>(function.getArgumentTypes().back());
    // Either these rows, or [own | features] of the row before.
    int64_t hiddenWidth = widthOf(selects[0].getInput()), features = 0;
    auto results = step.getResultTypes();
    for (Type type : results.drop_front())
      if (auto rows = dyn_cast<RankedTensorType>(type); rows && rows.getDimSize(1) == hiddenWidth) features += hiddenWidth;
    if (!value || (value.getType() != taken && taken.getDimSize(1) != hiddenWidth + (features ? features : hiddenWidth)))
      return function.emitError() << "expected rows of type " << selects[0].getInput().getType() << ", found " << taken;
    InterpreterOptions own = options;
    own.function = "step";
    model = std::make_unique<Machine>(module, step, std::move(own));
    model->trace = [this, value](Operation *op, unsigned result, const RowValues &rows) {
      if (op == value.getOwner() && result == value.getResultNumber()) hidden = rows;
    };
    return success();
  }

private:
  //===--------------------------------------------------------------------===//
  // Values and control
  //===--------------------------------------------------------------------===//

  struct Held {
    Datum<Real> datum;
    int64_t uses; ///< left; the last one takes the value, so that the KV cache is changed in place
  };
  using Environment = llvm::DenseMap<Value, Held>;

  FailureOr<std::shared_ptr<Rows<Real>>> takenRows(const StepBatch &stepBatch, int64_t width) {
    auto results = model->step(stepBatch);
    if (failed(results)) return failure();
    auto rows = std::make_shared<Rows<Real>>(hidden.rows, width);
    if (width == hidden.cols) {
      llvm::copy(hidden.values, rows->data.begin());
      return rows;
    }
    // Zeros, and the features of the row before: the parent, the one in front in the batch, or the last of an earlier batch.
    std::vector<const RowValues *> parts;
    for (const RowValues &rest : llvm::drop_begin(*results))
      if (rest.cols == hidden.cols) parts.push_back(&rest); // others are choices
    if (parts.empty()) parts.push_back(&hidden);
    auto featuresOf = [&](int64_t r) {
      std::vector<double> all;
      for (const RowValues *part : parts) all.insert(all.end(), part->values.begin() + r * part->cols, part->values.begin() + (r + 1) * part->cols);
      return all;
    };
    for (auto [r, row] : llvm::enumerate(stepBatch.rows)) {
      int64_t before = row.parent;
      for (int64_t q = int64_t(r) - 1; before < 0 && q >= 0; --q)
        if (stepBatch.rows[q].sequence == row.sequence && stepBatch.rows[q].parent < 0 && stepBatch.rows[q].slot + 1 == row.slot) before = q;
      auto known = lastFeatures.find(row.sequence);
      std::vector<double> features;
      if (before >= 0)
        features = featuresOf(before);
      else if (known != lastFeatures.end() && known->second.first + 1 == row.slot)
        features = known->second.second;
      llvm::copy(features, rows->row(r) + width - int64_t(features.size()));
    }
    for (auto [r, row] : llvm::enumerate(stepBatch.rows))
      if (row.parent < 0) lastFeatures[row.sequence] = {row.slot, featuresOf(r)};
    return rows;
  }

  LogicalResult check(const StepBatch &b) {
    for (auto [i, row] : llvm::enumerate(b.rows))
      if (row.position < 0 || row.slot < 0)
        return function.emitError() << "row " << i << ": expected a position and a slot of at least 0, found " << row.position << " and " << row.slot;
    for (auto [i, row] : llvm::enumerate(b.rows))
      if (row.parent >= int64_t(i) || (row.parent >= 0 && (b.rows[row.parent].sequence != row.sequence || b.rows[row.parent].slot >= row.slot)))
        return function.emitError() << "row " << i << ": expected an earlier row of its sequence and a smaller slot as its parent, found row " << row.parent;
    for (int64_t row : b.outRows)
      if (row < 0 || row >= int64_t(b.rows.size()))
        return function.emitError() << "expected output rows below " << b.rows.size() << ", found " << row;
    return success();
  }

  static void define(Environment &env, Value value, Datum<Real> datum) {
    int64_t uses = std::distance(value.use_begin(), value.use_end());
    if (uses) env[value] = {std::move(datum), uses};
  }

  static Datum<Real> take(Environment &env, Value value) {
    auto found = env.find(value);
    if (--found->second.uses) return found->second.datum;
    Datum<Real> datum = std::move(found->second.datum);
    env.erase(found);
    return datum;
  }

  static RowValues widen(Rows<Real> &rows) { return {rows.rows, rows.cols, std::vector<double>(rows.data.begin(), rows.data.end())}; }

  /// Consumes |arguments|: a list that kept them would be a second owner of the KV cache.
  LogicalResult runBlock(Block &block, MutableArrayRef<Datum<Real>> arguments, SmallVectorImpl<Datum<Real>> &results) {
    Environment env;
    for (auto [argument, datum] : llvm::zip(block.getArguments(), arguments)) define(env, argument, std::exchange(datum, {}));
    for (Operation &op : block) {
      SmallVector<Datum<Real>> in, out;
      for (Value operand : op.getOperands()) in.push_back(take(env, operand));
      if (op.hasTrait<OpTrait::IsTerminator>()) {
        results.assign(std::make_move_iterator(in.begin()), std::make_move_iterator(in.end()));
        return success();
      }
      if (failed(run(&op, in, out))) return failure();
      for (auto [i, result] : llvm::enumerate(op.getResults())) {
        if (trace && out[i].rows) trace(&op, i, widen(*out[i].rows));
        define(env, result, std::move(out[i]));
      }
    }
    llvm_unreachable("the verifier has seen a terminator");
  }

  using In = SmallVectorImpl<Datum<Real>> &;
  using RowsPtr = std::shared_ptr<Rows<Real>>;

  LogicalResult run(Operation *op, In in, SmallVectorImpl<Datum<Real>> &out) {
    if (auto fused = dyn_cast<FusedOp>(op)) return runBlock(fused.getBody().front(), in, out);
    if (auto weight = dyn_cast<WeightOp>(op)) {
      out.push_back({nullptr, symbols.lookup<ParamOp>(weight.getParam()), nullptr});
      return success();
    }
    if (auto append = dyn_cast<KVAppendOp>(op)) return runAppend(append, in, out);
    if (failed(checkWeights(op, in))) return failure();
    FailureOr<RowsPtr> rows =
        llvm::TypeSwitch<Operation *, FailureOr<RowsPtr>>(op)
            .template Case<EmbedOp, LinearOp, QuantizeOp, AddOp, MulOp, ScaleOp, SoftcapOp, ActivationOp, GluOp, RmsNormOp, LayerNormOp,
                           ColumnsOp, SelectRowsOp, ArgmaxOp, AnglesOp, RopeOp, AttentionOp>([&](auto typed) { return eval(typed, in); })
            .Default([](Operation *other) { return other->emitOpError() << "the interpreter does not know this op"; });
    if (failed(rows)) return failure();
    out.push_back({*rows, nullptr, nullptr});
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Weights
  //===--------------------------------------------------------------------===//

  /// Weights and rows have one type in the IR: an operand that should be a weight may be something else.
  LogicalResult checkWeights(Operation *op, In in) {
    size_t first = isa<EmbedOp, LinearOp, RmsNormOp, LayerNormOp, AnglesOp>(op) ? 1 : in.size();
    for (size_t i = first; i < in.size(); ++i)
      if (!in[i].weight) return op->emitOpError() << "operand " << i << ": expected a weight made by llm.weight";
    for (size_t i = 0; i < std::min(first, in.size()); ++i)
      if (in[i].weight) return op->emitOpError() << "operand " << i << ": expected rows, found a weight";
    return success();
  }

  /// A vector's values.
  FailureOr<std::vector<Real>> vector(Operation *op, ParamOp param) {
    int64_t n = cast<RankedTensorType>(param.getType()).getNumElements();
    std::vector<float> values(n);
    if (Status status = weights.read(param.getValue(), 0, n, values.data()); !status.ok()) return op->emitOpError() << status.message();
    return std::vector<Real>(values.begin(), values.end());
  }

  FailureOr<RowsPtr> eval(EmbedOp op, In in) {
    ParamOp param = in[1].weight;
    int64_t limit = cast<RankedTensorType>(param.getType()).getShape()[0];
    auto out = std::make_shared<Rows<Real>>(batch->rows.size(), widthOf(op));
    std::vector<float> values(out->cols);
    for (auto [r, row] : llvm::enumerate(batch->rows)) {
      if (!row.embedding.empty() && !op.getPositions()) {
        if (int64_t(row.embedding.size()) != out->cols)
          return op.emitOpError() << "row " << r << ": expected an embedding of " << out->cols << " elements, found " << row.embedding.size();
        std::copy(row.embedding.begin(), row.embedding.end(), out->row(r));
        continue;
      }
      int64_t index = op.getPositions() ? row.position : row.token;
      if (index < 0 || index >= limit)
        return op.emitOpError() << "row " << r << ": expected a " << (op.getPositions() ? "position" : "token") << " below " << limit << ", found " << index;
      if (Status status = weights.read(param.getValue(), index, 1, values.data()); !status.ok()) return op.emitOpError() << status.message();
      Real scale = op.getScale().convertToFloat();
      for (int64_t i = 0; i < out->cols; ++i) out->row(r)[i] = Real(values[i]) * scale;
    }
    return out;
  }

  FailureOr<RowsPtr> eval(LinearOp op, In in) {
    Rows<Real> &x = *in[0].rows;
    auto out = std::make_shared<Rows<Real>>(x.rows, widthOf(op));
    int64_t at = 0;
    for (size_t i = 0; i < op.getWeights().size(); ++i) {
      ParamOp param = in[1 + i].weight;
      int64_t n = cast<RankedTensorType>(param.getType()).getShape()[0];
      auto kept = weights.whole(param, options.threads);
      if (!kept.ok()) return op.emitOpError() << kept.status().message();
      const float *values = *kept;
      Status first;
      std::mutex statusMutex;
      parallelFor((n + 63) / 64, options.threads, x.rows * n * x.cols, [&](int64_t begin, int64_t end) {
        std::vector<float> scratch;
        for (int64_t j = begin * 64; j < std::min(n, end * 64); j += 64) {
          int64_t some = std::min<int64_t>(64, n - j);
          const float *w = values + j * x.cols;
          if (!values) {
            scratch.resize(64 * x.cols);
            w = scratch.data();
            Status status = weights.read(param.getValue(), j, some, scratch.data());
            std::lock_guard lock(statusMutex);
            if (!status.ok()) first = std::move(status);
          }
          matmul(x.data.data(), x.rows, x.cols, w, some, out->data.data() + at + j, out->cols);
        }
      });
      if (!first.ok()) return op.emitOpError() << first.message();
      at += n;
    }
    if (op.getBias()) {
      auto bias = vector(op, in.back().weight);
      if (failed(bias)) return failure();
      for (int64_t r = 0; r < out->rows; ++r)
        for (int64_t i = 0; i < out->cols; ++i) out->row(r)[i] += (*bias)[i];
    }
    return out;
  }

  //===--------------------------------------------------------------------===//
  // Rows
  //===--------------------------------------------------------------------===//

  FailureOr<RowsPtr> eval(QuantizeOp op, In in) {
    ActFormat format = cast<ActType>(op.getType().getElementType()).getFormat();
    static_assert(int(ActFormat::bf16) == int(Act::bf16) && int(ActFormat::int8z) == int(Act::int8z) && int(ActFormat::e4m3) == int(Act::e4m3));
    return perRow(in[0], [&](Real *x, Real *y, int64_t n) { roundActivations(Act(format), x, n, y); });
  }
  FailureOr<RowsPtr> eval(AddOp, In in) {
    return perElement(in, [](Real a, Real b) { return a + b; });
  }
  FailureOr<RowsPtr> eval(MulOp, In in) {
    return perElement(in, [](Real a, Real b) { return a * b; });
  }
  FailureOr<RowsPtr> eval(GluOp op, In in) {
    Fn fn = Fn(op.getKind());
    static_assert(int(Activation::gelu_erf) == int(Fn::geluErf) && int(Activation::relu) == int(Fn::relu));
    return perElement(in, [fn](Real a, Real b) { return activate(fn, a) * b; });
  }
  FailureOr<RowsPtr> eval(ScaleOp op, In in) {
    Real factor = op.getFactor().convertToFloat();
    return perRow(in[0], [&](Real *x, Real *y, int64_t n) { std::transform(x, x + n, y, [&](Real v) { return v * factor; }); });
  }
  FailureOr<RowsPtr> eval(SoftcapOp op, In in) {
    Real cap = op.getCap().convertToFloat();
    return perRow(in[0], [&](Real *x, Real *y, int64_t n) { std::transform(x, x + n, y, [&](Real v) { return cap * std::tanh(v / cap); }); });
  }
  FailureOr<RowsPtr> eval(ActivationOp op, In in) {
    Fn fn = Fn(op.getKind());
    return perRow(in[0], [&](Real *x, Real *y, int64_t n) { std::transform(x, x + n, y, [&](Real v) { return activate(fn, v); }); });
  }
  FailureOr<RowsPtr> eval(RmsNormOp op, In in) {
    auto w = vector(op, in[1].weight);
    if (failed(w)) return failure();
    int64_t size = w->size();
    return perRow(in[0], [&](Real *x, Real *y, int64_t n) {
      for (int64_t i = 0; i < n; i += size) rmsNorm<Real>(x + i, w->data(), size, op.getEps().convertToFloat(), y + i);
    });
  }
  FailureOr<RowsPtr> eval(LayerNormOp op, In in) {
    auto w = vector(op, in[1].weight), b = vector(op, in[2].weight);
    if (failed(w) || failed(b)) return failure();
    return perRow(in[0], [&](Real *x, Real *y, int64_t n) { layerNorm<Real>(x, w->data(), b->data(), n, op.getEps().convertToFloat(), y); });
  }
  FailureOr<RowsPtr> eval(ColumnsOp op, In in) {
    auto out = std::make_shared<Rows<Real>>(in[0].rows->rows, widthOf(op));
    for (int64_t r = 0; r < out->rows; ++r) std::copy_n(in[0].rows->row(r) + op.getBegin(), out->cols, out->row(r));
    return out;
  }
  FailureOr<RowsPtr> eval(SelectRowsOp op, In in) {
    auto out = std::make_shared<Rows<Real>>(batch->outRows.size(), widthOf(op));
    for (auto [i, row] : llvm::enumerate(batch->outRows)) {
      if (row >= in[0].rows->rows) return op.emitOpError() << "output row " << row << " is outside an input of " << in[0].rows->rows << " rows";
      std::copy_n(in[0].rows->row(row), out->cols, out->row(i));
    }
    return out;
  }

  FailureOr<RowsPtr> eval(ArgmaxOp, In in) {
    auto out = std::make_shared<Rows<Real>>(in[0].rows->rows, 2);
    for (int64_t r = 0; r < out->rows; ++r) {
      const Real *x = in[0].rows->row(r);
      auto bad = [](Real v) { return !(v <= std::numeric_limits<float>::max()); };
      int64_t best = 0;
      for (int64_t i = 1; i < in[0].rows->cols && !bad(x[best]); ++i)
        if (bad(x[i]) || x[i] > x[best]) best = i;
      out->row(r)[0] = Real(best);
      out->row(r)[1] = x[best];
    }
    return out;
  }

  template <typename F>
  RowsPtr perRow(Datum<Real> &in, F fn) {
    auto out = std::make_shared<Rows<Real>>(in.rows->rows, in.rows->cols);
    for (int64_t r = 0; r < out->rows; ++r) fn(in.rows->row(r), out->row(r), out->cols);
    return out;
  }
  template <typename F>
  RowsPtr perElement(In in, F fn) {
    auto out = std::make_shared<Rows<Real>>(in[0].rows->rows, in[0].rows->cols);
    std::transform(in[0].rows->data.begin(), in[0].rows->data.end(), in[1].rows->data.begin(), out->data.begin(), fn);
    return out;
  }

  //===--------------------------------------------------------------------===//
  // Positions and history
  //===--------------------------------------------------------------------===//

  FailureOr<RowsPtr> eval(AnglesOp op, In in) {
    auto frequencies = vector(op, in[1].weight);
    if (failed(frequencies)) return failure();
    int64_t half = frequencies->size();
    auto out = std::make_shared<Rows<Real>>(batch->rows.size(), 2 * half);
    for (auto [r, row] : llvm::enumerate(batch->rows))
      for (int64_t i = 0; i < half; ++i) {
        // The product is a float32 one in both modes: at large positions its rounding is part of the model.
        double angle = float(row.position) * float((*frequencies)[i]);
        Real factor = op.getFactor().convertToFloat();
        out->row(r)[i] = Real(std::cos(angle)) * factor;
        out->row(r)[half + i] = Real(std::sin(angle)) * factor;
      }
    return out;
  }

  FailureOr<RowsPtr> eval(RopeOp op, In in) {
    auto out = std::make_shared<Rows<Real>>(in[0].rows->rows, in[0].rows->cols);
    int64_t size = out->cols / op.getHeads(), half = in[1].rows->cols / 2;
    for (int64_t r = 0; r < out->rows; ++r)
      for (int64_t h = 0; h < int64_t(op.getHeads()); ++h)
        rope(in[0].rows->row(r) + h * size, in[1].rows->row(r), half, size, op.getInterleaved(), out->row(r) + h * size);
    return out;
  }

  LogicalResult runAppend(KVAppendOp op, In in, SmallVectorImpl<Datum<Real>> &out) {
    std::shared_ptr<KVState<Real>> state = std::move(in[0].kv);
    // Somebody still reads the cache from before this append.
    if (state.use_count() > 1) state = std::make_shared<KVState<Real>>(*state);
    KVGroupOp group = lookupGroup(op, op.getGroupAttr());
    KVLayerAttr layer = lookupLayer(group, op.getLayer());
    KVGroupCache<Real> &entries = state->find(group.getSymNameAttr())->second;
    static_assert(int(KVFormat::bf16) == int(Store::bf16) && int(KVFormat::e4m3) == int(Store::e4m3));
    for (auto [r, row] : llvm::enumerate(batch->rows)) {
      auto [key, value] = entries.entry(row.sequence, op.getLayer(), row.slot);
      for (int64_t h = 0; h < layer.getHeads(); ++h) {
        int64_t k = layer.getKeySize(), v = layer.getValueSize();
        roundEntry(Store(group.getKey()), in[1].rows->row(r) + h * k, k, key + h * k);
        roundEntry(Store(group.getValue()), in[2].rows->row(r) + h * v, v, value + h * v);
      }
    }
    out.push_back({nullptr, nullptr, std::move(state)});
    return success();
  }

  /// Which KV entry stands at a place of a row's history.
  struct History {
    int64_t root;                ///< the places up to this one are slots
    std::vector<int64_t> behind; ///< slots of the row's ancestors in a draft tree and its own
    History(const StepRow &row, const std::vector<StepRow> &rows) {
      const StepRow *at = &row;
      for (; at->parent >= 0; at = &rows[at->parent]) behind.push_back(at->slot);
      std::reverse(behind.begin(), behind.end());
      root = at->slot;
    }
    int64_t last() const { return root + int64_t(behind.size()); }
    int64_t slot(int64_t place) const { return place <= root ? place : behind[place - root - 1]; }
  };

  FailureOr<RowsPtr> eval(AttentionOp op, In in) {
    KVGroupOp group = lookupGroup(op, op.getGroupAttr());
    KVLayerAttr layer = lookupLayer(group, op.getLayer());
    const KVGroupCache<Real> &entries = in[1].kv->find(group.getSymNameAttr())->second;
    int64_t heads = op.getHeads(), perKV = heads / layer.getHeads(), k = layer.getKeySize(), v = layer.getValueSize();
    int64_t window = group.getWindow(), index = op.getLayer(), work = 0;
    auto out = std::make_shared<Rows<Real>>(in[0].rows->rows, heads * v);
    std::vector<History> histories;
    for (const StepRow &row : batch->rows) {
      History &history = histories.emplace_back(row, batch->rows);
      int64_t last = history.last(), first = window ? std::max<int64_t>(0, last - window + 1) : 0;
      for (int64_t j = first; j <= last; ++j)
        if (!entries.key(row.sequence, index, history.slot(j)))
          return op.emitOpError() << "expected entries " << first << " .. " << last << " of sequence " << row.sequence << ", entry " << j << " was never appended";
      work += (last - first + 1) * heads * (k + v);
    }
    parallelFor(out->rows, options.threads, work, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const StepRow &row = batch->rows[r];
        const History &history = histories[r];
        for (int64_t h = 0; h < heads; ++h) {
          int64_t kvHead = h / perKV;
          AttendArgs<Real> args;
          args.query = in[0].rows->row(r) + h * k;
          args.keySize = k;
          args.valueSize = v;
          args.first = window ? std::max<int64_t>(0, history.last() - window + 1) : 0;
          args.last = history.last();
          args.scale = op.getScale().convertToFloat();
          args.softcap = op.getSoftcap().convertToFloat();
          args.key = [&](int64_t j) { return entries.key(row.sequence, index, history.slot(j)) + kvHead * k; };
          args.value = [&](int64_t j) { return entries.value(row.sequence, index, history.slot(j)) + kvHead * v; };
          args.out = out->row(r) + h * v;
          attend(args);
        }
      }
    });
    return out;
  }

  ModuleOp module;
  SymbolTable symbols;
  func::FuncOp function;
  InterpreterOptions options;
  WeightReader weights;
  std::shared_ptr<KVState<Real>> cache;
  const StepBatch *batch = nullptr;
  std::unique_ptr<Machine> model; ///< of a draft that takes rows: it runs before
  RowValues hidden;               ///< what it had for its head
  llvm::DenseMap<int64_t, std::pair<int64_t, std::vector<double>>> lastFeatures; ///< [sequence] slot of the last row without a parent, and its features
};

} // namespace

/// Whether |function| is a step's; |rows|: or a draft's, which takes rows behind the rest.
static LogicalResult checkSignature(func::FuncOp function, bool rows) {
  if (!function.getBody().hasOneBlock()) return function.emitError() << "expected a single block";
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (!isa<BatchType, KVType>(type) && !(rows && i && i + 1 == function.getNumArguments() && isa<RankedTensorType>(type)))
      return function.emitError() << "expected arguments of types !llm.batch and !llm.kv, found " << type;
  if (llvm::none_of(function.getResultTypes(), llvm::IsaPred<RankedTensorType>)) return function.emitError() << "expected a result of rows";
  return success();
}

template <typename Real>
static FailureOr<std::unique_ptr<Interpreter>> makeMachine(ModuleOp module, func::FuncOp function, InterpreterOptions options) {
  auto machine = std::make_unique<Machine<Real>>(module, function, std::move(options));
  if (llvm::any_of(function.getArgumentTypes(), llvm::IsaPred<RankedTensorType>)) {
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (!step || step == function || step.isExternal()) return function.emitError() << "expected a function 'step' whose hidden rows this one takes";
    if (failed(checkSignature(step, false)) || failed(machine->takeHiddenOf(step))) return failure();
  }
  return std::unique_ptr<Interpreter>(std::move(machine));
}

FailureOr<std::unique_ptr<Interpreter>> Interpreter::create(ModuleOp module, InterpreterOptions options) {
  auto function = module.lookupSymbol<func::FuncOp>(options.function);
  if (!function || function.isExternal()) return module.emitError() << "expected a function '" << options.function << "' with a body";
  if (failed(checkSignature(function, true))) return failure();
  if (options.float64) return makeMachine<double>(module, function, std::move(options));
  return makeMachine<float>(module, function, std::move(options));
}

StepBatch lathe::llm::chunkOf(const std::vector<std::vector<int64_t>> &sequences, int64_t begin, int64_t chunk) {
  StepBatch batch;
  for (auto [s, tokens] : llvm::enumerate(sequences))
    for (int64_t i = begin; i < std::min<int64_t>(tokens.size(), begin + chunk); ++i) {
      batch.outRows.push_back(batch.rows.size());
      batch.rows.push_back({tokens[i], i, int64_t(s), i, {}});
    }
  return batch;
}

FailureOr<std::vector<RowValues>> lathe::llm::runSequences(Interpreter &interpreter, const std::vector<std::vector<int64_t>> &sequences,
                                                           int64_t chunk, bool lastOnly, unsigned result) {
  std::vector<RowValues> all(sequences.size());
  int64_t longest = 0;
  for (auto &tokens : sequences) longest = std::max<int64_t>(longest, tokens.size());
  if (chunk == 0) chunk = std::max<int64_t>(1, longest);
  for (int64_t begin = 0; begin < longest; begin += chunk) {
    StepBatch batch = chunkOf(sequences, begin, chunk);
    if (lastOnly)
      llvm::erase_if(batch.outRows, [&](int64_t r) { return batch.rows[r].position + 1 != int64_t(sequences[batch.rows[r].sequence].size()); });
    auto results = interpreter.step(batch);
    if (failed(results)) return failure();
    // A step without llm.select_rows has a row for every row of the batch.
    const RowValues &rows = (*results)[std::min<size_t>(result, results->size() - 1)];
    bool selected = rows.rows == int64_t(batch.outRows.size());
    for (auto [i, r] : llvm::enumerate(batch.outRows)) {
      RowValues &own = all[batch.rows[r].sequence];
      auto from = rows.values.begin() + (selected ? int64_t(i) : r) * rows.cols;
      own.rows += 1;
      own.cols = rows.cols;
      own.values.insert(own.values.end(), from, from + rows.cols);
    }
  }
  return all;
}
