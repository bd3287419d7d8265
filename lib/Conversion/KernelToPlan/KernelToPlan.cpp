//===- KernelToPlan.cpp - kernel calls become launches over an arena ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Time is the index of a kernel op in the step. A buffer lives from the op that writes it to the last op that
// reads it; views and in-place results share their operand's buffer. Offsets are chosen largest first, at the lowest
// place that is free for the whole lifetime.
//===----------------------------------------------------------------------===//
#include "PlanOptions.h"
#include "NVPTX/Kernels.h"
#include "dialects/Kernel/Kernel.h"
#include "dialects/Plan/Plan.h"
#include "lathe/Codegen/Operands.h"
#include "lathe/Codegen/Params.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/artifact/Program.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

namespace lathe {
#define GEN_PASS_DEF_KERNELTOPLANPASS
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe;
using namespace lathe::codegen;
using kernel::RowsType;

namespace {

class Planner {
public:
  /// |draft| may be null.
  Planner(ModuleOp module, func::FuncOp step, func::FuncOp draft, const PlanOptions &options)
      : module(module), step(step), draft(draft), options(options), symbols(module), b(module.getContext()) {}
  int64_t kernelCount = 0, launchCount = 0, arena = 0;

  LogicalResult run() {
    steps.function = step;
    drafts.function = draft;
    hardwareSums = sumsInHardware(step) && (!draft || sumsInHardware(draft));
    if (failed(number(steps, 0)) || (draft && failed(number(drafts, steps.end + 1)))) return failure();
    kernel::OutputOp output = steps.output;
    int64_t stride = output.getLogits().getType().getStride();
    maxOutRows = std::clamp<int64_t>(options.logitBytes / (stride * 4) / 16 * 16, 16, std::max<int64_t>(options.maxRows, 16));
    for (Part *part : {&steps, &drafts})
      for (Operation *op : part->order)
        if (auto attention = dyn_cast<kernel::AttentionOp>(op)) options.boundSplit(partialBytes(attention));
    for (Part *part : {&steps, &drafts})
      if (part->output && failed(assignBuffers(*part))) return failure();
    placeBuffers();

    b.setInsertionPoint(step);
    program = plan::ProgramOp::create(b, step.getLoc(), options.maxRows, maxOutRows, options.maxSeq, output.getLogits().getType().getWidth(),
                                      output.getHidden().getType().getWidth(), arena, offsetOf(output.getHidden()),
                                      output.getHidden().getType().getStride(), offsetOf(output.getLogits()), stride, IntegerAttr(), IntegerAttr(),
                                      IntegerAttr(), IntegerAttr(), IntegerAttr(), IntegerAttr(), IntegerAttr(), IntegerAttr(), IntegerAttr(), DenseI64ArrayAttr(), IntegerAttr(), IntegerAttr(),
                                      IntegerAttr(), DenseI64ArrayAttr(), DenseIntElementsAttr());
    if (Value embedding = output.getEmbedding()) {
      program.setEmbeddingOffset(offsetOf(embedding));
      program.setEmbeddingStride(cast<RowsType>(embedding.getType()).getStride());
    }
    if (Value choices = output.getChoices()) {
      program.setChoicesOffset(offsetOf(choices));
      program.setChoicesStride(strideOf(choices));
    }
    if (draft) {
      if (failed(checkDraftGroups())) return failure();
      Value logits = drafts.output.getLogits();
      SmallVector<int64_t> more;
      for (Value result : drafts.results()) {
        int64_t wanted = options.draftTokens ? options.draftTokens.getNumElements() : output.getLogits().getType().getWidth(), found = cast<RowsType>(result.getType()).getWidth();
        if (found != wanted) return draft.emitError() << "expected drafts of " << wanted << " tokens, found " << found;
        if (places[result].column || strideOf(result) != strideOf(logits)) return draft.emitError() << "unsupported: logits that are columns of other rows";
        if (result != logits) more.push_back(offsetOf(result));
      }
      program.setDraftMaxSeq(options.draftMaxSeq);
      program.setDraftLogitsOffset(offsetOf(logits));
      program.setDraftLogitsStride(strideOf(logits));
      if (Value input = drafts.input()) {
        program.setDraftMethod(int64_t(options.draftMethod));
        program.setDraftInputOffset(offsetOf(input));
        program.setDraftInputStride(strideOf(input));
        program.setDraftInputSize(cast<RowsType>(input.getType()).getWidth());
        program.setDraftMoreLogits(more);
        int64_t hidden = output.getHidden().getType().getWidth(), parts = goesOnFromItself(options.draftMethod) ? 1 + std::max<size_t>(1, output.getFeatures().size()) : 1;
        if (cast<RowsType>(input.getType()).getWidth() != parts * hidden)
          return draft.emitError() << "expected a draft that takes rows of " << parts * hidden << ", found " << cast<RowsType>(input.getType()).getWidth();
        if (failed(placeFeatures())) return failure();
        if (options.draftMethod == DraftMethod::program)
          return draft.emitError() << "expected an attribute llm.draft of the module with a method that takes rows, such as 'medusa'";
        if (more.size() + 1 > maxDraftTokens) return draft.emitError() << "expected at most " << maxDraftTokens << " heads, found " << more.size() + 1;
      } else if (!more.empty()) {
        return draft.emitError() << "unsupported: " << more.size() + 1 << " heads of a draft that takes no rows";
      }
    }
    Block *body = new Block();
    program.getBody().push_back(body);
    b.setInsertionPointToEnd(body);
    emitWeights();
    emitGroups();
    for (auto &buffer : buffers)
      plan::BufferOp::create(b, step.getLoc(), bufferName(buffer.id), buffer.offset, buffer.bytes, buffer.first, buffer.last);
    if (failed(entries(steps, "step", "head", "embed", "head_choices")) || (draft && failed(entries(drafts, "draft", "draft_head", "", "")))) return failure();
    step.erase();
    if (draft) draft.erase();
    return success();
  }

private:
  struct Buffer {
    int64_t id, bytes, first, last, offset = 0;
  };
  /// The step or the draft program. They never run at the same time, and between two runs of one the results of the other are not looked at: only a
  /// part's own results and what its head starts from stand until its |end|.
  struct Part {
    func::FuncOp function;
    std::vector<Operation *> order;
    kernel::OutputOp output;
    int64_t begin = 0, end = 0;
    /// Rows that the caller writes before a run, or null.
    Value input() {
      for (Value argument : function.getArguments())
        if (isa<RowsType>(argument.getType())) return argument;
      return {};
    }
    /// The logits of each head.
    SmallVector<Value> results() {
      SmallVector<Value> all{output.getLogits()};
      llvm::append_range(all, output.getMore());
      return all;
    }
  };
  /// Rows that a draft which goes on from its own takes of the step, and those own rows.
  LogicalResult placeFeatures() {
    auto hidden = steps.output.getHidden().getType();
    SmallVector<int64_t> offsets;
    for (Value feature : steps.output.getFeatures()) {
      auto type = cast<RowsType>(feature.getType());
      if (type.getWidth() != hidden.getWidth() || type.getStride() != hidden.getStride() || places[feature].column)
        return step.emitError() << "expected rows for the draft of " << hidden.getWidth() << ", as the head starts from, found " << type.getWidth();
      offsets.push_back(offsetOf(feature));
    }
    bool own = goesOnFromItself(options.draftMethod);
    if (!own && (!offsets.empty() || options.draftTokens)) return draft.emitError() << "expected a method of llm.draft that goes on from its own rows, such as 'eagle3'";
    if (!own) return success();
    auto type = drafts.output.getHidden().getType();
    if (type.getWidth() != hidden.getWidth() || type.getStride() != hidden.getStride() || places[drafts.output.getHidden()].column)
      return draft.emitError() << "expected own rows of " << hidden.getWidth() << ", found " << type.getWidth();
    program.setDraftOwnOffset(offsetOf(drafts.output.getHidden()));
    if (!offsets.empty()) program.setDraftFeatures(offsets);
    if (options.draftTokens) program.setDraftTokensAttr(options.draftTokens);
    return success();
  }
  LogicalResult number(Part &part, int64_t at) {
    part.begin = at;
    for (Operation &op : part.function.getBody().front())
      if (!isa<func::ReturnOp>(op)) time[&op] = at++, part.order.push_back(&op);
    part.end = at;
    part.output = dyn_cast_if_present<kernel::OutputOp>(part.order.empty() ? nullptr : part.order.back());
    if (!part.output) return part.function.emitError() << "expected a kernel.output at the end of the step";
    return success();
  }

  /// The ops of the head that |results| are made by.
  llvm::DenseSet<Operation *> headOf(ArrayRef<Value> results) {
    llvm::DenseSet<Operation *> all;
    SmallVector<Value> work(results);
    while (!work.empty()) {
      Value v = work.pop_back_val();
      Operation *op = v ? v.getDefiningOp() : nullptr;
      if (op && isHead(op) && all.insert(op).second) llvm::append_range(work, op->getOperands());
    }
    return all;
  }

  /// The launches of |part|: its rows, its head, and, if the names are not empty, what makes embeddings of them and what makes choices instead of logits.
  LogicalResult entries(Part &part, StringRef rowsName, StringRef headName, StringRef embedName, StringRef choicesName) {
    SmallVector<Operation *> rowOps, headOps, embedOps, choiceOps;
    auto forLogits = headOf(part.results()), forChoices = headOf({part.output.getChoices()});
    for (Operation *op : part.order)
      if (!isa<kernel::ViewOp, kernel::OutputOp>(op)) {
        bool embeds = op->getNumResults() && op->getResult(0) == part.output.getEmbedding();
        if (embeds) embedOps.push_back(op);
        bool chooses = forChoices.contains(op);
        if (chooses) choiceOps.push_back(op);
        if (chooses && !forLogits.contains(op)) continue;
        if (!embeds || !op->getResult(0).hasOneUse()) (isHead(op) ? headOps : rowOps).push_back(op);
      }
    bool canSplit = options.splitRows > 0 && llvm::any_of(rowOps, [](Operation *op) { return isa<kernel::AttentionOp>(op); });
    SmallVector<int64_t> sizes;
    if (canSplit && options.splitRows < options.maxRows) sizes.push_back(options.splitRows);
    sizes.push_back(options.maxRows);
    SmallVector<int64_t> headSizes{maxOutRows};
    if (options.gpu) { // a tile of 8 rows, of 16, of 32; with wgmma of 64 and 128, too
      sizes = bucketSizes({8, 16, 32, 64}, options.maxRows);
      headSizes = bucketSizes({8, 32}, maxOutRows);
    }
    if (failed(entry(rowsName, rowOps, sizes)) || failed(entry(headName, headOps, headSizes))) return failure();
    if (!embedOps.empty() && !embedName.empty() && failed(entry(embedName, embedOps, headSizes))) return failure();
    return choiceOps.empty() || choicesName.empty() ? success() : entry(choicesName, choiceOps, headSizes);
  }

  static SmallVector<int64_t> bucketSizes(ArrayRef<int64_t> small, int64_t most) {
    SmallVector<int64_t> sizes;
    for (int64_t rows : small)
      if (rows < most) sizes.push_back(rows);
    sizes.push_back(most);
    return sizes;
  }

  /// Whether every matmul of |function| reads bf16 or e4m3. Others promise the bits of x86 (docs/exactness.md, "GPU"), and attention is part of that.
  static bool sumsInHardware(func::FuncOp function) {
    return !function
                .walk([](Operation *op) {
                  for (Type type : op->getResultTypes())
                    if (auto act = dyn_cast<kernel::ActType>(type); act && !nvptx::sumsInHardware(ActFormat(act.getFormat()))) return WalkResult::interrupt();
                  return WalkResult::advance();
                })
                .wasInterrupted();
  }

  std::string bufferName(int64_t id) { return "b" + std::to_string(id); }
  static bool outRows(Type type) {
    if (auto rows = dyn_cast<RowsType>(type)) return rows.getOut();
    if (auto act = dyn_cast<kernel::ActType>(type)) return act.getOut();
    return false;
  }
  bool isHead(Operation *op) { return op->getNumResults() && outRows(op->getResult(0).getType()); }

  int64_t bytesOf(Type type) {
    int64_t rows = llvm::alignTo(outRows(type) ? maxOutRows : options.maxRows, 16);
    if (auto r = dyn_cast<RowsType>(type)) return rows * r.getStride() * 4;
    auto act = cast<kernel::ActType>(type);
    if (options.gpu) return nvptx::actBytes(rows, act.getK(), ActFormat(act.getFormat()), act.getHalves());
    return activationBytes(rows, act.getK(), ActFormat(act.getFormat()), act.getHalves());
  }

  /// Chunks of history that split attention may have.
  int64_t maxChunks() const { return llvm::divideCeil(options.maxSeq, options.chunk); }
  /// What partials of a row of |op| take.
  int64_t partialBytes(kernel::AttentionOp op) { return partialRowBytes(op.getHeads(), llm::lookupLayer(group(op.getGroup()), op.getLayer()).getValueSize(), maxChunks()); }

  struct Place { ///< which buffer and column a value is
    int64_t buffer = -1, column = 0;
  };
  int64_t offsetOf(Value v) { return buffers[places[v].buffer].offset + places[v].column * 4; }

  int64_t lastUse(Value v) {
    int64_t last = v.getDefiningOp() ? time[v.getDefiningOp()] : 0;
    for (Operation *user : v.getUsers())
      last = std::max(last, time[user]);
    return last;
  }

  LogicalResult assignBuffers(Part &part) {
    const size_t first = buffers.size(); // those before are another part's
    std::vector<SmallVector<Value>> members(first);
    auto bufferLast = [&](int64_t id) {
      int64_t last = 0;
      for (Value v : members[id])
        last = std::max(last, lastUse(v));
      return last;
    };
    auto alias = [&](Value v, Value of, int64_t column) {
      places[v] = {places[of].buffer, places[of].column + column};
      members[places[of].buffer].push_back(v);
    };
    if (Value input = part.input()) {
      places[input] = {int64_t(buffers.size()), 0};
      buffers.push_back({int64_t(buffers.size()), int64_t(llvm::alignTo(bytesOf(input.getType()), 64)), part.begin, 0});
      members.push_back({input});
    }
    for (Operation *op : part.order) {
      for (Value result : op->getResults()) {
        if (isa<llm::KVType>(result.getType())) continue;
        if (auto view = dyn_cast<kernel::ViewOp>(op)) {
          alias(result, view.getInput(), view.getBegin());
          continue;
        }
        if (auto rope = dyn_cast<kernel::RopeAppendOp>(op)) {
          alias(result, rope.getQ(), 0);
          continue;
        }
        Value residual;
        if (auto matmul = dyn_cast<kernel::MatmulOp>(op)) residual = matmul.getResidual();
        if (auto norm = dyn_cast<kernel::NormOp>(op)) residual = norm.getResidual();
        if (residual && residual.getType() == result.getType() && places[residual].column == 0 &&
            bufferLast(places[residual].buffer) == time[op] && residual != op->getOperand(0)) {
          alias(result, residual, 0);
          continue;
        }
        int64_t id = buffers.size();
        buffers.push_back({id, int64_t(llvm::alignTo(bytesOf(result.getType()), 64)), time[op], 0});
        members.push_back({result});
        places[result] = {id, 0};
      }
    }
    for (Buffer &buffer : llvm::drop_begin(buffers, first))
      buffer.last = bufferLast(buffer.id);
    // The head may run several times after one step, so what it starts from outlives it.
    for (Operation *op : part.order)
      if (isHead(op))
        for (Value operand : op->getOperands())
          if (places.count(operand) && !outRows(operand.getType())) buffers[places[operand].buffer].last = part.end;
    buffers[places[part.output.getHidden()].buffer].last = part.end;
    for (Value feature : part.output.getFeatures()) buffers[places[feature].buffer].last = part.end;
    for (Operation *op : part.order)
      if (auto attention = dyn_cast<kernel::AttentionOp>(op); attention && options.splitRows > 0) {
        int64_t bytes = llvm::alignTo(std::min(options.splitRows, options.maxRows), 16) * partialBytes(attention);
        partials[op] = buffers.size();
        buffers.push_back({int64_t(buffers.size()), bytes, time[op], time[op]});
      }
    return success();
  }

  void placeBuffers() {
    SmallVector<Buffer *> bySize;
    for (auto &buffer : buffers)
      bySize.push_back(&buffer);
    llvm::sort(bySize, [](Buffer *x, Buffer *y) { return std::pair(y->bytes, x->id) < std::pair(x->bytes, y->id); });
    SmallVector<Buffer *> placed;
    for (Buffer *buffer : bySize) {
      SmallVector<Buffer *> conflicts;
      for (Buffer *other : placed)
        if (other->first <= buffer->last && buffer->first <= other->last) conflicts.push_back(other);
      llvm::sort(conflicts, [](Buffer *x, Buffer *y) { return x->offset < y->offset; });
      int64_t at = 0;
      for (Buffer *other : conflicts) {
        if (other->offset >= at + buffer->bytes) break;
        at = std::max(at, other->offset + other->bytes);
      }
      buffer->offset = at;
      arena = std::max(arena, at + buffer->bytes);
      placed.push_back(buffer);
    }
  }

  void emitWeights() {
    int64_t at = 0;
    auto add = [&](Operation *op, int64_t bytes) {
      auto name = SymbolTable::getSymbolName(op);
      plan::WeightOp::create(b, op->getLoc(), name, FlatSymbolRefAttr::get(name), b.getI64IntegerAttr(at), b.getI64IntegerAttr(bytes));
      at = llvm::alignTo(at + bytes, 64);
    };
    for (Operation &op : module.getOps()) {
      if (auto packed = dyn_cast<kernel::PackedOp>(op))
        add(&op, packedBytes(llm::storageType(packed.getStorage()), packed.getN(), packed.getK()));
      if (auto vector = dyn_cast<kernel::VectorOp>(op)) add(&op, vector.getN() * rowStride(vector.getK()) * 4);
    }
  }

  /// Symbols that the ops of |part| refer to.
  static llvm::StringSet<> namedBy(const Part &part) {
    llvm::StringSet<> names;
    for (Operation *op : part.order)
      for (NamedAttribute attr : op->getAttrs())
        if (auto name = dyn_cast<FlatSymbolRefAttr>(attr.getValue())) names.insert(name.getValue());
    return names;
  }
  /// The runtime keeps a draft's own KV apart from the step's, and a draft has one or the other; heads have none, and what goes on from its own rows has its own.
  LogicalResult checkDraftGroups() {
    llvm::StringSet<> byStep = namedBy(steps), byDraft = namedBy(drafts);
    int groups[2] = {};
    for (auto g : module.getOps<llm::KVGroupOp>())
      if (byDraft.contains(g.getSymName())) ++groups[byStep.contains(g.getSymName())];
    if (groups[0] && groups[1]) return draft.emitError() << "expected a draft that reads KV groups of its own or those of the step, found both";
    bool own = goesOnFromItself(options.draftMethod);
    if (drafts.input() && !own && groups[0] + groups[1]) return draft.emitError() << "expected no KV group of a draft that takes rows, found " << groups[0] + groups[1];
    if (own && groups[1]) return draft.emitError() << "expected KV groups of its own of a draft that goes on from its own rows, found the step's";
    return success();
  }

  llm::KVGroupOp group(StringRef name) { return symbols.lookup<llm::KVGroupOp>(name); }
  void emitGroups() {
    // A group that the step does not name is the draft's own; the step's come first.
    llvm::StringSet<> named = namedBy(steps);
    for (bool own : {false, true})
      for (auto g : module.getOps<llm::KVGroupOp>()) {
        if (own != (draft && !named.contains(g.getSymName()))) continue;
        size_t index = groupIndex.size();
        groupIndex[g.getSymName()] = index;
        plan::KVGroupOp::create(b, g.getLoc(), g.getSymName(), g.getWindow() ? 1 : 0, g.getWindow(), g.getPage(), g.getLayers().size(),
                                kernel::kvGeometry(g, 0).blockStride, own, b.getDenseI64ArrayAttr(kernel::kvPlanes(g)));
      }
  }

  //===--- launches -----------------------------------------------------------===//

  struct LaunchSpec {
    SmallVector<Attribute> args;
    SmallVector<int64_t> offsets;
    ItemKind items = ItemKind::perRow;
    int64_t count = 1, itemRows = 1;
    ShareKind share = ShareKind::contiguous;
    bool barrier = true;
    KernelCost cost;
  };
  void arg(LaunchSpec &l, Value v, int64_t column = 0) {
    l.args.push_back(FlatSymbolRefAttr::get(b.getContext(), bufferName(places[v].buffer)));
    l.offsets.push_back((places[v].column + column) * 4);
  }
  void arg(LaunchSpec &l, FlatSymbolRefAttr weight) {
    l.args.push_back(weight);
    l.offsets.push_back(0);
  }
  void argKV(LaunchSpec &l, FlatSymbolRefAttr group, int64_t layer) {
    l.args.push_back(group);
    l.offsets.push_back(kernel::kvGeometry(this->group(group.getValue()), layer).layerOffset);
  }

  template <typename P>
  void launch(Operation *op, StringRef family, const P &params, LaunchSpec &l, Region *body = nullptr) {
    DictionaryAttr dictionary = toDictionary(b.getContext(), params);
    nvptx::LaunchShape shape;
    if constexpr (requires { nvptx::launchShape(params); })
      if (options.gpu) {
        shape = nvptx::launchShape(params);
        l.items = shape.items, l.count = shape.count, l.itemRows = shape.itemRows;
      }
    std::string key = family.str();
    llvm::raw_string_ostream os(key);
    dictionary.print(os);
    if (body) {
      OpPrintingFlags flags;
      for (Operation &inner : body->front())
        inner.print(os, flags.useLocalScope());
    }
    auto [it, inserted] = kernelNames.try_emplace(key, FlatSymbolRefAttr());
    if (inserted) {
      it->second = FlatSymbolRefAttr::get(b.getContext(), "k" + std::to_string(kernelCount++) + "_" + family.str());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&program.getBody().front());
      auto k = plan::KernelOp::create(b, op->getLoc(), it->second.getValue(), family, dictionary);
      if (options.gpu) {
        k->setAttr("threads", b.getI64IntegerAttr(shape.threads));
        k->setAttr("shared_bytes", b.getI64IntegerAttr(shape.sharedBytes));
      }
      if (body) {
        IRMapping mapping;
        body->cloneInto(&k.getBody(), mapping);
      }
    }
    std::string label = layerName(op->getLoc());
    label = label.empty() ? family.str() : label + " (" + family.str() + ")";
    auto launch = plan::LaunchOp::create(b, op->getLoc(), b.getStringAttr(label), it->second, b.getArrayAttr(l.args), b.getDenseI64ArrayAttr(l.offsets),
                           b.getI64IntegerAttr(int64_t(l.items)), b.getI64IntegerAttr(l.count), b.getI64IntegerAttr(l.itemRows),
                           b.getI64IntegerAttr(int64_t(l.share)), b.getBoolAttr(l.barrier), b.getI64IntegerAttr(time[op]),
                           b.getI64IntegerAttr(l.cost.weightBytes), b.getI64IntegerAttr(l.cost.macsPerRow), b.getI64IntegerAttr(l.cost.bytesPerRow));
    if (l.cost.macsPerEntry) {
      launch->setAttr("bytes_per_entry", b.getI64IntegerAttr(l.cost.bytesPerEntry));
      launch->setAttr("macs_per_entry", b.getI64IntegerAttr(l.cost.macsPerEntry));
    }
    if (l.cost.arithmetic != Arithmetic::int8) launch->setAttr("arithmetic", b.getI64IntegerAttr(int64_t(l.cost.arithmetic)));
    ++launchCount;
  }

  static ItemKind rowItems(bool out) { return out ? ItemKind::perOutRow : ItemKind::perRow; }
  static int64_t strideOf(Value v) { return cast<RowsType>(v.getType()).getStride(); }
  template <typename P>
  static void setAct(P &p, Type type) {
    auto act = cast<kernel::ActType>(type);
    p.act = ActFormat(act.getFormat());
    p.halves = act.getHalves();
  }

  LogicalResult entry(StringRef name, ArrayRef<Operation *> ops, ArrayRef<int64_t> sizes) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(&program.getBody().front());
    auto e = plan::EntryOp::create(b, step.getLoc(), name);
    e.getBody().push_back(new Block());
    for (int64_t rows : sizes) {
      b.setInsertionPointToEnd(&e.getBody().front());
      auto bucket = plan::BucketOp::create(b, step.getLoc(), rows);
      bucket.getBody().push_back(new Block());
      b.setInsertionPointToEnd(&bucket.getBody().front());
      split = options.splitRows > 0 && rows <= options.splitRows;
      rowTile = rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
      for (Operation *op : ops) {
        auto result = llvm::TypeSwitch<Operation *, LogicalResult>(op)
                          .Case<kernel::GatherOp, kernel::NormOp, kernel::QuantizeOp, kernel::ActivateOp, kernel::MatmulOp, kernel::AnglesOp,
                                kernel::RopeAppendOp, kernel::AttentionOp, kernel::SelectOp, kernel::ArgmaxOp, kernel::LoopsOp>([&](auto o) { return plan(o); })
                          .Default([](Operation *o) { return o->emitError() << "unsupported: no launch for this op"; });
        if (failed(result)) return failure();
      }
    }
    return success();
  }

  LogicalResult plan(kernel::GatherOp op) {
    auto packed = symbols.lookup<kernel::PackedOp>(op.getWeight());
    GatherParams p;
    p.type = llm::storageType(packed.getStorage());
    p.n = packed.getN(), p.k = packed.getK(), p.scale = op.getScale().convertToFloat();
    p.outStride = strideOf(op.getResult());
    p.addPositions = bool(op.getPositions());
    LaunchSpec l;
    arg(l, op.getWeightAttr()), arg(l, op.getResult());
    if (op.getPositions()) arg(l, op.getPositionsAttr());
    l.cost = cost(p);
    launch(op, "gather", p, l);
    return success();
  }

  LogicalResult plan(kernel::NormOp op) {
    NormParams p;
    p.k = op.getInput().getType().getWidth();
    p.layerNorm = op.getLayerNorm(), p.eps = op.getEps().convertToFloat(), p.bias = bool(op.getBias());
    p.outRows = op.getSelect(), p.inStride = strideOf(op.getInput());
    if (!op.getSelect() && outRows(op.getResult().getType())) return op.emitError() << "unsupported: a norm inside the head behind its first op";
    if (isa<RowsType>(op.getResult().getType())) {
      p.out = NormParams::Out::rows;
      p.outStride = strideOf(op.getResult());
    } else {
      setAct(p, op.getResult().getType());
    }
    p.postScaleResidual = bool(op.getResidual());
    LaunchSpec l;
    arg(l, op.getInput()), arg(l, op.getWeightAttr()), arg(l, op.getResult());
    if (op.getBias()) arg(l, op.getBiasAttr());
    if (op.getResidual()) arg(l, op.getResidual());
    l.items = rowItems(outRows(op.getResult().getType()));
    l.cost = cost(p);
    launch(op, "norm", p, l);
    return success();
  }

  LogicalResult plan(kernel::QuantizeOp op) {
    QuantizeParams p;
    p.k = op.getInput().getType().getWidth(), p.inStride = strideOf(op.getInput());
    setAct(p, op.getResult().getType());
    p.outRows = outRows(op.getResult().getType());
    LaunchSpec l;
    arg(l, op.getInput()), arg(l, op.getResult());
    l.items = rowItems(p.outRows);
    l.cost = cost(p);
    launch(op, "quantize", p, l);
    return success();
  }

  LogicalResult plan(kernel::ActivateOp op) {
    ActivationParams p;
    p.k = op.getGate().getType().getWidth(), p.inStride = strideOf(op.getGate()), p.up = bool(op.getUp());
    p.activation = Activation(op.getKind());
    setAct(p, op.getResult().getType());
    if (outRows(op.getResult().getType())) return op.emitError() << "unsupported: a gated activation in the head";
    LaunchSpec l;
    arg(l, op.getGate());
    if (op.getUp()) arg(l, op.getUp());
    arg(l, op.getResult());
    l.cost = cost(p);
    launch(op, "activation", p, l);
    return success();
  }

  LogicalResult plan(kernel::MatmulOp op) {
    for (auto [i, name] : llvm::enumerate(op.getWeights())) {
      auto packed = symbols.lookup<kernel::PackedOp>(cast<FlatSymbolRefAttr>(name).getValue());
      MatmulParams p;
      p.type = llm::storageType(packed.getStorage());
      p.n = packed.getN(), p.k = packed.getK();
      setAct(p, op.getInput().getType());
      if (const char *wrong = operandError(p.type, p.act))
        return op.emitError() << "weight '" << packed.getSymName() << "' of " << llm::stringifyStorage(packed.getStorage()) << ": " << wrong;
      p.outRows = op.getInput().getType().getOut();
      if (op.getGlu()) {
        auto act = cast<kernel::ActType>(op.getResult().getType());
        p.epilogue = MatmulParams::gateUp;
        p.activation = Activation(*op.getGlu());
        p.outAct = ActFormat(act.getFormat());
        p.outHalves = act.getHalves();
      } else {
        p.outStride = strideOf(op.getResult());
        if (op.getArgmax()) {
          p.epilogue = MatmulParams::argmax;
          if (options.gpu) return op.emitError() << "unsupported: a matmul with argmax on a GPU, where 'llm-fuse-head' takes epilogue=false";
          if (cast<RowsType>(op.getResult().getType()).getWidth() != 2 * matmulUnits(p))
            return op.emitError() << "expected a result of width " << 2 * matmulUnits(p) << " for " << p.n << " outputs with argmax, found " << op.getResult().getType();
        }
      }
      p.bias = !op.getBiases().empty(), p.residual = bool(op.getResidual());
      int64_t column = op.getColumns()[i];
      LaunchSpec l;
      arg(l, op.getInput()), arg(l, cast<FlatSymbolRefAttr>(name)), arg(l, op.getResult(), column);
      if (p.bias) arg(l, cast<FlatSymbolRefAttr>(op.getBiases()[i]));
      if (p.residual) arg(l, op.getResidual(), column);
      l.items = ItemKind::fixed, l.count = matmulUnits(p);
      l.barrier = i + 1 == op.getWeights().size();
      l.cost = cost(p);
      if (!options.gpu) {
        launch(op, "matmul", p, l);
        continue;
      }
      nvptx::MmaParams tiled{p};
      tiled.rowTile = rowTile;
      tiled.kSegments = nvptx::segmentsOfK(p);
      launch(op, "matmul", tiled, l);
    }
    return success();
  }

  LogicalResult plan(kernel::AnglesOp op) {
    AnglesParams p;
    p.half = op.getResult().getType().getWidth() / 2;
    p.attentionFactor = op.getFactor().convertToFloat();
    LaunchSpec l;
    arg(l, op.getFrequenciesAttr()), arg(l, op.getResult());
    l.cost = cost(p);
    launch(op, "angles", p, l);
    return success();
  }

  template <typename P>
  void setGroup(P &p, llm::KVGroupOp g, int64_t layer) {
    auto geometry = kernel::kvGeometry(g, layer);
    p.k = KVFormat(g.getKey()), p.v = KVFormat(g.getValue());
    p.page = g.getPage(), p.blockStride = geometry.blockStride, p.headStride = geometry.headStride;
    p.group = groupIndex[g.getSymName()];
  }

  LogicalResult plan(kernel::RopeAppendOp op) {
    RopeAppendParams p;
    LaunchSpec l;
    Value any = op.getQ() ? op.getQ() : op.getK();
    p.qHeads = op.getHeads(), p.kvHeads = op.getKvHeads();
    p.appendKV = bool(op.getK());
    p.qkvStride = strideOf(any);
    if (op.getGroup()) {
      auto g = group(*op.getGroup());
      auto layer = llm::lookupLayer(g, op.getLayer());
      setGroup(p, g, op.getLayer());
      p.headDim = layer.getKeySize(), p.valueDim = layer.getValueSize();
    } else {
      p.headDim = p.valueDim = cast<RowsType>(any.getType()).getWidth() / p.qHeads;
    }
    if (op.getK() && (strideOf(op.getK()) != p.qkvStride || strideOf(op.getV()) != p.qkvStride))
      return op.emitError() << "unsupported: keys and values in rows of different strides";
    p.rope = bool(op.getAngles());
    if (op.getAngles()) p.rotaryDim = cast<RowsType>(op.getAngles().getType()).getWidth();
    p.interleaved = op.getInterleaved();
    p.qNorm = bool(op.getQNorm()), p.kNorm = bool(op.getKNorm()), p.eps = op.getEps().convertToFloat();
    arg(l, any), arg(l, op.getK() ? op.getK() : any), arg(l, op.getV() ? op.getV() : any), arg(l, op.getAngles() ? op.getAngles() : any);
    if (op.getGroup())
      argKV(l, op.getGroupAttr(), op.getLayer());
    else
      arg(l, any);
    if (op.getQNorm()) arg(l, op.getQNormAttr());
    if (op.getKNorm()) arg(l, op.getKNormAttr());
    l.cost = cost(p);
    launch(op, "rope_append", p, l);
    return success();
  }

  LogicalResult plan(kernel::AttentionOp op) {
    auto g = group(op.getGroup());
    auto layer = llm::lookupLayer(g, op.getLayer());
    AttentionParams p;
    setGroup(p, g, op.getLayer());
    p.qHeads = op.getHeads(), p.kvHeads = layer.getHeads(), p.headDim = layer.getKeySize(), p.valueDim = layer.getValueSize();
    p.scale = op.getScale().convertToFloat(), p.softcap = op.getSoftcap().convertToFloat();
    p.window = g.getWindow(), p.chunk = options.chunk, p.qStride = strideOf(op.getQuery());
    if (isa<RowsType>(op.getResult().getType())) {
      p.outStride = strideOf(op.getResult());
    } else {
      p.quantize = true;
      setAct(p, op.getResult().getType());
    }
    if (options.gpu && hardwareSums && nvptx::hasMmaAttention(p.k) && nvptx::hasMmaAttention(p.v)) return planAttention(op, nvptx::MmaAttentionParams{p}, "mma_attention");
    return planAttention(op, p, "attention");
  }

  template <typename P>
  LogicalResult planAttention(kernel::AttentionOp op, P p, StringRef family) {
    if (!split) {
      LaunchSpec l;
      arg(l, op.getQuery()), argKV(l, op.getGroupAttr(), op.getLayer()), arg(l, op.getResult());
      l.items = ItemKind::perRowBlock, l.count = p.kvHeads, l.itemRows = attentionRowBlock(p), l.share = ShareKind::interleaved;
      l.cost = cost(p);
      launch(op, family, p, l);
      return success();
    }
    auto buffer = FlatSymbolRefAttr::get(b.getContext(), bufferName(partials[op]));
    p.form = AttentionParams::split;
    p.maxChunks = maxChunks();
    LaunchSpec l;
    arg(l, op.getQuery()), argKV(l, op.getGroupAttr(), op.getLayer());
    l.args.push_back(buffer), l.offsets.push_back(0);
    l.items = ItemKind::perRowChunk, l.count = p.kvHeads, l.itemRows = options.chunk, l.share = ShareKind::interleaved;
    l.cost = cost(p);
    launch(op, family, p, l);
    p.form = AttentionParams::combine;
    LaunchSpec c;
    c.args.push_back(buffer), c.offsets.push_back(0);
    arg(c, op.getResult());
    c.cost = cost(p);
    launch(op, "attention", static_cast<const AttentionParams &>(p), c);
    return success();
  }

  LogicalResult plan(kernel::SelectOp op) {
    LoopsParams p;
    p.width = op.getResult().getType().getWidth(), p.stride0 = strideOf(op.getInput()), p.outStride = strideOf(op.getResult());
    p.outRows = p.select = true;
    LaunchSpec l;
    arg(l, op.getInput()), arg(l, op.getResult());
    l.items = ItemKind::perOutRow;
    l.cost.bytesPerRow = p.width * 8;
    launch(op, "loops", p, l);
    return success();
  }

  LogicalResult plan(kernel::ArgmaxOp op) {
    ArgmaxParams p;
    auto in = op.getInput().getType();
    p.pairs = op.getPairs(), p.width = in.getWidth() / (p.pairs ? 2 : 1);
    p.inStride = in.getStride(), p.outStride = strideOf(op.getResult()), p.outRows = outRows(op.getResult().getType());
    LaunchSpec l;
    arg(l, op.getInput()), arg(l, op.getResult());
    l.items = rowItems(p.outRows);
    l.cost = cost(p);
    launch(op, "argmax", p, l);
    return success();
  }

  LogicalResult plan(kernel::LoopsOp op) {
    LoopsParams p;
    p.width = op.getResult().getType().getWidth(), p.outStride = strideOf(op.getResult());
    p.inputs = op.getInputs().size();
    if (p.inputs < 1 || p.inputs > 3) return op.emitError() << "unsupported: loops over " << p.inputs << " inputs, expected 1 to 3";
    int64_t *strides[] = {&p.stride0, &p.stride1, &p.stride2};
    LaunchSpec l;
    for (auto [i, input] : llvm::enumerate(op.getInputs()))
      *strides[i] = strideOf(input), arg(l, input);
    arg(l, op.getResult());
    p.outRows = outRows(op.getResult().getType());
    l.items = rowItems(p.outRows);
    l.cost.bytesPerRow = p.width * 4 * (p.inputs + 1);
    launch(op, "loops", p, l, &op.getBody());
    return success();
  }

  ModuleOp module;
  func::FuncOp step, draft;
  PlanOptions options;
  SymbolTable symbols;
  OpBuilder b;
  plan::ProgramOp program;
  Part steps, drafts;
  llvm::DenseMap<Operation *, int64_t> time;
  llvm::DenseMap<Value, Place> places;
  std::vector<Buffer> buffers;
  llvm::DenseMap<Operation *, int64_t> partials;
  llvm::StringMap<int64_t> groupIndex;
  std::map<std::string, FlatSymbolRefAttr> kernelNames;
  int64_t maxOutRows = 16;
  int64_t rowTile = 8; ///< GPU: of the bucket's matmuls
  bool split = false;
  bool hardwareSums = false;
};

struct KernelToPlanPass : lathe::impl::KernelToPlanPassBase<KernelToPlanPass> {
  using Base = lathe::impl::KernelToPlanPassBase<KernelToPlanPass>;
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (!step) {
      module.emitError() << "expected a function named 'step'";
      return signalPassFailure();
    }
    int64_t sequence = maxSeq;
    if (!sequence)
      if (auto model = module->getAttrOfType<DictionaryAttr>("llm.model"))
        if (auto attr = model.getAs<IntegerAttr>("max_sequence")) sequence = attr.getInt();
    if (sequence <= 0) {
      module.emitError() << "expected a positive max-seq, found " << sequence;
      return signalPassFailure();
    }
    int64_t draftSequence = sequence;
    auto method = DraftMethod::program;
    DenseIntElementsAttr tokens;
    if (auto attr = module->getAttrOfType<DictionaryAttr>("llm.draft")) {
      if (auto positions = attr.getAs<IntegerAttr>("max_sequence")) draftSequence = std::clamp<int64_t>(positions.getInt(), 1, sequence);
      if (auto name = attr.getAs<StringAttr>("method"))
        method = llvm::StringSwitch<DraftMethod>(name.getValue()).Case("medusa", DraftMethod::medusa).Case("eagle", DraftMethod::eagle).Case("eagle2", DraftMethod::eagle2).Case("eagle3", DraftMethod::eagle3).Default(DraftMethod::program);
      tokens = attr.getAs<DenseIntElementsAttr>("tokens");
      if (tokens && !tokens.getElementType().isInteger(32)) return module.emitError() << "expected 'tokens' of llm.draft to be i32, found " << tokens.getElementType(), signalPassFailure();
    }
    Planner planner(module, step, module.lookupSymbol<func::FuncOp>("draft"), {maxRows, sequence, chunk, splitRows, logitBytes, gpu, draftSequence, method, tokens});
    if (failed(planner.run())) return signalPassFailure();
    numKernels = planner.kernelCount;
    numLaunches = planner.launchCount;
    this->arenaBytes = planner.arena;
  }
};

} // namespace
