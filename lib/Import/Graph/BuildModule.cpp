//===- BuildModule.cpp - a configuration to the llm dialect ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One function for every family: what differs is in ModelConfig and WeightMap.
//===----------------------------------------------------------------------===//
#include "dialects/LLM/LLM.h"
#include "lathe/import/Import.h"
#include "lathe/import/Verify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace lathe {
namespace {

llm::Activation activationOf(ActivationKind kind) {
  switch (kind) {
  case ActivationKind::silu:
    return llm::Activation::silu;
  case ActivationKind::geluTanh:
    return llm::Activation::gelu_tanh;
  case ActivationKind::geluErf:
    return llm::Activation::gelu_erf;
  case ActivationKind::relu:
    return llm::Activation::relu;
  }
  return llm::Activation::silu;
}

class GraphBuilder {
public:
  GraphBuilder(MLIRContext &context, const ModelConfig &config, const WeightMap &weights)
      : context(context), config(config), weights(weights), builder(&context) {}
  Result<OwningOpRef<ModuleOp>> run();

private:
  struct Group {
    int64_t window;
    std::string name;
    SmallVector<Attribute> layers;
  };

  // Parts of the module.
  void declareGroups();
  Value weight(Role role, int layer, bool bias = false);
  Value constant(const std::string &name, ArrayRef<float> values);
  Attribute expression(const WeightRef &ref);
  void describe(ModuleOp module);

  // Parts of the step.
  Value rows(int64_t width) = delete;
  RankedTensorType rowsType(int64_t width) {
    return RankedTensorType::get({ShapedType::kDynamic, width}, builder.getF32Type());
  }
  void at(int layer, StringRef what);
  Value linear(Value input, Role role, int layer, bool bias);
  Value norm(Value input, Role role, int layer, int64_t heads = 1);
  Value scaled(Value input, double factor);
  Value attention(Value x, int layer);
  Value feedForward(Value x, int layer);
  void buildStep();

  MLIRContext &context;
  const ModelConfig &config;
  const WeightMap &weights;
  OpBuilder builder;
  ModuleOp module;
  Location loc = UnknownLoc::get(&context);
  SmallVector<Group> groups;
  SmallVector<std::pair<int, int>> groupOf; ///< by layer: group, index in it
  llvm::StringMap<Value> loaded;
  Value batch, kv;
  SmallVector<Value> angles; ///< by rope
  Block *entry = nullptr;
};

void GraphBuilder::at(int layer, StringRef what) {
  std::string name = layer < 0 ? what.str() : ("layers." + Twine(layer) + "." + what).str();
  loc = NameLoc::get(builder.getStringAttr(name));
}

void GraphBuilder::declareGroups() {
  for (const LayerConfig &layer : config.layers) {
    auto it = llvm::find_if(groups, [&](const Group &group) { return group.window == layer.window; });
    if (it == groups.end()) {
      groups.push_back({layer.window, layer.window ? "window" + std::to_string(layer.window) : "full", {}});
      it = groups.end() - 1;
    }
    groupOf.push_back({static_cast<int>(it - groups.begin()), static_cast<int>(it->layers.size())});
    it->layers.push_back(llm::KVLayerAttr::get(&context, layer.kvHeads, config.headSize, config.headSize));
  }
  for (const Group &group : groups)
    llm::KVGroupOp::create(builder, loc, group.name, builder.getArrayAttr(group.layers), llm::KVFormat::f16,
                           llm::KVFormat::f16, group.window, 0);
}

Attribute GraphBuilder::expression(const WeightRef &ref) {
  Attribute value;
  const TensorRef::Blocks &blocks = ref.tensor.blocks;
  if (blocks.bits)
    value = llm::NBitsAttr::get(&context, ref.tensor.name, blocks.bits, blocks.block, ref.tensor.shape, ref.tensor.path,
                                ref.tensor.offset, blocks.scales, blocks.scalesOffset,
                                static_cast<llm::Storage>(blocks.scaleStorage), blocks.zeros, blocks.zerosOffset);
  else if (const TensorRef::QDQ &q = ref.tensor.qdq; !q.code.empty())
    value = llm::QDQAttr::get(&context, ref.tensor.name, q.code, static_cast<llm::Storage>(ref.tensor.storage), ref.tensor.shape, q.transposed,
                              ArrayRef<int64_t>(q.block), ref.tensor.path, ref.tensor.offset, q.scales, q.scalesOffset,
                              static_cast<llm::Storage>(q.scaleStorage), builder.getDenseF32ArrayAttr(q.scaleValues), q.zeros, q.zerosOffset,
                              builder.getDenseI64ArrayAttr(q.zeroValues));
  else if (const TensorRef::Scaled &s = ref.tensor.scaled; !s.path.empty())
    value = llm::ScaledAttr::get(&context, ref.tensor.name, ref.tensor.shape, ref.tensor.path, ref.tensor.offset, s.path, s.offset,
                                 static_cast<llm::Storage>(s.storage), s.perRow);
  else if (ref.tensor.values.empty())
    value = llm::FileAttr::get(&context, ref.tensor.path, ref.tensor.name, ref.tensor.offset,
                               static_cast<llm::Storage>(ref.tensor.storage), ref.tensor.shape);
  else
    value = DenseElementsAttr::get(RankedTensorType::get(ref.tensor.shape, builder.getF32Type()),
                                   ArrayRef<float>(ref.tensor.values));
  if (ref.transpose) value = llm::TransposeAttr::get(&context, value);
  if (ref.end) value = llm::SliceAttr::get(&context, value, ref.begin, ref.end);
  if (ref.unropeHeads) value = llm::UnropeAttr::get(&context, value, ref.unropeHeads);
  if (ref.plusOne) value = llm::AddOneAttr::get(&context, value);
  return value;
}

/// The value of a param, which is declared at its first use.
Value GraphBuilder::weight(Role role, int layer, bool bias) {
  const WeightRef *ref = weights.find(role, layer, bias);
  std::string name =
      (layer < 0 ? "" : "layers." + std::to_string(layer) + ".") + roleName(role) + (bias ? ".bias" : "");
  if (Value known = loaded.lookup(name)) return known;
  auto storage = ref->plusOne ? llm::Storage::f32 : static_cast<llm::Storage>(ref->tensor.storage);
  auto type = RankedTensorType::get(ref->shape, llm::elementType(&context, storage));
  Location tensorLoc = NameLoc::get(builder.getStringAttr(ref->tensor.name));
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(entry->getParentOp());
    llm::ParamOp::create(builder, tensorLoc, builder.getStringAttr(name), expression(*ref), TypeAttr::get(type));
  }
  return loaded[name] = llm::WeightOp::create(builder, tensorLoc, type, name);
}

Value GraphBuilder::constant(const std::string &name, ArrayRef<float> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, builder.getF32Type());
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(entry->getParentOp());
    llm::ParamOp::create(builder, loc, builder.getStringAttr(name), DenseElementsAttr::get(type, values),
                         TypeAttr::get(type));
  }
  return llm::WeightOp::create(builder, loc, type, name);
}

Value GraphBuilder::linear(Value input, Role role, int layer, bool bias) {
  Value w = weight(role, layer);
  Value b = bias ? weight(role, layer, true) : Value();
  at(layer, roleName(role));
  int64_t width = cast<RankedTensorType>(w.getType()).getDimSize(0);
  return llm::LinearOp::create(builder, loc, rowsType(width), input, ValueRange(w), b);
}

Value GraphBuilder::norm(Value input, Role role, int layer, int64_t heads) {
  Value w = weight(role, layer);
  llvm::APFloat epsilon(static_cast<float>(config.normEpsilon));
  if (config.norm == NormKind::layer) {
    Value b = weight(role, layer, true);
    at(layer, roleName(role));
    return llm::LayerNormOp::create(builder, loc, input.getType(), input, w, b, epsilon);
  }
  at(layer, roleName(role));
  return llm::RmsNormOp::create(builder, loc, input.getType(), input, w, epsilon, heads);
}

Value GraphBuilder::attention(Value x, int layer) {
  const LayerConfig &shape = config.layers[layer];
  Value q = linear(x, Role::q, layer, config.qkvBias);
  Value k = linear(x, Role::k, layer, config.qkvBias);
  Value v = linear(x, Role::v, layer, config.qkvBias);
  if (config.headNorms) {
    q = norm(q, Role::qNorm, layer, shape.heads);
    k = norm(k, Role::kNorm, layer, shape.kvHeads);
  }
  at(layer, "attention");
  if (shape.rope >= 0) {
    q = llm::RopeOp::create(builder, loc, q.getType(), q, angles[shape.rope], shape.heads, false);
    k = llm::RopeOp::create(builder, loc, k.getType(), k, angles[shape.rope], shape.kvHeads, false);
  }
  auto [group, index] = groupOf[layer];
  kv = llm::KVAppendOp::create(builder, loc, kv.getType(), kv, k, v, batch, groups[group].name, index);
  Value y = llm::AttentionOp::create(builder, loc, q.getType(), q, kv, batch, groups[group].name, index, shape.heads,
                                     llvm::APFloat(static_cast<float>(shape.attentionScale)),
                                     llvm::APFloat(static_cast<float>(config.attentionSoftcap)));
  return linear(y, Role::o, layer, config.outputBias);
}

Value GraphBuilder::feedForward(Value x, int layer) {
  llm::Activation kind = activationOf(config.activation);
  if (!config.gated) {
    Value up = linear(x, Role::up, layer, config.feedForwardBias);
    at(layer, "activation");
    Value y = llm::ActivationOp::create(builder, loc, up.getType(), kind, up);
    return linear(y, Role::down, layer, config.feedForwardBias);
  }
  Value gate = linear(x, Role::gate, layer, config.feedForwardBias);
  Value up = linear(x, Role::up, layer, config.feedForwardBias);
  at(layer, "activation");
  Value y = llm::GluOp::create(builder, loc, up.getType(), kind, gate, up);
  return linear(y, Role::down, layer, config.feedForwardBias);
}

void GraphBuilder::buildStep() {
  Value table = weight(Role::embedding, -1);
  at(-1, "embedding");
  Value x = llm::EmbedOp::create(builder, loc, rowsType(config.hidden), batch, table,
                                 llvm::APFloat(static_cast<float>(config.embeddingScale)), false);
  if (config.learnedPositions) {
    Value positions = weight(Role::positions, -1);
    at(-1, "positions");
    Value p = llm::EmbedOp::create(builder, loc, rowsType(config.hidden), batch, positions, llvm::APFloat(1.0f), true);
    x = llm::AddOp::create(builder, loc, x.getType(), x, p);
  }
  for (auto [i, rope] : llvm::enumerate(config.ropes)) {
    at(-1, ("rope" + Twine(i)).str());
    SmallVector<float> frequencies(rope.inverseFrequencies.begin(), rope.inverseFrequencies.end());
    Value f = constant("rope" + std::to_string(i), frequencies);
    angles.push_back(llm::AnglesOp::create(builder, loc, rowsType(2 * static_cast<int64_t>(frequencies.size())), batch,
                                           f, llvm::APFloat(static_cast<float>(rope.attentionFactor))));
  }
  for (int layer = 0, e = static_cast<int>(config.layers.size()); layer < e; ++layer) {
    Value y = attention(norm(x, Role::attentionNorm, layer), layer);
    if (config.postNorms) y = norm(y, Role::postAttentionNorm, layer);
    at(layer, "attention_residual");
    x = llm::AddOp::create(builder, loc, x.getType(), x, y);
    y = feedForward(norm(x, Role::feedForwardNorm, layer), layer);
    if (config.postNorms) y = norm(y, Role::postFeedForwardNorm, layer);
    at(layer, "feed_forward_residual");
    x = llm::AddOp::create(builder, loc, x.getType(), x, y);
  }
  at(-1, "select");
  x = llm::SelectRowsOp::create(builder, loc, x.getType(), x, batch);
  x = norm(x, Role::finalNorm, -1);
  Value logits;
  if (config.tiedHead) {
    Value bias = config.headBias ? weight(Role::head, -1, true) : Value();
    at(-1, "head");
    logits = llm::LinearOp::create(builder, loc, rowsType(config.vocabulary), x, ValueRange(table), bias);
  } else {
    logits = linear(x, Role::head, -1, config.headBias);
  }
  if (config.finalSoftcap > 0)
    logits = llm::SoftcapOp::create(builder, loc, logits.getType(), logits,
                                    llvm::APFloat(static_cast<float>(config.finalSoftcap)));
  func::ReturnOp::create(builder, loc, ValueRange{logits, kv});
}

void GraphBuilder::describe(ModuleOp op) {
  SmallVector<Attribute> kinds;
  for (const Rope &rope : config.ropes)
    kinds.push_back(builder.getStringAttr(rope.factors.empty() ? rope.kind : rope.kind + "-" + rope.factors));
  SmallVector<NamedAttribute> entries = {
      builder.getNamedAttr("family", builder.getStringAttr(familyName(config.family))),
      builder.getNamedAttr("name", builder.getStringAttr(config.name)),
      builder.getNamedAttr("vocabulary", builder.getI64IntegerAttr(config.vocabulary)),
      builder.getNamedAttr("max_sequence", builder.getI64IntegerAttr(config.maxSequence)),
      builder.getNamedAttr("model_positions", builder.getI64IntegerAttr(config.modelPositions)),
      builder.getNamedAttr("rope", builder.getArrayAttr(kinds))};
  op->setAttr("llm.model", builder.getDictionaryAttr(entries));
}

Result<OwningOpRef<ModuleOp>> GraphBuilder::run() {
  context.loadDialect<llm::LLMDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> owned = ModuleOp::create(loc);
  module = *owned;
  describe(module);
  builder.setInsertionPointToEnd(module.getBody());
  declareGroups();
  auto kvType = llm::KVType::get(&context);
  auto type = builder.getFunctionType({llm::BatchType::get(&context), kvType}, {rowsType(config.vocabulary), kvType});
  auto step = func::FuncOp::create(builder, loc, "step", type);
  entry = step.addEntryBlock();
  batch = entry->getArgument(0);
  kv = entry->getArgument(1);
  builder.setInsertionPointToEnd(entry);
  buildStep();
  LATHE_RETURN_IF_ERROR(verifyImported(module));
  return owned;
}

} // namespace

Result<OwningOpRef<ModuleOp>> buildModule(MLIRContext &context, const ModelConfig &config, const WeightMap &weights) {
  return GraphBuilder(context, config, weights).run();
}

} // namespace lathe
