//===- Speculate.cpp - a draft program beside the step ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"
#include "mlir/IR/IRMapping.h"

namespace lathe {
#define GEN_PASS_DEF_LLMSPECULATEPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

constexpr const char *draftName = "draft";

/// The rows that the layer of |append| starts from: those behind the layers before it. Keys come of them by a norm, a linear and a rotation, in
/// whatever order and number; what is none of these is where the layer begins.
Value layerInput(KVAppendOp append) {
  Value rows = append.getKey();
  while (Operation *op = rows.getDefiningOp()) {
    if (!isa<RopeOp, RmsNormOp, LayerNormOp, LinearOp, ColumnsOp, QuantizeOp>(op)) break;
    rows = op->getOperand(0);
  }
  return rows;
}

struct SpeculatePass : lathe::impl::LLMSpeculatePassBase<SpeculatePass> {
  using LLMSpeculatePassBase::LLMSpeculatePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (!step) {
      module.emitError() << "llm-speculate: expected a function named 'step'";
      return signalPassFailure();
    }
    if (Operation *there = module.lookupSymbol(draftName); there && !(method != "layerskip" && isa<ModuleOp>(there))) {
      there->emitError() << "llm-speculate: the module has a draft program already";
      return signalPassFailure();
    }
    LogicalResult made = failure();
    if (method == "draft")
      made = takeModel(module, step);
    else if (method == "layerskip")
      made = firstLayers(module, step);
    else if (method == "medusa")
      made = takeHeads(module, step);
    else if (method == "eagle" || method == "eagle2" || method == "eagle3")
      made = takeLayer(module, step);
    else
      module.emitError() << "llm-speculate: expected method draft, layerskip, medusa, eagle, eagle2 or eagle3, found '" << method << "'";
    if (failed(made)) signalPassFailure();
  }

  /// What the plan needs to know of the draft beside its function: how many |positions| it was made for (null: as many as the model), |tokens| of a reduced
  /// vocabulary.
  void describe(ModuleOp module, Attribute positions, Attribute tokens = {}) {
    Builder b(&getContext());
    SmallVector<NamedAttribute> entries{b.getNamedAttr("method", b.getStringAttr(method))};
    if (tokens) entries.push_back(b.getNamedAttr("tokens", tokens));
    if (method == "layerskip") entries.push_back(b.getNamedAttr("layers", b.getI64IntegerAttr(layers)));
    if (positions) entries.push_back(b.getNamedAttr("max_sequence", positions));
    module->setAttr("llm.draft", b.getDictionaryAttr(entries));
  }
  static Attribute positionsOf(ModuleOp model, StringRef name = "llm.model") {
    auto attr = model->getAttrOfType<DictionaryAttr>(name);
    return attr ? attr.get("max_sequence") : Attribute();
  }

  /// Error: |function| is declared only, has branches or ends in something else than a return.
  static LogicalResult checkBody(func::FuncOp function) {
    auto blocks = std::distance(function.getBody().begin(), function.getBody().end());
    if (blocks != 1) return function.emitError() << "llm-speculate: expected a function of one block, found " << blocks;
    Operation *end = function.getBody().front().getTerminator();
    if (!isa<func::ReturnOp>(end)) return end->emitError() << "llm-speculate: expected a function that ends in func.return, found " << end->getName();
    return success();
  }
  static LogicalResult checkStep(func::FuncOp step) {
    auto type = step.getFunctionType();
    if (type.getNumInputs() != 2 || type.getNumResults() != 2 || !isa<KVType>(type.getInput(1)) || !isa<KVType>(type.getResult(1)))
      return step.emitError() << "llm-speculate: expected a step of type (!llm.batch, !llm.kv) -> (logits, !llm.kv), found " << type;
    return checkBody(step);
  }

  //===--- another model ------------------------------------------------------===//

  LogicalResult takeModel(ModuleOp module, func::FuncOp step) {
    auto model = module.lookupSymbol<ModuleOp>(draftName);
    auto draft = model ? model.lookupSymbol<func::FuncOp>("step") : func::FuncOp();
    if (!draft) return module.emitError() << "llm-speculate: expected a module named 'draft' with the draft model's 'step'";
    if (draft.getFunctionType() != step.getFunctionType()) {
      auto diagnostic = draft.emitError() << "llm-speculate: expected a draft model of type " << step.getFunctionType() << ", found " << draft.getFunctionType();
      diagnostic.attachNote(step.getLoc()) << "the model it drafts for";
      return diagnostic;
    }
    describe(module, positionsOf(model));
    adopt(module, step, model, draft);
    draft->moveAfter(step);
    draft.setName(draftName);
    model->destroy();
    return success();
  }

  /// Moves params and KV groups of |model| in front of |step|, with names of their own, and has |users| refer to them. |model| leaves the module.
  void adopt(ModuleOp module, func::FuncOp step, ModuleOp model, ArrayRef<func::FuncOp> users) {
    model->remove(); // its name is the function's
    SymbolTable symbols(module);
    llvm::StringMap<FlatSymbolRefAttr> names;
    // A tensor that both models read, of the same file or of equal value, is one param.
    llvm::DenseMap<std::pair<Attribute, Attribute>, ParamOp> known;
    for (ParamOp param : module.getOps<ParamOp>()) known.try_emplace({param.getValue(), param.getTypeAttr()}, param);
    for (Operation &op : llvm::make_early_inc_range(model.getOps())) {
      auto name = dyn_cast<SymbolOpInterface>(&op);
      if (!name || isa<func::FuncOp>(op)) continue;
      auto param = dyn_cast<ParamOp>(&op);
      std::string old = name.getName().str();
      if (param)
        if (ParamOp same = known.lookup({param.getValue(), param.getTypeAttr()})) {
          names[old] = FlatSymbolRefAttr::get(same);
          ++numShared;
          continue;
        }
      op.moveBefore(step);
      name.setName(("draft." + old));
      names[old] = FlatSymbolRefAttr::get(symbols.insert(&op));
      numParams += bool(param);
    }
    for (func::FuncOp user : users)
      user->walk([&](Operation *op) {
        for (NamedAttribute attr : llvm::to_vector(op->getAttrs()))
          if (auto reference = dyn_cast<FlatSymbolRefAttr>(attr.getValue()))
            if (FlatSymbolRefAttr now = names.lookup(reference.getValue())) op->setAttr(attr.getName(), now);
      });
  }

  //===--- heads over the step's rows ---------------------------------------------===//

  /// What the step's head starts from and what its last linear reads.
  struct HeadOfStep {
    SelectRowsOp select;
    LinearOp linear;
  };
  FailureOr<HeadOfStep> headOf(func::FuncOp step) {
    Block &body = step.getBody().front();
    auto selects = llvm::to_vector(body.getOps<SelectRowsOp>());
    if (selects.size() != 1) return step.emitError() << "llm-speculate: expected one llm.select_rows in the step, found " << selects.size();
    Operation *op = body.getTerminator()->getOperand(0).getDefiningOp();
    while (isa_and_present<SoftcapOp, ScaleOp>(op)) op = op->getOperand(0).getDefiningOp();
    auto linear = dyn_cast_if_present<LinearOp>(op);
    if (!linear) return step.emitError() << "llm-speculate: expected logits made by a linear";
    return HeadOfStep{selects[0], linear};
  }

  LogicalResult takeHeads(ModuleOp module, func::FuncOp step) {
    auto model = module.lookupSymbol<ModuleOp>(draftName);
    auto heads = model ? model.lookupSymbol<func::FuncOp>("heads") : func::FuncOp();
    if (!heads) return module.emitError() << "llm-speculate: expected a module named 'draft' with a function 'heads'";
    if (failed(checkStep(step)) || failed(checkBody(heads))) return failure();
    FailureOr<HeadOfStep> head = headOf(step);
    if (failed(head)) return failure();
    Type rows = head->linear.getInput().getType(), logits = step.getResultTypes()[0];
    auto type = heads.getFunctionType();
    if (type.getNumInputs() != 1 || type.getInput(0) != rows || type.getNumResults() < 1 || llvm::any_of(type.getResults(), [&](Type t) { return t != logits; })) {
      auto diagnostic = heads.emitError() << "llm-speculate: expected heads that take " << rows << " and give " << logits << ", found " << type;
      diagnostic.attachNote(step.getLoc()) << "the model they draft for";
      return diagnostic;
    }
    describe(module, positionsOf(module));
    adopt(module, step, model, heads);
    // The draft: the rows of the step, what the step's head makes of them, the heads.
    OpBuilder b(&getContext());
    b.setInsertionPointAfter(step);
    Value hidden = head->select.getInput();
    SmallVector<Type> inputs(step.getArgumentTypes()), results(type.getResults());
    inputs.push_back(hidden.getType());
    results.push_back(step.getResultTypes()[1]);
    auto draft = func::FuncOp::create(b, heads.getLoc(), draftName, b.getFunctionType(inputs, results));
    Block *entry = draft.addEntryBlock();
    b.setInsertionPointToStart(entry);
    IRMapping map;
    for (auto [from, to] : llvm::zip(step.getArguments(), entry->getArguments())) map.map(from, to);
    map.map(hidden, entry->getArguments().back());
    llvm::SmallPtrSet<Operation *, 8> needed;
    SmallVector<Value> work{head->linear.getInput()};
    while (!work.empty()) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (!op || !needed.insert(op).second || op == head->select) continue;
      llvm::append_range(work, op->getOperands());
    }
    for (Operation &op : step.getBody().front())
      if (needed.contains(&op)) b.clone(op, map);
    map.map(heads.getArgument(0), map.lookup(head->linear.getInput()));
    for (Operation &op : heads.getBody().front().without_terminator()) b.clone(op, map);
    SmallVector<Value> returned;
    for (Value v : heads.getBody().front().getTerminator()->getOperands()) returned.push_back(map.lookup(v));
    returned.push_back(entry->getArgument(1));
    func::ReturnOp::create(b, heads.getLoc(), returned);
    model->destroy();
    return success();
  }

  //===--- a layer over features ---------------------------------------------------===//

  /// Adds |extra| to what |step| returns, in front of the cache.
  void returnMore(func::FuncOp step, ValueRange extra) {
    Operation *end = step.getBody().front().getTerminator();
    end->insertOperands(1, extra);
    SmallVector<Type> results(end->getOperandTypes());
    if (auto attrs = step.getAllResultAttrs()) {
      SmallVector<Attribute> all(attrs.begin(), attrs.end());
      all.insert(all.begin() + 1, extra.size(), DictionaryAttr::get(&getContext()));
      step.setResAttrsAttr(ArrayAttr::get(&getContext(), all));
    }
    step.setType(FunctionType::get(&getContext(), step.getArgumentTypes(), results));
  }

  /// Clones into |b| what |value| is made of, as far as |map| does not know it.
  static Value cloneInto(OpBuilder &b, Value value, IRMapping &map) {
    if (Value known = map.lookupOrNull(value)) return known;
    Operation *op = value.getDefiningOp();
    for (Value operand : op->getOperands()) cloneInto(b, operand, map);
    b.clone(*op, map);
    return map.lookup(value);
  }

  static Value inlined(OpBuilder &b, func::FuncOp function, ValueRange arguments, SmallVector<Value> *all = nullptr) {
    IRMapping map;
    for (auto [from, to] : llvm::zip(function.getArguments(), arguments)) map.map(from, to);
    for (Operation &op : function.getBody().front().without_terminator()) b.clone(op, map);
    SmallVector<Value> results;
    for (Value v : function.getBody().front().getTerminator()->getOperands()) results.push_back(map.lookup(v));
    if (all) *all = results;
    return results[0];
  }

  LogicalResult takeLayer(ModuleOp module, func::FuncOp step) {
    auto model = module.lookupSymbol<ModuleOp>(draftName);
    auto layer = model ? model.lookupSymbol<func::FuncOp>("layer") : func::FuncOp();
    auto head = model ? model.lookupSymbol<func::FuncOp>("head") : func::FuncOp();
    bool third = method == "eagle3";
    if (!layer || (third && !head))
      return module.emitError() << "llm-speculate: expected a module named 'draft' with a function 'layer'" << (third ? " and a function 'head'" : "");
    if (failed(checkStep(step)) || failed(checkBody(layer)) || (third && failed(checkBody(head)))) return failure();
    FailureOr<HeadOfStep> of = headOf(step);
    if (failed(of)) return failure();
    Value hidden = of->select.getInput(), logits = step.getBody().front().getTerminator()->getOperand(0);
    Type rows = hidden.getType();
    int64_t width = cast<RankedTensorType>(rows).getDimSize(1);
    Block &body = step.getBody().front();
    OpBuilder b(&getContext());
    auto batch = BatchType::get(&getContext());
    auto kv = step.getArgumentTypes()[1];
    SmallVector<Type> wanted{batch, kv};
    wanted.append(third ? 5 : 2, rows);
    auto wantedLayer = b.getFunctionType(wanted, {rows, kv});
    auto refuse = [&](func::FuncOp function, const Twine &type) {
      auto diagnostic = function.emitError() << "llm-speculate: expected a function of type " << type.str() << ", found " << function.getFunctionType();
      diagnostic.attachNote(step.getLoc()) << "the model it drafts for";
      return diagnostic;
    };
    auto text = [](Type type) {
      std::string s;
      llvm::raw_string_ostream(s) << type;
      return s;
    };
    if (layer.getFunctionType() != wantedLayer) return refuse(layer, text(wantedLayer));
    auto about = model->getAttrOfType<DictionaryAttr>("llm.eagle");
    // The first embedding is where the model begins.
    auto embeds = llvm::to_vector(body.getOps<EmbedOp>());
    if (embeds.size() != 1 || embeds[0].getPositions() || embeds[0].getResult().getType() != rows)
      return step.emitError() << "llm-speculate: expected a step that embeds tokens once, in rows of type " << rows;
    SmallVector<Value> features;
    DenseElementsAttr tokens;
    if (third) {
      auto type = head.getFunctionType();
      bool fits = type.getNumInputs() == 1 && type.getInput(0) == rows && type.getNumResults() == 1;
      auto made = fits ? dyn_cast<RankedTensorType>(type.getResult(0)) : RankedTensorType();
      if (!made || made.getRank() != 2 || !made.isDynamicDim(0) || made.isDynamicDim(1) || !made.getElementType().isF32()) return refuse(head, "(" + text(rows) + ") -> logits");
      auto layers = about ? about.getAs<DenseI64ArrayAttr>("features") : DenseI64ArrayAttr();
      auto appends = llvm::to_vector(body.getOps<KVAppendOp>());
      if (!layers || layers.size() != 3 || llvm::any_of(layers.asArrayRef(), [&](int64_t l) { return l < 0 || l >= int64_t(appends.size()); }))
        return model.emitError() << "llm-speculate: expected an attribute llm.eagle with three features, layers below " << appends.size();
      for (int64_t l : layers.asArrayRef()) {
        features.push_back(layerInput(appends[l]));
        if (features.back().getType() != rows)
          return appends[l].emitError() << "llm-speculate: expected rows of type " << rows << " in front of layer " << l << ", found " << features.back().getType();
      }
      tokens = about.getAs<DenseElementsAttr>("tokens");
      int64_t vocabulary = cast<RankedTensorType>(logits.getType()).getDimSize(1), found = tokens ? tokens.getNumElements() : vocabulary;
      if (found != made.getDimSize(1) || (tokens && !tokens.getElementType().isInteger(32)))
        return head.emitError() << "llm-speculate: expected a head of " << found << " tokens, found " << made.getDimSize(1);
    }
    // What makes the features of EAGLE's first kind: the last norm, whose rows of zeros must be zeros.
    auto norm = of->linear.getInput().getDefiningOp<RmsNormOp>();
    if (!third && (!norm || norm.getInput() != of->select.getResult() || norm.getHeads() != 1))
      return step.emitError() << "llm-speculate: expected an llm.rms_norm between llm.select_rows and the last linear";
    int64_t featureCount = third ? 3 : 1;
    describe(module, positionsOf(model, "llm.eagle"), tokens);
    adopt(module, step, model, third ? ArrayRef{layer, head} : ArrayRef{layer});
    b.setInsertionPointAfter(step);
    auto input = RankedTensorType::get({ShapedType::kDynamic, width * (1 + featureCount)}, b.getF32Type());
    auto draft = func::FuncOp::create(b, layer.getLoc(), draftName, b.getFunctionType({batch, kv, input}, {third ? head.getResultTypes()[0] : logits.getType(), kv}));
    Block *entry = draft.addEntryBlock();
    b.setInsertionPointToStart(entry);
    SmallVector<Value> parts;
    for (int64_t i = 0; i <= featureCount; ++i) parts.push_back(ColumnsOp::create(b, layer.getLoc(), rows, entry->getArgument(2), i * width));
    IRMapping map;
    for (auto [from, to] : llvm::zip(step.getArguments(), entry->getArguments())) map.map(from, to);
    SmallVector<Value> arguments{entry->getArgument(0), entry->getArgument(1), cloneInto(b, embeds[0].getResult(), map)}, made;
    if (third) {
      llvm::append_range(arguments, parts);
    } else {
      // One of the two is zeros, of which the norm makes zeros.
      Value weight = cloneInto(b, norm.getWeight(), map);
      Value feature = RmsNormOp::create(b, norm.getLoc(), rows, parts[1], weight, norm.getEpsAttr(), norm.getHeadsAttr());
      arguments.push_back(AddOp::create(b, layer.getLoc(), rows, parts[0], feature));
    }
    Value own = inlined(b, layer, arguments, &made);
    Value selected = SelectRowsOp::create(b, layer.getLoc(), rows, own, entry->getArgument(0));
    Value guess;
    if (third) {
      guess = inlined(b, head, selected);
    } else {
      map.map(of->linear.getInput(), selected);
      guess = cloneInto(b, logits, map);
    }
    func::ReturnOp::create(b, layer.getLoc(), ValueRange{guess, made[1]});
    if (third) returnMore(step, features);
    model->destroy();
    return success();
  }

  //===--- the first layers -----------------------------------------------------===//

  LogicalResult firstLayers(ModuleOp module, func::FuncOp step) {
    if (failed(checkStep(step))) return failure();
    auto draft = cast<func::FuncOp>(step->clone());
    OwningOpRef<func::FuncOp> owned(draft);
    draft.setName(draftName);
    Block &body = draft.getBody().front();
    auto appends = llvm::to_vector(body.getOps<KVAppendOp>());
    auto selects = llvm::to_vector(body.getOps<SelectRowsOp>());
    auto count = int64_t(appends.size());
    if (layers < 1 || layers >= count)
      return step.emitError() << "llm-speculate: expected layers in 1 .. " << count - 1 << " of a model of " << count << ", found " << int64_t(layers);
    if (selects.size() != 1) return step.emitError() << "llm-speculate: expected one llm.select_rows in the step, found " << selects.size();
    KVAppendOp rest = appends[layers];
    Value rows = layerInput(rest);
    if (rows.getType() != selects[0].getInput().getType())
      return rest.emitError() << "llm-speculate: expected rows of type " << selects[0].getInput().getType() << " in front of layer " << int64_t(layers) << ", found "
                              << rows.getType();
    selects[0]->setOperand(0, rows);
    body.getTerminator()->setOperand(1, rest.getKv());
    SmallVector<Operation *> ops = llvm::to_vector(llvm::make_pointer_range(body.without_terminator()));
    for (Operation *op : llvm::reverse(ops))
      if (op->use_empty()) op->erase(); // ops have no effects
    module.insert(std::next(step->getIterator()), owned.release());
    describe(module, positionsOf(module));
    return success();
  }
};

} // namespace
