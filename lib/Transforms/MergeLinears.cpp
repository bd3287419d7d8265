//===- MergeLinears.cpp - one linear for one input --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace lathe {
#define GEN_PASS_DEF_LLMMERGELINEARSPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct MergeLinearsPass : lathe::impl::LLMMergeLinearsPassBase<MergeLinearsPass> {
  using LLMMergeLinearsPassBase::LLMMergeLinearsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable table(module);
    symbols = &table;
    SmallVector<SmallVector<LinearOp>> all;
    for (func::FuncOp function : module.getOps<func::FuncOp>()) {
      llvm::MapVector<Value, SmallVector<LinearOp>> byInput;
      function.walk([&](LinearOp op) {
        // The runtime finds each head's logits in rows of their own.
        bool head = function.getSymName() == "draft" && llvm::any_of(op->getUsers(), [](Operation *user) { return isa<func::ReturnOp>(user); });
        if (!head && !op->getParentOfType<FusedOp>()) byInput[op.getInput()].push_back(op);
      });
      for (auto &[input, linears] : byInput) {
        llvm::erase_if(linears, [&](LinearOp op) { return !mergeable(op); });
        if (linears.size() > 1) all.push_back(linears);
      }
    }
    countUses(all);
    for (ArrayRef<LinearOp> linears : all) merge(linears);
    for (ParamOp param : llvm::make_early_inc_range(module.getOps<ParamOp>()))
      if (joined.contains(param)) table.erase(param);
  }

  void countUses(ArrayRef<SmallVector<LinearOp>> all) {
    uses.clear();
    together.clear();
    joined.clear();
    joins.clear();
    getOperation().walk([&](WeightOp op) { uses[op.getParamAttr().getAttr()] += std::distance(op->use_begin(), op->use_end()); });
    for (ArrayRef<LinearOp> linears : all) {
      SmallVector<Attribute> names;
      for (LinearOp op : linears)
        for (Value weight : llvm::drop_begin(op->getOperands())) names.push_back(weight.getDefiningOp<WeightOp>().getParamAttr().getAttr());
      auto key = ArrayAttr::get(&getContext(), names);
      llvm::SmallDenseSet<Attribute> once(names.begin(), names.end());
      for (Attribute name : once) {
        ++together[{name, key}];
        partners[name] = key;
      }
    }
  }

  bool mergeable(LinearOp op) {
    for (Value weight : op.getWeights())
      if (!weight.getDefiningOp<WeightOp>()) return false;
    if (op.getBias() && !op.getBias().getDefiningOp<WeightOp>()) return false;
    auto user = op->hasOneUse() ? dyn_cast<GluOp>(*op->user_begin()) : GluOp();
    if (glu || !user || op.getWeights().size() != 1 || op.getBias()) return true;
    auto gate = user.getGate().getDefiningOp<LinearOp>(), up = user.getUp().getDefiningOp<LinearOp>();
    if (!gate || !up || gate.getInput() != up.getInput() || gate.getWeights().size() != 1 || up.getWeights().size() != 1 ||
        gate.getBias() || up.getBias() || gate.getWeights()[0].getType() != up.getWeights()[0].getType())
      return true;
    missed(op, "llm-merge-linears", "a gate and up pair of equal storage, left to llm-fuse-glu");
    return false;
  }

  void merge(ArrayRef<LinearOp> linears) {
    bool bias = llvm::any_of(linears, [](LinearOp op) { return bool(op.getBias()); });
    if (bias && !llvm::all_of(linears, [](LinearOp op) { return bool(op.getBias()); })) {
      missed(linears[0], "llm-merge-linears", "some linears of the input have a bias and some have none");
      return;
    }
    LinearOp first = linears[0];
    OpBuilder b(first);
    SmallVector<ParamOp> weights, biases;
    SmallVector<Location> locations;
    int64_t width = 0;
    for (LinearOp op : linears) {
      locations.push_back(op.getLoc());
      width += widthOf(op.getResult());
      for (Value weight : op.getWeights()) weights.push_back(paramOf(weight));
      if (bias) biases.push_back(paramOf(op.getBias()));
    }
    SmallVector<Value> segments;
    for (auto begin = weights.begin(); begin != weights.end();) {
      auto end = begin + 1;
      while (concat && end != weights.end() && canJoin(*begin) && canJoin(*end) && storageOf(begin->getType()) == storageOf(end->getType())) ++end;
      segments.push_back(weightOp(b, end - begin == 1 ? *begin : join(ArrayRef<ParamOp>(begin, end))));
      begin = end;
    }
    Value biasValue;
    if (bias) biasValue = weightOp(b, join(biases));
    auto type = RankedTensorType::get({ShapedType::kDynamic, width}, b.getF32Type());
    auto merged = LinearOp::create(b, FusedLoc::get(&getContext(), locations), type, first.getInput(), segments, biasValue);
    int64_t at = 0;
    for (LinearOp op : linears) {
      auto columns = ColumnsOp::create(b, op.getLoc(), op.getType(), merged.getResult(), b.getI64IntegerAttr(at));
      at += widthOf(op.getResult());
      op.getResult().replaceAllUsesWith(columns.getResult());
    }
    for (LinearOp op : linears) {
      SmallVector<Value> operands(op->getOperands());
      op.erase();
      for (Value operand : operands)
        if (auto weight = operand.getDefiningOp<WeightOp>(); weight && weight->use_empty()) weight.erase();
    }
    numMerged += linears.size() - 1;
  }

  ParamOp paramOf(Value weight) { return symbols->lookup<ParamOp>(weight.getDefiningOp<WeightOp>().getParam()); }
  /// A weight that somebody else reads too would be stored twice; not so when all that read it read the same weights with it (a draft of the
  /// step's own layers).
  bool canJoin(ParamOp param) {
    Attribute name = param.getSymNameAttr();
    return uses[name] == together.lookup({name, partners.lookup(name)});
  }
  Value weightOp(OpBuilder &b, ParamOp param) { return WeightOp::create(b, param.getLoc(), param.getType(), param.getSymName()); }

  /// A new param of the rows of |params|, one after the other.
  ParamOp join(ArrayRef<ParamOp> params) {
    if (params.size() == 1) return params[0];
    SmallVector<Attribute> parts, names;
    SmallVector<Location> locations;
    std::string name;
    int64_t rows = 0;
    for (ParamOp param : params) {
      parts.push_back(param.getValue());
      locations.push_back(param.getLoc());
      names.push_back(param.getSymNameAttr());
      name += (name.empty() ? "" : "+") + param.getSymName().str();
      rows += cast<RankedTensorType>(param.getType()).getShape()[0];
      // Biases may be shared: those stay for the others.
      if (canJoin(param)) joined.insert(param);
    }
    ParamOp &made = joins[ArrayAttr::get(&getContext(), names)];
    if (made) return made;
    ParamOp first = params[0];
    auto type = cast<RankedTensorType>(first.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[0] = rows;
    OpBuilder b(first);
    made = ParamOp::create(b, FusedLoc::get(&getContext(), locations), b.getStringAttr(name), ConcatAttr::get(&getContext(), parts),
                           TypeAttr::get(RankedTensorType::get(shape, type.getElementType())));
    symbols->insert(made); // renames it where a param has the name
    numJoined += params.size();
    return made;
  }

  SymbolTable *symbols = nullptr;
  llvm::DenseMap<Attribute, int64_t> uses;                           ///< of a param's values
  llvm::DenseMap<std::pair<Attribute, Attribute>, int64_t> together; ///< merges of the same params that a param is in
  llvm::DenseMap<Attribute, Attribute> partners;                     ///< the params of a merge with this one
  llvm::DenseMap<Attribute, ParamOp> joins;                          ///< params made, by the names of their parts
  llvm::DenseSet<Operation *> joined;       ///< params that became part of another
};

} // namespace
