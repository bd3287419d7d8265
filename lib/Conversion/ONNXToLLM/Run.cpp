//===- Run.cpp - one pass over a graph for chosen sizes ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every value is a number, a weight, or a term in a layout. What is none of these is unknown, with the reason; a graph is raised
// only when no unknown value reaches its outputs.
//===----------------------------------------------------------------------===//
#include "Run.h"
#include "lathe/ONNX/Inputs.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringMap.h"
#include <cmath>
#include <utility>

using namespace mlir;

namespace lathe::raise {

GraphRun::GraphRun(func::FuncOp main, ArrayRef<Role> roles, Sizes sizes, int64_t pastHeadSize, ParamReader &params)
    : terms(main.getContext()), sizes(sizes), main(main), pastHeadSize(pastHeadSize), roles(roles), params(params), symbols(main->getParentOfType<ModuleOp>()) {
  std::map<DataType, double> elements;
  for (auto param : main->getParentOfType<ModuleOp>().getOps<onnx::ParamOp>()) {
    auto type = cast<RankedTensorType>(param.getType());
    DataType element = onnx::dataType(type.getElementType());
    if (element == DataType::float32 || element == DataType::float16 || element == DataType::bfloat16) elements[element] += static_cast<double>(type.getNumElements());
  }
  for (auto [type, count] : elements)
    if (count > elements[own]) own = type;
}

bool GraphRun::keepsValues(DataType from, DataType to) const {
  if (!onnx::isFloat(from) || !onnx::isFloat(to)) return false;
  return from == to || to == DataType::float32 || to == DataType::float64 || to == own;
}

bool GraphRun::refuse(const Twine &reason) {
  why = reason.str();
  return true;
}

Abstract GraphRun::known(Known value) {
  Abstract out;
  out.is = Abstract::number;
  out.type = value.type;
  out.shape = value.shape;
  out.known = std::make_shared<const Known>(std::move(value));
  return out;
}

Abstract GraphRun::term(TermId id, Layout layout, DataType type) {
  Abstract out;
  out.is = Abstract::term;
  out.type = type;
  normalize(layout);
  out.shape = shapeOf(layout);
  out.id = id;
  out.layout = std::move(layout);
  return out;
}

Abstract GraphRun::argument(BlockArgument arg, Role role) {
  auto type = cast<ShapedType>(arg.getType());
  DataType element = onnx::dataType(type.getElementType());
  Abstract out;
  out.type = element;
  bool perRow = type.hasRank() && type.getRank() == 2;
  switch (role) {
  case Role::tokens:
    out.is = Abstract::tokens;
    out.shape = perRow ? Shape{sizes.batch, sizes.step} : Shape{sizes.step};
    return out;
  case Role::positions: {
    Known value = Known::make(element, perRow ? Shape{sizes.batch, sizes.step} : Shape{sizes.step});
    for (int64_t k = 0, n = value.elements(); k < n; ++k)
      value.set(k, static_cast<double>(sizes.past + k % sizes.step));
    return known(std::move(value));
  }
  case Role::mask: {
    Known value = Known::make(element, {sizes.batch, sizes.total()});
    for (int64_t k = 0, n = value.elements(); k < n; ++k)
      value.set(k, 1);
    return known(std::move(value));
  }
  case Role::writeIndex:
  case Role::totalLength:
  case Role::one:
  case Role::all: {
    Shape shape;
    bool perSequence = role != Role::one && role != Role::all && type.hasRank() && type.getRank() == 1 && type.isDynamicDim(0);
    for (int64_t k = 0; type.hasRank() && k < type.getRank(); ++k)
      shape.push_back(perSequence ? sizes.batch : 1);
    Known value = Known::make(element, shape);
    for (int64_t k = 0, n = value.elements(); k < n; ++k)
      value.set(k, role == Role::one ? 1.0 : static_cast<double>(role == Role::all ? onnx::everyToken : role == Role::writeIndex ? sizes.past : sizes.total()));
    return known(std::move(value));
  }
  case Role::buffer: {
    // As long as what is in it after the step: what lies behind that is never looked at.
    int64_t heads = type.getDimSize(1), size = type.isDynamicDim(3) ? pastHeadSize : type.getDimSize(3);
    Layout layout = {{{Dim::batch, sizes.batch}}, {{Dim::feature, heads, size}}, {{Dim::past, sizes.total()}}, {{Dim::feature, size, 1}}};
    return term(terms.leaf(Kind::past, heads * size, arg.getArgNumber()), layout, element);
  }
  case Role::pair: {
    int64_t heads = type.getDimSize(2), size = type.getDimSize(4), width = heads * size;
    Layout layout = {{{Dim::feature, 2, width}}, {{Dim::batch, sizes.batch}}, {{Dim::feature, heads, size}}, {{Dim::past, sizes.past}}, {{Dim::feature, size, 1}}};
    return term(terms.leaf(Kind::past, 2 * width, arg.getArgNumber()), layout, element);
  }
  case Role::past: {
    int64_t heads = type.getDimSize(1), size = type.isDynamicDim(3) ? pastHeadSize : type.getDimSize(3);
    Layout layout = {{{Dim::batch, sizes.batch}}, {{Dim::feature, heads, size}}, {{Dim::past, sizes.past}}, {{Dim::feature, size, 1}}};
    return term(terms.leaf(Kind::past, heads * size, arg.getArgNumber()), layout, element);
  }
  }
  return out;
}

void GraphRun::noteNumbers(const Known &value) {
  if (onnx::dataTypeBits(value.type) < 16) return; // codes and zero points of weights; no position
  for (int64_t k = 0, n = std::min<int64_t>(value.elements(), 64); k < n; ++k)
    if (double x = std::fabs(value.number(k)); x >= 12 && x <= (1 << 20)) numbers.insert(static_cast<int64_t>(x));
}

/// The numbers of each input; null for one that is none.
static SmallVector<const Known *> knownsOf(ArrayRef<Abstract *> in) { return llvm::map_to_vector(in, [](const Abstract *x) -> const Known * { return x->known.get(); }); }

/// Lookups and slices behind the end of what they read.
void GraphRun::noteTable(NodeOp op, In in) {
  StringRef name = op.getOpType();
  if (!op.getDomain().empty() || in.empty() || (in[0]->is != Abstract::number && in[0]->is != Abstract::weight)) return;
  auto note = [&](double last, int64_t size) {
    // Ends such as INT64_MAX mean all there is.
    if (last > static_cast<double>(size) && last <= (1 << 24)) beyond = std::max(beyond, static_cast<int64_t>(last) - size);
  };
  const Shape &shape = in[0]->shape;
  if (name == "Gather" && in.size() == 2 && in[1]->known) {
    auto axis = axisOf(op.getInt("axis", 0), static_cast<int64_t>(shape.size()));
    for (int64_t k = 0, n = in[1]->known->elements(); succeeded(axis) && k < n; ++k)
      note(in[1]->known->number(k) + 1, shape[*axis]);
  } else if (name == "GatherND" && in.size() == 2 && in[1]->known && !op.getInt("batch_dims", 0) && !in[1]->shape.empty()) {
    int64_t each = in[1]->shape.back();
    for (int64_t k = 0, n = in[1]->known->elements(); each <= static_cast<int64_t>(shape.size()) && k < n; ++k)
      note(in[1]->known->number(k) + 1, shape[k % each]);
  } else if (name == "Slice") {
    SmallVector<const Known *> numbers = knownsOf(in);
    if (llvm::any_of(llvm::zip(in, numbers), [&](auto pair) { return std::get<0>(pair) != in[0] && std::get<0>(pair)->is != Abstract::absent && !std::get<1>(pair); })) return;
    Shape ends = integersOf(op, numbers, 2, "ends"), axes = integersOf(op, numbers, 3, "axes");
    for (size_t k = 0; k < ends.size(); ++k) {
      auto axis = axisOf(k < axes.size() ? axes[k] : static_cast<int64_t>(k), static_cast<int64_t>(shape.size()));
      if (succeeded(axis)) note(static_cast<double>(ends[k]), shape[*axis]);
    }
  }
}

static constexpr int64_t few = 16;
static bool isLongList(const Abstract &x) { return (x.stored || x.is == Abstract::weight) && x.known && x.known->elements() > few; }

bool GraphRun::picks(NodeOp op, In in) {
  StringRef name = op.getOpType();
  if (!op.getDomain().empty() || in.empty()) return false;
  auto marked = [](const Abstract *x) { return x->mixed && x->known && x->known->elements() > few; };
  if (name.starts_with("Reduce") || llvm::is_contained({"ArgMax", "ArgMin", "TopK", "NonZero", "Compress", "CumSum"}, name)) return marked(in[0]) || (name == "Compress" && isLongList(*in[0]));
  bool meets = llvm::any_of(in, [](const Abstract *x) { return x->mixed || isLongList(*x); });
  if (name == "MatMul" || name == "Gemm") return meets && !in[0]->shape.empty() && (name == "Gemm" && op.getInt("transA", 0) ? in[0]->shape.front() : in[0]->shape.back()) > few;
  if (name != "Einsum" || !meets) return false;
  // A letter that the result lacks is summed over.
  auto [inputs, result] = op.getString("equation", "").split("->");
  SmallVector<StringRef> parts;
  inputs.split(parts, ',');
  for (auto [part, x] : llvm::zip(parts, in))
    for (size_t k = 0; k < part.trim().size() && k < x->shape.size(); ++k)
      if (char letter = part.trim()[part.trim().size() - 1 - k]; letter != '.' && letter != ' ' && !result.contains(letter) && x->shape[x->shape.size() - 1 - k] > few) return true;
  return false;
}

/// Sizes are compared with numbers one by one; masks compare whole rows, which show in every run.
void GraphRun::noteThresholds(NodeOp op, In in) {
  if (!op.getDomain().empty() || !llvm::is_contained({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Min", "Max", "Mod", "Div", "Clip", "Sub"}, op.getOpType())) return;
  int64_t elements = 0;
  for (const Abstract *x : in)
    if (x->known) elements += x->known->elements();
  if (elements > 8) return;
  for (const Abstract *x : in)
    for (int64_t k = 0, n = x->known ? x->known->elements() : 0; k < n; ++k)
      if (double value = std::fabs(x->known->number(k)); value >= 2 && value <= (1 << 20)) thresholds.insert(static_cast<int64_t>(value));
}

void GraphRun::noteQuotient(NodeOp op, In in, const Known &result) {
  StringRef name = op.getOpType();
  bool rounds = llvm::is_contained({"Floor", "Ceil", "Round", "Mod", "BitShift"}, name) || (name == "Div" && !result.isFloat()) || (name.starts_with("Cast") && in[0]->known && in[0]->known->isFloat() && !result.isFloat());
  if (!op.getDomain().empty() || !rounds || result.elements() > 8) return;
  auto &values = quotients[op];
  values.clear();
  for (int64_t k = 0; k < result.elements(); ++k)
    values.push_back(result.number(k));
}

void GraphRun::constant(onnx::ConstantOp op) {
  Abstract &made = values[op.getResult()] = known(fromElements(op.getValue()));
  made.fixed = made.stored = true;
  noteNumbers(*made.known);
}

void GraphRun::weight(onnx::WeightOp op) {
  auto param = symbols.lookup<onnx::ParamOp>(op.getParam());
  auto type = cast<RankedTensorType>(op.getType());
  Abstract out;
  out.is = Abstract::weight;
  out.type = onnx::dataType(type.getElementType());
  out.shape.assign(type.getShape().begin(), type.getShape().end());
  out.of.param = param;
  // What only products use is a linear's, whatever its numbers are.
  bool product = type.getNumElements() > 65536 && llvm::all_of(op.getResult().getUsers(), [](Operation *user) {
    auto node = dyn_cast<NodeOp>(user);
    return node && (node.getOpType() == "MatMul" || node.getOpType() == "Gemm" || node.getOpType() == "Transpose");
  });
  if (!product && type.getNumElements() <= (int64_t(1) << 21) && held + type.getNumElements() <= maxHeldElements) {
    auto read = params.read(param);
    if (read.ok()) {
      out.known = *read;
      held += type.getNumElements();
      noteNumbers(*out.known);
    }
  }
  values[op.getResult()] = std::move(out);
}

void GraphRun::load(Abstract &x) {
  if (x.is != Abstract::weight || x.known || x.swapped || !x.of || x.of.bits || x.of.qdq || !onnx::isFloat(x.type)) return;
  auto type = cast<RankedTensorType>(onnx::ParamOp(x.of.param).getType());
  bool asStored = type.getShape() == ArrayRef<int64_t>(x.shape) && onnx::dataType(type.getElementType()) == x.type;
  if (!asStored || held + type.getNumElements() > maxHeldElements) return;
  auto read = params.read(x.of.param);
  if (!read.ok()) return;
  x.known = *read;
  held += type.getNumElements();
}

/// Numbers in and numbers out.
static bool allKnown(ArrayRef<Abstract *> in) {
  return llvm::all_of(in, [](const Abstract *x) { return x->is == Abstract::absent || x->known != nullptr; });
}

/// Every use of |value|, through casts, is a sum or asks for its shape.
static bool onlyAdded(Value value) {
  SmallVector<Value> todo = {value};
  while (!todo.empty())
    for (Operation *user : todo.pop_back_val().getUsers()) {
      auto node = dyn_cast<NodeOp>(user);
      if (!node) return false;
      StringRef name = node.getOpType();
      if (name.starts_with("Cast")) todo.push_back(node.getOutputs()[0]);
      else if (name != "Add" && name != "Shape" && !name.starts_with("Skip")) return false;
    }
  return true;
}

void GraphRun::node(NodeOp op) {
  SmallVector<Abstract *> in;
  for (Value v : op.getInputs())
    in.push_back(&values[v]);
  std::vector<Abstract> out(op.getOutputs().size());
  terms.loc = op.getLoc();
  why.clear();
  // Of what it is cast like, CastLike takes the type only.
  Abstract like;
  if (in.size() == 2 && op.getDomain().empty() && op.getOpType() == "CastLike" && in[1]->is != Abstract::absent && in[1]->is != Abstract::unknown) {
    like = known(Known::make(in[1]->type, {}));
    like.fixed = like.stored = true;
    in[1] = &like;
  }
  const Abstract *bad = nullptr;
  for (const Abstract *x : in)
    if (x->is == Abstract::unknown) bad = x;
  if (op.getOpType() == "If" && op.getDomain().empty()) {
    runIf(op, in);
    return;
  }
  if (!bad) noteTable(op, in);
  bool done = false;
  // As many axes as a list has entries: each takes memory.
  if (!bad && op.getDomain().empty() && llvm::is_contained({"Reshape", "Expand", "Unsqueeze"}, op.getOpType())) {
    size_t axes = op.getInts("axes").size();
    if (in.size() > 1 && in[1]->known) axes = static_cast<size_t>(in[1]->known->elements());
    if (op.getOpType() == "Unsqueeze") axes += in[0]->shape.size();
    done = axes > onnx::mostAxes && refuse("expected at most " + Twine(onnx::mostAxes) + " axes, found " + Twine(axes));
  }
  if (bad) {
    for (Abstract &o : out)
      o.why = bad->why, o.at = bad->at;
    done = true;
  }
  if (!done) done = shapes(op, in, out);
  // Weights keep what they are through moves that a packed form can follow.
  bool someWeight = llvm::any_of(in, [](const Abstract *x) { return x->is == Abstract::weight; });
  if (!done && someWeight) done = dequantized(op, in, out) || quantized(op, in, out) || (movement(op, in, out) && why.empty());
  // A table of learned positions is added to something; one of cosines is multiplied with something and stays numbers.
  if (!done && someWeight && op.getOpType() == "Gather" && op.getDomain().empty() && in[0]->is == Abstract::weight && in[1]->is == Abstract::number &&
      onlyAdded(op.getOutputs()[0]))
    done = linears(op, in, out) && why.empty();
  bool lookup = !done && op.getDomain().empty() && llvm::is_contained({"Gather", "GatherElements", "GatherND", "Slice"}, op.getOpType()) && !in.empty() &&
                allKnown(ArrayRef<Abstract *>(in).drop_front());
  if (lookup) load(*in[0]);
  bool fixed = llvm::all_of(in, [](const Abstract *x) { return x->fixed || x->is == Abstract::absent || x->is == Abstract::weight; });
  bool mixed = !fixed && llvm::any_of(in, [&](const Abstract *x) { return x->mixed || (!lookup && isLongList(*x)); });
  bool stored = llvm::all_of(in, [](const Abstract *x) { return x->stored || x->is == Abstract::absent || x->is == Abstract::weight; });
  if (lookup && !fixed && in[0]->known && (in[0]->is == Abstract::weight || in[0]->stored)) {
    StoredTable table{op, in[0]->known, {}};
    auto rank = static_cast<int64_t>(in[0]->shape.size());
    if (op.getOpType().starts_with("Gather") && op.getOpType() != "GatherND") {
      if (auto axis = axisOf(op.getInt("axis", 0), rank); succeeded(axis)) table.axes.push_back(*axis);
    } else if (op.getOpType() == "Slice") {
      SmallVector<const Known *> numbers = knownsOf(in);
      for (int64_t given : integersOf(op, numbers, 3, "axes"))
        if (auto axis = axisOf(given, rank); succeeded(axis)) table.axes.push_back(*axis);
    }
    tables.push_back(std::move(table));
  }
  if (!done && !fixed && allKnown(in) && picks(op, in)) done = refuse("sums or picks from a stored list what lengths or positions say: expected a lookup by Gather or Slice");
  if (!done && allKnown(in) && llvm::none_of(in, [](const Abstract *x) { return x->is == Abstract::tokens || x->is == Abstract::term; })) {
    why.clear();
    noteThresholds(op, in);
    SmallVector<const Known *> numbers = knownsOf(in);
    auto result = evaluate(op, numbers);
    if (result.ok()) {
      if (!result->empty()) noteQuotient(op, in, result->front());
      for (size_t k = 0; k < out.size() && k < result->size(); ++k)
        out[k] = known(std::move((*result)[k])), out[k].fixed = fixed, out[k].stored = stored, out[k].mixed = mixed;
      // 1 + w stays a weight (Gemma's norms).
      if (op.getOpType() == "Add")
        for (int k = 0; k < 2; ++k)
          if (in[k]->of && !in[k]->of.plusOne && !in[k]->of.bits && !in[k]->of.qdq && in[1 - k]->known->elements() == 1 && in[1 - k]->known->number(0) == 1) {
            out[0].of = in[k]->of;
            out[0].of.plusOne = true;
          }
      if (op.getOpType().starts_with("Cast") && in[0]->of && keepsValues(in[0]->type, out[0].type)) out[0].of = in[0]->of;
      done = true;
    } else {
      why = result.status().message();
    }
  }
  if (!done) {
    why.clear();
    done = movement(op, in, out) || joins(op, in, out) || scatter(op, in, out) || elementwise(op, in, out) || linears(op, in, out) || norms(op, in, out) || rotary(op, in, out) || attention(op, in, out);
  }
  if (!done && why.empty()) why = "an operator without a part in a language model";
  for (const Abstract &o : out)
    if (why.empty() && (elementsOf(o.shape) > mostElements || llvm::any_of(o.shape, [](int64_t size) { return size > mostElements; }))) why = "expected a result of at most 2^48 elements, found " + shapeText(o.shape);
  for (auto [k, o] : llvm::enumerate(out)) {
    if (!why.empty()) o = Abstract();
    if (o.is == Abstract::number) noteNumbers(*o.known);
    if (o.is == Abstract::unknown && o.why.empty()) {
      o.why = (op.getDomain().empty() ? "" : op.getDomain() + "::").str() + op.getOpType().str() + ": " + (why.empty() ? "this output is not used by a language model" : why);
      o.at = op;
    }
    if (op.getOutputs()[k].use_empty()) o.known = nullptr;
    hold(op.getOutputs()[k], std::move(o));
  }
  release(op);
}

/// Elements that |x| holds on its own.
static int64_t heldBy(const Abstract &x) { return x.known ? x.known->elements() * (x.known->angles ? 2 : 1) : 0; }

void GraphRun::hold(Value value, Abstract x) {
  int64_t elements = heldBy(x);
  if (held + elements > maxHeldElements) {
    Operation *at = value.getDefiningOp();
    x = Abstract();
    x.why = "numbers that the graph computes: more than " + std::to_string(maxHeldElements) + " elements at a time";
    x.at = at;
    elements = 0;
  }
  held += elements;
  values[value] = std::move(x);
}

void GraphRun::release(NodeOp op) {
  // Masks of long runs are large, and every layer may compute its own.
  for (Value v : op.getInputs())
    if (auto it = uses.find(v); it != uses.end() && --it->second == 0) {
      Abstract &x = values[v];
      held -= heldBy(x);
      x.known.reset();
    }
}

void GraphRun::runIf(NodeOp op, In in) {
  auto fail = [&](const std::string &reason, Operation *at) {
    for (Value v : op.getOutputs()) {
      Abstract out;
      out.why = reason;
      out.at = at;
      values[v] = out;
    }
  };
  if (in[0]->is == Abstract::unknown) return fail(in[0]->why, in[0]->at);
  if (!in[0]->known || in[0]->known->elements() != 1) return fail("If: the condition depends on the tokens", op);
  if (depth == 16) return fail("If: nested too deep", op);
  bool taken = in[0]->known->number(0) != 0, cached = taken;
  if (usual && branches.size() < usual->size()) cached = (*usual)[branches.size()]; // another one's would be compared all the same
  branches.push_back(taken);
  auto run = [&](bool which) {
    Block &body = op.getBodies()[which ? 0 : 1].front();
    ++depth;
    block(body);
    --depth;
    return body.getTerminator();
  };
  Operation *end = run(cached), *first = end;
  if (cached != taken) {
    const std::vector<bool> *outside = std::exchange(usual, nullptr);
    std::vector<bool> order = branches;
    first = run(taken);
    branches = std::move(order);
    usual = outside;
  }
  for (auto [result, yielded, start] : llvm::zip(op.getOutputs(), end->getOperands(), first->getOperands())) {
    Abstract x = values[yielded];
    x.fixed = false; // the branch may be chosen by sizes
    if (cached != taken && !sameAtStart(x, values[start])) {
      x = Abstract();
      x.why = "If: behind an empty past the graph takes another branch, which gives something else";
      x.at = op;
    }
    hold(result, std::move(x));
  }
}

bool GraphRun::sameAtStart(const Abstract &cached, const Abstract &first) const {
  if (cached.is == Abstract::unknown) return true; // it is as it is
  if (cached.is != first.is || cached.type != first.type || cached.shape != first.shape) return false;
  if (cached.is == Abstract::number) return cached.known && first.known && cached.known->f == first.known->f && cached.known->i == first.known->i;
  if (cached.is == Abstract::weight) return cached.of && first.of && cached.swapped == first.swapped && cached.of.key() == first.of.key();
  if (cached.is != Abstract::term) return true; // absent, or tokens
  if (cached.id == first.id) return cached.layout == first.layout;
  // The cache without a past is this step's rows.
  Layout rows = first.layout;
  for (Axis &axis : rows)
    for (Atom &atom : axis)
      if (atom.dim == Dim::step) atom.dim = Dim::total;
  return terms[cached.id].kind == Kind::history && terms[cached.id].in[0] == first.id && rows == cached.layout;
}

void GraphRun::block(Block &body) {
  for (Operation &op : body) {
    if (auto n = dyn_cast<NodeOp>(op)) {
      for (Value v : n.getOutputs())
        uses[v] = static_cast<int64_t>(std::distance(v.use_begin(), v.use_end()));
      node(n);
    }
    else if (auto c = dyn_cast<onnx::ConstantOp>(op)) constant(c);
    else if (auto w = dyn_cast<onnx::WeightOp>(op)) weight(w);
    else if (auto none = dyn_cast<onnx::NoneOp>(op)) values[none.getResult()].is = Abstract::absent;
  }
}

RunResult GraphRun::run() {
  for (auto [arg, role] : llvm::zip(main.getArguments(), roles))
    values[arg] = argument(arg, role);
  block(main.front());
  RunResult result;
  auto bad = [&](const std::string &reason, Operation *at) {
    if (result.why.empty()) {
      result.why = reason;
      result.at = at;
    }
  };
  auto finish = cast<func::ReturnOp>(main.front().getTerminator());
  auto nameOf = [&](size_t k) {
    auto name = main.getResultAttrOfType<StringAttr>(static_cast<unsigned>(k), "onnx.name");
    return name ? name.getValue() : StringRef();
  };
  // Beside logits by that name a graph may give values that nobody asks for, such as the last hidden states.
  bool logitsNamed = false;
  for (size_t k = 0; k < finish.getNumOperands(); ++k)
    logitsNamed |= nameOf(k) == "logits";
  // Who runs the graph gives an output by such a name to the input by the other.
  llvm::StringMap<int64_t> pasts; // by the name of their output, if a name says it
  for (unsigned k = 0; k < main.getNumArguments(); ++k)
    if (std::string name = onnx::presentName(onnx::inputName(main, k)); !name.empty()) pasts[name] = k;
  auto pairs = [&](StringRef output, int64_t past) {
    if (auto it = pasts.find(output); it != pasts.end()) return it->second == past;
    std::string own = onnx::presentName(onnx::inputName(main, static_cast<unsigned>(past)));
    return own.empty() || llvm::none_of(llvm::seq<size_t>(0, finish.getNumOperands()), [&](size_t k) { return nameOf(k) == own; });
  };
  for (auto [k, value] : llvm::enumerate(finish.getOperands())) {
    StringRef name = nameOf(k);
    std::string output = "output '" + (name.empty() ? std::to_string(k) : name.str()) + "'";
    const Abstract &x = values[value];
    bool isCache = x.is == Abstract::term && (terms[x.id].kind == Kind::history || terms[x.id].kind == Kind::past || terms[x.id].kind == Kind::concat);
    if (logitsNamed && name != "logits" && !isCache && !name.starts_with("present")) {
      result.unused.push_back(output);
      continue;
    }
    if (x.is == Abstract::unknown) {
      bad(x.why, x.at);
      continue;
    }
    if (x.is != Abstract::term) {
      bad(output + " does not depend on the tokens", main);
      continue;
    }
    const Term &t = terms[x.id];
    if (t.kind == Kind::history || t.kind == Kind::past) {
      Layout expected = {{{Dim::batch, sizes.batch}}, {}, {{Dim::total, sizes.total()}}, {}};
      const Layout &found = x.layout;
      bool fits = t.kind == Kind::history && found.size() == 4 && found[0] == (sizes.batch == 1 ? Axis() : expected[0]) && found[2] == expected[2];
      // Heads and sizes as the past has them.
      const Abstract &past = values[main.getArgument(static_cast<unsigned>(t.a % pairValues))];
      fits = fits && past.layout.size() == 4 && found[1] == past.layout[1] && found[3] == past.layout[3];
      if (!fits) bad(output + " is not a cache with this step's tokens after the past ones", main);
      if (!pairs(name, t.a % pairValues)) bad(output + " is the cache behind input '" + onnx::inputName(main, static_cast<unsigned>(t.a % pairValues)) + "', which names another output", main);
      result.presents.push_back({t.a, x.id});
      continue;
    }
    if (t.kind == Kind::concat && t.in.size() == 2 && llvm::all_of(t.in, [&](TermId half) { return terms[half].kind == Kind::history; })) {
      const Term &keys = terms[t.in[0]], &halves = terms[t.in[1]];
      const Abstract &past = values[main.getArgument(static_cast<unsigned>(keys.a % pairValues))];
      Layout expected = past.layout;
      bool fits = halves.a == keys.a + pairValues && expected.size() == 5;
      if (fits) expected[3] = {{Dim::total, sizes.total()}};
      if (!fits || x.layout != expected) bad(output + " is not a cache with this step's tokens after the past ones", main);
      if (!pairs(name, keys.a % pairValues)) bad(output + " is the cache behind input '" + onnx::inputName(main, static_cast<unsigned>(keys.a % pairValues)) + "', which names another output", main);
      for (TermId half : t.in)
        result.presents.push_back({terms[half].a, half});
      continue;
    }
    if (logitsNamed && name != "logits" && !name.starts_with("present")) { // a concatenation that is no cache
      result.unused.push_back(output);
      continue;
    }
    if (result.logits >= 0 || (logitsNamed && name != "logits")) {
      bad(output + " is neither logits nor a cache", main);
      continue;
    }
    Layout rows = {{{Dim::batch, sizes.batch}}, {{Dim::step, sizes.step}}, {{Dim::feature, terms.width(x.id), 1}}}, last = rows, flat = rows;
    last[1] = Axis();
    flat.erase(flat.begin() + 1);
    for (Layout *layout : {&rows, &last, &flat})
      normalize(*layout);
    bool ofLast = terms.isLast(x.id) && (x.layout == last || x.layout == flat);
    if (x.layout != rows && !ofLast) bad(output + " is laid out as " + layoutText(x.layout) + ", expected rows of logits for every token", main);
    result.logits = x.id;
  }
  if (result.why.empty() && result.logits < 0) bad("the graph has no logits", main);
  return result;
}

} // namespace lathe::raise
