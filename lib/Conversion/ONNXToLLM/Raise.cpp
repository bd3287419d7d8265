//===- Raise.cpp - an ONNX graph to the step --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Raiser.h"
#include "dialects/LLM/LLM.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/ONNX/Inputs.h"
#include "lathe/import/Import.h"
#include "lathe/import/Json.h"
#include <cmath>
#include <nlohmann/json.hpp>

namespace lathe {
#define GEN_PASS_DEF_ONNXRAISEPASS
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe

using namespace mlir;

namespace lathe::raise {

static StringRef nameOf(func::FuncOp main, unsigned arg) {
  auto name = main.getArgAttrOfType<StringAttr>(arg, "onnx.name");
  return name ? name.getValue() : "";
}

/// The operator of the standard that every use of |value| is, and as which of its inputs.
static std::optional<std::pair<StringRef, unsigned>> onlyUse(Value value) {
  std::optional<std::pair<StringRef, unsigned>> found;
  for (OpOperand &use : value.getUses()) {
    auto node = dyn_cast<NodeOp>(use.getOwner());
    if (!node || !node.getDomain().empty()) return std::nullopt;
    std::pair<StringRef, unsigned> own(node.getOpType(), use.getOperandNumber());
    if (found && *found != own) return std::nullopt;
    found = own;
  }
  return found;
}

/// The values from which an operand that is |wanted| is computed, through operators that move numbers or calculate with them. One walk backwards for
/// all inputs of |main|, so that many of them on one chain cost no more than one.
static llvm::DenseSet<Value> sourcesOf(func::FuncOp main, llvm::function_ref<bool(NodeOp, unsigned)> wanted) {
  llvm::DenseSet<Value> sources;
  SmallVector<Value> todo;
  main.walk([&](NodeOp node) {
    for (OpOperand &operand : node->getOpOperands())
      if (wanted(node, operand.getOperandNumber())) todo.push_back(operand.get());
  });
  while (!todo.empty()) {
    Value value = todo.pop_back_val();
    if (!sources.insert(value).second) continue;
    auto node = value.getDefiningOp<NodeOp>();
    if (!node || !node.getDomain().empty() || node.getOutputs()[0] != value) continue;
    if (node.getOpType() == "CastLike") todo.push_back(node.getInputs()[0]);
    if (llvm::is_contained({"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Expand", "Concat", "Mul", "MatMul", "Add", "Sub", "Einsum"}, node.getOpType()))
      llvm::append_range(todo, node->getOperands());
  }
  return sources;
}
/// Positions turn into cosines and sines, or choose them.
static bool rotates(NodeOp node, unsigned operand) {
  bool contrib = node.getDomain() == "com.microsoft";
  StringRef name = node.getOpType();
  return (node.getDomain().empty() && (name == "Cos" || name == "Sin")) || (name == "RotaryEmbedding" && operand == (contrib ? 1 : 3)) ||
         (contrib && name == "GroupQueryAttention" && operand == 9);
}
static bool isTotal(NodeOp node, unsigned operand) {
  return node.getDomain() == "com.microsoft" && node.getOpType() == "GroupQueryAttention" && operand == 6;
}

/// What the inputs can be, the likeliest first. Names that say something decide; a graph whose names say nothing is tried in every way.
std::vector<SmallVector<Role>> Raiser::assignments() {
  Roles fixed(main.getNumArguments(), Role::one);
  const llvm::DenseSet<Value> positions = sourcesOf(main, rotates), totals = sourcesOf(main, isTotal);
  SmallVector<unsigned> open;
  for (auto [k, arg] : llvm::enumerate(main.getArguments())) {
    auto type = dyn_cast<ShapedType>(arg.getType());
    if (!type) return {};
    bool integer = type.getElementType().isInteger();
    StringRef name = nameOf(main, k);
    if (name.contains("mask") && type.hasRank() && type.getRank() > 2) {
      why = "input '" + name.str() + "' is a mask of rank " + std::to_string(type.getRank()) + ", which may hide any token from any other: expected one of [batch, past + step]";
      return {};
    }
    if (name.contains("embed") && !integer && type.hasRank() && type.getRank() == 3) {
      why = "input '" + name.str() + "' has rows of an embedding where a step has tokens: expected an export with its embedding, of integers [batch, step]";
      return {};
    }
    // Heads and their sizes; products of what a damaged file says may not fit a number.
    bool sane = !type.hasRank() || llvm::all_of(type.getShape(), [](int64_t n) { return ShapedType::isDynamic(n) || (n >= 0 && n <= (1 << 20)); });
    if (onnx::asksForLogits(name, type)) {
      fixed[k] = Role::all;
    } else if (!integer && name.contains("mask") && type.hasRank() && type.getRank() == 2) {
      fixed[k] = Role::mask; // 1 for each token, as integers are
    } else if (!integer && sane && type.hasRank() && type.getRank() == 5 && type.getDimSize(0) == 2 && !type.isDynamicDim(2) && !type.isDynamicDim(4)) {
      fixed[k] = Role::pair;
    } else if (!integer) {
      if (!sane || !type.hasRank() || type.getRank() != 4 || type.isDynamicDim(1)) {
        why = "input '" + nameOf(main, k).str() + "' is neither tokens, positions, a mask nor a past of [batch, heads, past, size]";
        return {};
      }
      fixed[k] = onnx::isScattered(arg) ? Role::buffer : Role::past;
    } else if (auto use = onlyUse(arg); use && use->first == "TensorScatter" && use->second == 2) {
      fixed[k] = Role::writeIndex;
    } else if (use && use->first == "Attention" && use->second == 6) {
      fixed[k] = Role::totalLength;
    } else if (!type.hasRank() || type.getRank() == 2 || (type.getRank() == 1 && type.isDynamicDim(0))) {
      open.push_back(k);
    } else if (nameOf(main, k) == "use_cache_branch" && type.getElementType().isInteger(1)) {
      fixed[k] = Role::one;
    } else if (!type.getElementType().isInteger(1) && (nameOf(main, k).contains("total") || totals.contains(arg))) {
      fixed[k] = Role::totalLength;
    } else {
      why = "input '" + nameOf(main, k).str() + "' is a number or a choice that nothing says the value of";
      return {};
    }
  }
  if (open.empty() || open.size() > 3) {
    why = "expected one to three inputs of integers for tokens, positions and mask, found " + std::to_string(open.size());
    return {};
  }
  auto says = [&](unsigned arg, Role role) {
    StringRef name = nameOf(main, arg);
    return role == Role::tokens ? name.contains("input_ids") : role == Role::mask ? name.contains("mask") : name.contains("pos");
  };
  bool saysTokens = llvm::any_of(open, [&](unsigned arg) { return says(arg, Role::tokens); });
  bool named = llvm::any_of(open, [&](unsigned arg) { return says(arg, Role::tokens) || says(arg, Role::mask) || says(arg, Role::positions); });
  // Other names are that of the tokens, if no name is, or of positions that are used as such.
  auto possible = [&](unsigned arg, Role role) {
    if (!named || says(arg, role)) return true;
    if (says(arg, Role::tokens) || says(arg, Role::mask) || says(arg, Role::positions)) return false;
    return role == Role::tokens ? !saysTokens : role == Role::positions && positions.contains(main.getArgument(arg));
  };
  for (unsigned arg : open)
    if (!possible(arg, Role::tokens) && !possible(arg, Role::mask) && !possible(arg, Role::positions)) {
      why = "input '" + nameOf(main, arg).str() + "' is neither tokens, positions nor a mask by its name or by what uses it";
      return {};
    }
  std::vector<Roles> out;
  SmallVector<Role> kinds = {Role::tokens, Role::mask, Role::positions};
  std::vector<std::pair<int, Roles>> scored;
  SmallVector<int> order = {0, 1, 2};
  do {
    Roles roles = fixed;
    int score = 0;
    bool tokens = false, fits = true;
    for (auto [k, arg] : llvm::enumerate(open)) {
      Role role = kinds[order[k]];
      roles[arg] = role;
      tokens |= role == Role::tokens;
      fits &= possible(arg, role);
      score += says(arg, role);
    }
    auto known = [&](const auto &entry) { return entry.second == roles; };
    if (tokens && fits && llvm::none_of(scored, known)) scored.push_back({score, roles});
  } while (std::next_permutation(order.begin(), order.end()));
  // Insertion keeps equal scores in order.
  for (size_t i = 1; i < scored.size(); ++i)
    for (size_t k = i; k > 0 && scored[k].first > scored[k - 1].first; --k)
      std::swap(scored[k], scored[k - 1]);
  for (auto &[score, roles] : scored)
    out.push_back(roles);
  if (out.empty()) why = "the names of the inputs leave none for the tokens, or say one part twice";
  return out;
}

/// What the last size of the past may be when its type leaves it open. A wrong one fits no key.
std::vector<int64_t> Raiser::headSizes() {
  bool open = false;
  for (BlockArgument arg : main.getArguments())
    if (auto type = dyn_cast<RankedTensorType>(arg.getType()); type && type.getRank() == 4) open |= type.isDynamicDim(3);
  if (!open) return {0};
  std::vector<int64_t> sizes;
  auto add = [&](int64_t size) {
    if (size > 0 && size <= 1024 && !llvm::is_contained(sizes, size)) sizes.push_back(size);
  };
  add(genaiHeadSize);
  if (hint) add(hint->headSize);
  for (int64_t size : {64, 128, 96, 80, 256, 32, 16, 8, 48, 112, 160, 192, 24, 40, 72, 512})
    add(size);
  return sizes;
}

void Raiser::readHints() {
  auto parsed = [&](StringRef attribute) -> std::optional<nlohmann::json> {
    auto text = module->getAttrOfType<StringAttr>(attribute);
    if (!text) return std::nullopt;
    auto json = parseJson({text.getValue().data(), text.getValue().size()});
    if (json.ok() && json->is_object()) return *std::move(json);
    // The reader of a model's text says it of the other file.
    if (attribute == "onnx.config") damaged = std::string("config.json beside the model: ") + (json.ok() ? std::string("expected an object, found ") + json->type_name() : json.status().message());
    return std::nullopt;
  };
  ImportOptions options;
  options.maxSequence = maxSeq;
  if (auto json = parsed("onnx.config")) {
    auto config = readModelConfig(*json, options);
    if (config.ok()) hint = *std::move(config);
    else remarks.push_back("config.json beside the model is not used, but for its positions: " + config.status().message());
    // What every family calls the same.
    if (auto it = json->find("max_position_embeddings"); !config.ok() && it != json->end() && it->is_number_integer())
      contextLength = std::clamp<int64_t>(it->is_number_unsigned() ? std::min<uint64_t>(it->get<uint64_t>(), INT64_MAX) : it->get<int64_t>(), 0, int64_t(1) << 28);
  }
  auto genai = parsed("onnx.genai_config");
  auto number = [&](const char *path) -> int64_t {
    nlohmann::json::json_pointer pointer(path);
    if (!genai || !genai->contains(pointer)) return 0; // a missing part of a path ends the program otherwise
    const auto &value = (*genai)[pointer];
    if (value.is_number_integer()) return std::clamp<int64_t>(value.is_number_unsigned() ? std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX) : value.get<int64_t>(), 0, int64_t(1) << 28);
    damaged = "genai_config.json beside the model: '" + std::string(path + 1) + "': expected an integer, found " + value.type_name();
    return 0;
  };
  if (int64_t length = number("/model/context_length")) contextLength = length;
  genaiHeadSize = number("/model/decoder/head_size");
}

static bool within(double a, double b) { return std::fabs(a - b) <= 4 * 6e-8 * std::fabs(b); }

/// Whether config.json describes this graph.
bool Raiser::hinted(const ModelConfig &config) const {
  return hint && hint->layers.size() == config.layers.size() && hint->hidden == config.hidden && hint->vocabulary == config.vocabulary;
}

/// How many positions the model was trained for; 0: nothing says it.
int64_t Raiser::positionsOf(const Parts &parts) const {
  if (parts.config.learnedPositions) return parts.config.modelPositions;
  if (hinted(parts.config) && hint->modelPositions) return hint->modelPositions;
  if (contextLength) return contextLength;
  if (!parts.ropes.empty() && parts.ropes[0].seen[0].cosines.cache) return parts.ropes[0].seen[0].cosines.cache->shape[0];
  return 0;
}

/// Takes over what the configuration says and the graph agrees with: names, positions, exact formulas of constants.
void Raiser::adopt(Parts &parts) {
  ModelConfig &config = parts.config;
  config.family = config.learnedPositions ? Family::gpt2 : config.postNorms ? Family::gemma3 : config.headNorms ? Family::qwen3 : config.qkvBias ? Family::qwen2 : Family::llama;
  config.modelPositions = positionsOf(parts);
  if (hinted(config)) {
    config.family = hint->family;
    config.name = hint->name;
    if (within(config.embeddingScale, hint->embeddingScale)) config.embeddingScale = hint->embeddingScale;
    if (within(config.normEpsilon, static_cast<float>(hint->normEpsilon))) config.normEpsilon = hint->normEpsilon;
  } else if (hint) {
    remarks.push_back("config.json beside the model describes another one and is not used");
    hint.reset();
  }
  if (!config.modelPositions) {
    config.modelPositions = std::min(assumedPositions, std::max<int64_t>(reach, 1));
    (maxSeq ? remarks : warnings).push_back("neither the graph nor a config.json or genai_config.json beside it says how many positions the model was trained for: " +
                                            std::to_string(config.modelPositions) + " are assumed; put a config.json beside it, or give --max-seq");
  }
  config.maxSequence = maxSeq ? maxSeq : config.modelPositions;
  bool beyondLearned = config.learnedPositions && config.maxSequence > config.modelPositions; // an error of its own
  if (config.maxSequence > reach && !beyondLearned) {
    warnings.push_back("the longest sequence is " + std::to_string(reach) + " tokens instead of " + std::to_string(config.maxSequence) + ": " +
                       (reach < furthest ? "tables of the graph end there" : "the graph was looked at up to there"));
    config.maxSequence = reach;
  }
  for (auto [i, layer] : llvm::enumerate(config.layers)) {
    double formula = hint ? hint->layers[i].attentionScale : 1 / std::sqrt(static_cast<double>(config.headSize));
    if (layer.attentionScale != formula && within(layer.attentionScale, formula)) {
      if (i == 0) remarks.push_back("attention scales are within 4 ulp of their formula and became it");
      layer.attentionScale = formula;
    }
  }
}

bool Raiser::finish(const Roles &roles, Parts &parts, WeightMap &weights) {
  ModelConfig &config = parts.config;
  Parts raw = parts; // as runs say it
  adopt(parts);
  std::vector<Rope> formulas;
  if (hint) formulas = hint->ropes;
  Parts again = parts;
  auto fit = [&](Parts &all, std::vector<std::string> &says) {
    why = fitRopes(all, formulas, sixteenBits, says);
    if (!why.empty()) where = all.ropes[all.config.ropes.size()].loc; // the first that is none
    return why.empty();
  };
  if (!fit(parts, remarks)) return false;
  if (!lookIntoTables(roles, raw, config)) return false;
  // What was seen there follows the same formulas.
  std::vector<std::string> said;
  again.ropes = std::move(raw.ropes);
  if (!fit(again, said)) return false;
  auto head = parts.weights.find({lathe::Role::head, -1, false});
  if (head != parts.weights.end() && sameMatrix(parts.weights[{lathe::Role::embedding, -1, false}], head->second)) {
    config.tiedHead = true;
    parts.weights.erase(head);
    remarks.push_back("the head is a copy of the embedding and became it");
  }
  for (auto &[key, weight] : parts.weights) {
    auto ref = reference(weight);
    if (!ref) return false;
    auto [role, layer, bias] = key;
    weights.set(role, layer, bias, *std::move(ref));
  }
  if (scaleChange > 0) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1e", scaleChange);
    std::string changes = "scales of block-quantized weights are rounded to f16; the largest changes by " + std::string(text) + " of itself";
    if (scaleChange < 1e-3) remarks.push_back(changes);
    else warnings.push_back(changes + ": small ones beside larger ones of the same matrix");
  }
  Status status = validateConfig(config, "the graph");
  if (!status.ok()) why = status.message();
  return status.ok();
}

OwningOpRef<ModuleOp> Raiser::run() {
  if (main.empty()) {
    why = "@main has no body";
    return nullptr;
  }
  readHints();
  if (!damaged.empty()) return nullptr;
  auto choices = assignments();
  std::string firstWhy = why;
  Operation *firstAt = nullptr;
  std::optional<Location> firstWhere;
  std::vector<std::string> start = remarks, firstRemarks = remarks;
  for (auto [k, roles] : llvm::enumerate(choices)) {
    Parts parts;
    WeightMap weights;
    remarks = start;
    warnings.clear();
    numbers.clear();
    thresholds.clear();
    tables.clear();
    quotients.clear();
    buckets = false;
    seen.clear();
    bool ok = attempt(roles, parts);
    if (ok) {
      remarks = start;
      remarks.insert(remarks.end(), parts.layers.begin(), parts.layers.end());
      ok = finish(roles, parts, weights);
    }
    if (ok) {
      layers = parts.config.layers.size();
      auto built = buildModule(*module.getContext(), parts.config, weights);
      if (built.ok()) return *std::move(built);
      why = built.status().message();
    }
    if (k == 0) firstWhy = why, firstAt = at, firstWhere = where, firstRemarks = remarks;
  }
  why = firstWhy;
  at = firstAt;
  where = firstWhere;
  remarks = firstRemarks;
  return nullptr;
}

} // namespace lathe::raise

namespace {

struct ONNXRaisePass : lathe::impl::ONNXRaisePassBase<ONNXRaisePass> {
  using ONNXRaisePassBase::ONNXRaisePassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto main = module.lookupSymbol<func::FuncOp>("main");
    if (!main || main.empty() || module.lookupSymbol("step")) return;
    if (!main.walk([](lathe::onnx::NodeOp) { return WalkResult::interrupt(); }).wasInterrupted()) return;
    lathe::raise::Raiser raiser(module, main, maxSeq);
    OwningOpRef<ModuleOp> step = raiser.run();
    if (remarks)
      for (const std::string &text : raiser.remarks)
        emitRemark(main.getLoc()) << text;
    if (!raiser.damaged.empty()) {
      emitError(main.getLoc()) << raiser.damaged;
      return signalPassFailure();
    }
    if (!step) {
      Location loc = raiser.at ? raiser.at->getLoc() : raiser.where ? *raiser.where : main.getLoc();
      std::string node;
      if (auto name = dyn_cast<NameLoc>(loc)) node = "node '" + name.getName().str() + "': ";
      emitWarning(loc) << "the graph is not raised to llm ops: " << node << raiser.why;
      return;
    }
    for (const std::string &text : raiser.warnings)
      emitWarning(main.getLoc()) << text;
    ++numRaised;
    numLayers += raiser.layers;
    // The new module takes the old one's place.
    while (!module.getBody()->empty())
      module.getBody()->back().erase();
    module->setAttrs((*step)->getAttrDictionary());
    module.getBody()->getOperations().splice(module.getBody()->end(), step->getBody()->getOperations());
  }
};

} // namespace
