//===- Raise.cpp - an ONNX graph to the step --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Assemble.h"
#include "dialects/LLM/LLM.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/ONNX/Inputs.h"
#include "lathe/import/Import.h"
#include "lathe/import/Json.h"
#include "lathe/weights/Half.h"
#include "lathe/weights/Storage.h"
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace lathe {
#define GEN_PASS_DEF_ONNXRAISEPASS
#include "lathe/Conversion/Passes.h.inc"
} // namespace lathe

using namespace mlir;

namespace lathe::raise {
namespace {

constexpr int64_t assumedPositions = 4096;           ///< of a model of which nothing says how many it was trained for
constexpr int64_t furthest = int64_t(1) << 20; ///< position at which a graph is looked at

class Raiser {
public:
  Raiser(ModuleOp module, func::FuncOp main, int64_t maxSeq) : module(module), main(main), maxSeq(maxSeq) {}
  /// The step's module, or null with why() and at().
  OwningOpRef<ModuleOp> run();
  std::string why;
  std::string damaged; ///< what is wrong with a file beside the model
  Operation *at = nullptr;
  std::optional<Location> where; ///< instead of at()
  std::vector<std::string> remarks;
  std::vector<std::string> warnings; ///< of a graph that is raised
  size_t layers = 0;

private:
  using Roles = SmallVector<Role>;
  std::vector<Roles> assignments();
  bool attempt(const Roles &roles, Parts &parts);
  std::vector<int64_t> headSizes();
  bool runOnce(const Roles &roles, Sizes sizes, Parts &parts);
  bool agree(Parts &parts, const Parts &other);
  bool lookAt(const Roles &roles, Sizes sizes, Parts &parts);
  bool lookFurther(const Roles &roles, Parts &parts);
  bool hinted(const ModelConfig &config) const;
  int64_t positionsOf(const Parts &parts) const;
  void readHints();
  void adopt(Parts &parts);
  bool sameMatrix(const Weight &a, const Weight &b);
  std::optional<WeightRef> reference(const Weight &weight);
  std::optional<WeightRef> blocks(const Weight &weight, WeightRef ref);
  std::optional<WeightRef> dequantized(const Weight &weight, WeightRef ref);
  std::optional<bool> fitHalf(onnx::ParamOp scales, ArrayRef<double> numbers, double most);
  bool finish(Parts &parts, WeightMap &weights);

  ModuleOp module;
  func::FuncOp main;
  int64_t maxSeq;
  ParamReader params;
  std::optional<ModelConfig> hint;
  int64_t contextLength = 0, genaiHeadSize = 0;
  int widened = 0; ///< weights that became f32
  double scaleChange = 0; ///< largest relative change of a scale that is rounded to f16
  int64_t headSize = 0; ///< of pasts whose type does not say
  int64_t beyond = 0;   ///< of the last run: by how many positions it was longer than a table of the graph; 0: by none
  bool sixteenBits = false; ///< the graph's own type is float16 or bfloat16
  int64_t reach = 0;    ///< positions up to which the graph was looked at
  std::vector<Term> seen;    ///< of the first run
  std::optional<Location> differs; ///< the first node of the last run that computes something else than in the first
  std::map<Operation *, std::shared_ptr<const Known>> tables; ///< that runs looked into
  std::vector<bool> branches; ///< that the first run took at every If
  std::set<int64_t> numbers;    ///< that all runs computed whatever their sizes: where a graph may change what it does
  std::map<Operation *, std::vector<double>> quotients; ///< of the runs so far
  bool buckets = false;                    ///< two runs had others
  std::set<int64_t> thresholds; ///< those among them that single numbers are compared with
};

StringRef nameOf(func::FuncOp main, unsigned arg) {
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
    if (!integer && name.contains("mask") && type.hasRank() && type.getRank() == 2) {
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

bool Raiser::runOnce(const Roles &roles, Sizes sizes, Parts &parts) {
  GraphRun run(main, roles, sizes, headSize, params);
  if (sizes.past == 0) run.usual = &branches;
  RunResult result = run.run();
  if (seen.empty()) branches = run.branches;
  beyond = run.beyond;
  sixteenBits = run.own != DataType::float32;
  tables.insert(run.tables.begin(), run.tables.end());
  for (const auto &[op, values] : run.quotients)
    buckets |= quotients.try_emplace(op, values).first->second != values;
  for (auto [all, own] : {std::pair(&numbers, &run.numbers), {&thresholds, &run.thresholds}})
    if (all->empty()) *all = *own;
    else std::erase_if(*all, [own = own](int64_t n) { return !own->count(n); });
  if (!result.why.empty()) {
    why = result.why;
    at = result.at;
    remarks = recognised(run.terms);
    return false;
  }
  parts = assemble(run.terms, result, sizes);
  where.reset();
  differs.reset();
  if (seen.empty())
    for (size_t k = 0; k < run.terms.size(); ++k)
      seen.push_back(run.terms[static_cast<TermId>(k)]);
  // Where it is that two runs differ.
  for (size_t k = 0; k < run.terms.size() && !differs; ++k) {
    const Term &now = run.terms[static_cast<TermId>(k)];
    bool other = k >= seen.size() || now.kind != seen[k].kind || now.number != seen[k].number || now.name != seen[k].name ||
                 (now.kind != Kind::past && now.kind != Kind::history && now.a > 0 && seen[k].a > 0 && now.a != seen[k].a);
    if (other) differs = now.loc;
  }
  for (const std::string &output : result.unused)
    parts.layers.push_back(output + " is neither logits nor a cache and is left out");
  why = parts.why;
  at = nullptr;
  remarks = parts.layers;
  if (!why.empty()) llvm::append_range(remarks, recognised(run.terms));
  return why.empty();
}

bool Raiser::attempt(const Roles &roles, Parts &parts) {
  // Sizes that no weight has, so that axes cannot be mistaken; position 1 is among the first.
  bool ok = false;
  std::string firstWhy;
  Operation *firstAt = nullptr;
  std::vector<std::string> firstRemarks;
  for (auto [k, size] : llvm::enumerate(headSizes())) {
    headSize = size;
    if ((ok = runOnce(roles, {2, 7, 1}, parts))) break;
    if (k == 0) firstWhy = why, firstAt = at, firstRemarks = remarks;
  }
  if (!ok) {
    why = firstWhy;
    at = firstAt;
    remarks = firstRemarks;
    return false;
  }
  // A step of one token may take a way of its own, and so may the first, behind an empty past.
  for (Sizes sizes : {Sizes{3, 5, 11}, Sizes{1, 4, 9}, Sizes{1, 1, 13}, Sizes{2, 6, 0}}) {
    Parts other;
    if (!runOnce(roles, sizes, other)) return false;
    if (!agree(parts, other)) return false;
  }
  if (!lookFurther(roles, parts)) return false;
  why.clear();
  return true;
}

bool Raiser::agree(Parts &parts, const Parts &other) {
  why = merge(parts, other);
  if (!why.empty()) where = differs;
  return why.empty();
}

/// One more run, which has to say what the others said.
bool Raiser::lookAt(const Roles &roles, Sizes sizes, Parts &parts) {
  Parts other;
  bool ok = runOnce(roles, sizes, other);
  if (ok) ok = agree(parts, other);
  if (!ok) why += ", in a run of " + std::to_string(sizes.step) + " tokens behind " + std::to_string(sizes.past);
  return ok;
}

/// Windows, rotations and scales may change with the position, at numbers that a graph compares with and in tables. So the last positions are looked at,
/// lengths and positions around every number, all of a short sequence and some of a long one. Only a table that ends earlier makes the longest sequence shorter.
bool Raiser::lookFurther(const Roles &roles, Parts &parts) {
  constexpr int64_t first = 16, chunk = 251, budget = int64_t(1) << 20, wide = int64_t(1) << 17, spread = int64_t(1) << 16, longest = 1024, prompt = 362, bucketed = 64;
  constexpr size_t most = 128;
  std::vector<int64_t> places(numbers.begin(), numbers.end()), steps(thresholds.begin(), thresholds.end());
  int64_t positions = positionsOf(parts);
  reach = std::min(maxSeq ? maxSeq : positions ? positions : assumedPositions, furthest);
  if (parts.config.learnedPositions) reach = std::min(reach, parts.config.modelPositions);
  for (int tries = 0; reach > first && !lookAt(roles, {1, 2, reach - 2}, parts); ++tries) {
    if (!beyond || tries == 8) return false;
    reach -= std::min(beyond, reach - first);
  }
  auto all = [&](int64_t steps, int64_t pasts) {
    for (int64_t step = 1; step <= steps; ++step)
      for (int64_t past = 0; past <= std::min(pasts, reach - step); ++past)
        if (step + past > 1 && !lookAt(roles, {1, step, past}, parts)) return false; // one token alone has no axes to tell apart
    return true;
  };
  if (reach <= first) return all(reach, reach);
  // The length, which is one for all rows of a run, around every number.
  std::erase_if(places, [&](int64_t n) { return n < first || n >= reach; });
  if (places.size() > most) {
    why = "the graph has " + std::to_string(places.size()) + " numbers at which it may change what it does, expected at most " + std::to_string(most);
    return false;
  }
  for (int64_t n : places)
    for (Sizes sizes : {Sizes{1, 5, n - 2}, Sizes{1, 1, n - 1}, Sizes{1, 1, n}})
      if (sizes.total() <= reach && !lookAt(roles, sizes, parts)) return false;
  // A first step may do what no later one does: with as many tokens as there is room for in one mask, and around every number of which there are not too many.
  int64_t prompts = 0;
  for (int64_t n : places)
    if (n < reach && (prompts += (n + 1) * (n + 1)) <= budget && !lookAt(roles, {1, n + 1, 0}, parts)) return false;
  if (!lookAt(roles, {1, std::min(reach, prompt), 0}, parts)) return false;
  // Lengths that are divided and rounded change what they are at multiples of numbers.
  if (buckets && (!all(1, chunk) || !all(bucketed, 1))) return false;
  // Steps of as many tokens as a size is compared with, and for the smallest also such pasts and lengths. Longer steps are looked at while there is room for them.
  int64_t elements = 0;
  for (int64_t last = 0; int64_t n : steps) {
    for (int64_t near = std::max(last + 1, n - 1); near <= n + 1; ++near) {
      Sizes sizes{1, near, 1};
      if (near > reach) break;
      last = near;
      elements += sizes.step * sizes.total();
      if (elements > (budget << 2) && near > longest) break;
      if (elements > (budget << 3)) {
        why = "the graph compares with " + std::to_string(steps.size()) + " numbers, and steps of " + std::to_string(near) + " tokens, where it may change what it does, are not looked at: expected masks of at most " +
              std::to_string(budget << 3) + " elements for all of those of up to " + std::to_string(longest) + " tokens";
        return false;
      }
      if ((near > 1 && !lookAt(roles, {1, near, 0}, parts)) || (sizes.total() <= reach && !lookAt(roles, sizes, parts))) return false;
    }
    for (int64_t before = std::max<int64_t>(0, n - 3); n < first && before <= n + 1; ++before)
      if (!lookAt(roles, {1, 2, before}, parts)) return false;
  }
  int64_t past = 1;
  // A mask is step * total numbers, and may be one of every head.
  for (int64_t looked = 0; past + 2 < reach && looked < budget;) {
    int64_t step = std::min({chunk, reach - past, wide / (past + chunk)});
    if (!lookAt(roles, {1, step, past}, parts)) return false;
    past += step;
    looked += step * past;
  }
  for (int64_t n = reach / 2; n > past; n /= 2)
    if (!lookAt(roles, {1, std::clamp<int64_t>(spread / n, 2, 17), n | 1}, parts)) return false;
  return true;
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
    else remarks.push_back("config.json beside the model is not used: " + config.status().message());
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
  contextLength = number("/model/context_length");
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

/// Whether two weights hold the same numbers (a head that is a transposed copy of the embedding).
bool Raiser::sameMatrix(const Weight &a, const Weight &b) {
  if (a.rows != b.rows || a.columns != b.columns || a.bits || b.bits || a.qdq || b.qdq || a.end || b.end) return false;
  onnx::ParamOp p = a.param, q = b.param;
  auto pt = cast<RankedTensorType>(p.getType()), qt = cast<RankedTensorType>(q.getType());
  if (pt.getElementType() != qt.getElementType() || !pt.getElementType().isF32()) return false;
  auto bytesOf = [&](onnx::ParamOp param, std::optional<MappedFile> &file) -> const float * {
    auto where = dyn_cast<onnx::FileAttr>(param.getValue());
    if (!where) return nullptr;
    auto opened = MappedFile::open(where.getPath().str());
    if (!opened.ok()) return nullptr;
    file = *std::move(opened);
    auto bytes = file->bytes();
    auto offset = static_cast<uint64_t>(where.getOffset());
    if (offset > bytes.size() || static_cast<uint64_t>(where.getBytes()) > bytes.size() - offset) return nullptr;
    return reinterpret_cast<const float *>(bytes.data() + offset);
  };
  std::optional<MappedFile> first, second;
  const float *x = bytesOf(p, first), *y = bytesOf(q, second);
  if (!x || !y) return false;
  auto equal = [](const float *left, const float *right) { return std::memcmp(left, right, sizeof(float)) == 0; };
  // A few rows first: most different weights differ there.
  auto row = [&](int64_t r) {
    for (int64_t k = 0; k < a.columns; ++k) {
      int64_t i = a.transpose ? k * a.rows + r : r * a.columns + k, j = b.transpose ? k * b.rows + r : r * b.columns + k;
      if (!equal(x + i, y + j)) return false;
    }
    return true;
  };
  for (int64_t r = 0; r < a.rows; ++r)
    if (!row(r)) return false;
  return first->check().ok() && second->check().ok();
}

/// The storage types hold f16 scales, and |most| times a scale as a minimum: whether they hold |scales|, or |numbers| where there is no such param, but for small ones
/// beside larger ones of the same matrix. Notes what that changes. Nothing, with why, for a file that cannot be read.
std::optional<bool> Raiser::fitHalf(onnx::ParamOp scales, ArrayRef<double> numbers, double most) {
  double largest = 0, off = 0, change = 0;
  auto look = [&](ArrayRef<double> values) {
    for (double s : values) {
      if (!s) continue;
      double half = halfToFloat(floatToHalf(static_cast<float>(s)));
      largest = std::max(largest, std::fabs(s));
      off = std::max(off, std::fabs(half - s));
      change = std::max(change, std::fabs(half / s - 1));
    }
  };
  if (!scales) look(numbers);
  else if (Status status = params.visit(scales, [&](const Known &part) { look(part.f); }); !status.ok()) {
    why = status.message();
    return std::nullopt;
  }
  if (off > std::ldexp(largest, -11) || largest * most > 65504) return false;
  scaleChange = std::max(scaleChange, change);
  return true;
}

/// Where |param| is stored raw: sets |path| and |offset|. False if it is not in a file.
static bool place(onnx::ParamOp param, std::string &path, int64_t &offset) {
  auto file = dyn_cast<onnx::FileAttr>(param.getValue());
  if (!file) return false;
  path = file.getPath().str();
  offset = file.getOffset();
  return true;
}

/// A weight behind DequantizeLinear, or one in blocks that is stored as such a one would be: |weight| says where codes lie, not how they are packed.
std::optional<WeightRef> Raiser::dequantized(const Weight &weight, WeightRef ref) {
  onnx::ParamOp codes = weight.param, scales = weight.scales, zeros = weight.zeros;
  auto type = cast<RankedTensorType>(codes.getType());
  TensorRef::QDQ &qdq = ref.tensor.qdq;
  onnx::DataType code = onnx::dataType(type.getElementType());
  if (weight.bits == 4) code = DataType::uint4; // two in a byte
  qdq.code = code == DataType::int8 ? "int8" : code == DataType::uint8 ? "uint8" : code == DataType::int4 ? "int4" : "uint4";
  int bits = code == DataType::int8 || code == DataType::uint8 ? 8 : 4;
  qdq.transposed = weight.transpose;
  std::copy(weight.qdqBlock, weight.qdqBlock + 2, qdq.block);
  qdq.scaleValues.assign(weight.scaleNumbers.begin(), weight.scaleNumbers.end());
  qdq.zeroValues.assign(weight.zeroNumbers.begin(), weight.zeroNumbers.end());
  bool good = place(codes, ref.tensor.path, ref.tensor.offset) && (!scales || place(scales, qdq.scales, qdq.scalesOffset)) && (!zeros || place(zeros, qdq.zeros, qdq.zerosOffset));
  if (!good || weight.rows * weight.columns != type.getNumElements() * (weight.bits == 4 ? 2 : 1)) {
    why = "weight '" + ref.tensor.name + "' behind DequantizeLinear is not a whole matrix that is stored as raw data";
    return std::nullopt;
  }
  if (scales) {
    Type scaleType = cast<RankedTensorType>(scales.getType()).getElementType();
    assert((scaleType.isF32() || scaleType.isF16() || scaleType.isBF16()) && "GraphRun refuses scales of other types");
    qdq.scaleStorage = scaleType.isF16() ? StorageType::f16 : scaleType.isBF16() ? StorageType::bf16 : StorageType::f32;
  }
  int64_t middle = qdq.code == "uint8" ? 128 : qdq.code == "uint4" ? 8 : 0;
  bool centred = !zeros && qdq.zeroValues == std::vector<int64_t>{middle};
  ref.tensor.storage = qdqStorage(bits, weight.columns, qdq.block[qdq.transposed ? 0 : 1], !centred);
  const char *lacks = ref.tensor.storage == StorageType::f32 ? "has no storage type with its blocks and zero points" : nullptr;
  if (!lacks && ref.tensor.storage != StorageType::int8) {
    auto fits = fitHalf(scales, weight.scaleNumbers, centred ? 1 : 15);
    if (!fits) return std::nullopt;
    if (!*fits) lacks = "has scales that f16 does not hold";
  }
  if (lacks) {
    ref.tensor.storage = StorageType::f32;
    if (!widened++) remarks.push_back("weight '" + ref.tensor.name + "' of " + std::to_string(bits) + " bits " + lacks + ": its values are stored as f32");
  }
  ref.tensor.shape = {weight.rows, weight.columns};
  ref.begin = weight.begin;
  ref.end = weight.end;
  ref.unropeHeads = weight.unropeHeads;
  ref.shape = {weight.end ? weight.end - weight.begin : weight.rows, weight.columns};
  return ref;
}

/// Codes of MatMulNBits in blocks that no storage type has: as those of DequantizeLinear where nothing is padded, so that they lie in the same order.
static std::optional<Weight> asDequantized(Weight weight) {
  int64_t blocks = (weight.columns + weight.block - 1) / weight.block;
  bool even = weight.bits == 8 || blocks % 2 == 0;
  if (weight.columns != blocks * weight.block || weight.columns % 2 || (weight.zeros && !even)) return std::nullopt;
  weight.qdqBlock[0] = 1;
  weight.qdqBlock[1] = weight.block;
  if (!weight.zeros) weight.zeroNumbers = {weight.bits == 8 ? 128.0 : 8.0};
  return weight;
}

/// A block-quantized weight.
std::optional<WeightRef> Raiser::blocks(const Weight &weight, WeightRef ref) {
  auto storage = nbitsStorage(static_cast<int>(weight.bits), weight.block, static_cast<bool>(const_cast<onnx::ParamOp &>(weight.zeros)));
  if (!storage)
    if (auto other = asDequantized(weight)) return dequantized(*other, std::move(ref));
  TensorRef::Blocks &blocks = ref.tensor.blocks;
  blocks.bits = static_cast<int>(weight.bits);
  blocks.block = weight.block;
  onnx::ParamOp scales = weight.scales, zeros = weight.zeros;
  Type scaleType = cast<RankedTensorType>(scales.getType()).getElementType();
  blocks.scaleStorage = scaleType.isF16() ? StorageType::f16 : scaleType.isBF16() ? StorageType::bf16 : StorageType::f32;
  bool good = storage && (scaleType.isF32() || scaleType.isF16() || scaleType.isBF16()) && place(weight.param, ref.tensor.path, ref.tensor.offset) &&
              place(scales, blocks.scales, blocks.scalesOffset) && (!zeros || place(zeros, blocks.zeros, blocks.zerosOffset));
  if (!good) {
    why = "weight '" + ref.tensor.name + "' of " + std::to_string(weight.bits) + " bits in blocks of " + std::to_string(weight.block) +
          " has no storage type, or is not stored as raw data";
    return std::nullopt;
  }
  auto fits = fitHalf(scales, {}, zeros ? 15 : 1);
  if (!fits) return std::nullopt;
  if (!*fits) {
    WeightRef plain;
    plain.tensor.name = ref.tensor.name;
    if (auto other = asDequantized(weight)) return dequantized(*other, std::move(plain));
    why = "weight '" + ref.tensor.name + "' has scales that f16 does not hold, and padded rows or zero points";
    return std::nullopt;
  }
  ref.tensor.storage = *storage;
  ref.tensor.shape = {weight.rows, weight.columns};
  ref.begin = weight.begin;
  ref.end = weight.end;
  ref.unropeHeads = weight.unropeHeads;
  ref.shape = {weight.end ? weight.end - weight.begin : weight.rows, weight.columns};
  return ref;
}

std::optional<WeightRef> Raiser::reference(const Weight &weight) {
  onnx::ParamOp param = weight.param;
  auto type = cast<RankedTensorType>(param.getType());
  WeightRef ref;
  ref.tensor.name = param.getSymName().str();
  if (weight.bits) return blocks(weight, std::move(ref));
  if (weight.qdq) return dequantized(weight, std::move(ref));
  Type element = type.getElementType();
  if (element.isF32()) ref.tensor.storage = StorageType::f32;
  else if (element.isF16()) ref.tensor.storage = StorageType::f16;
  else if (element.isBF16()) ref.tensor.storage = StorageType::bf16;
  else {
    why = "weight '" + ref.tensor.name + "' has an element type that is no storage type";
    return std::nullopt;
  }
  if (auto file = dyn_cast<onnx::FileAttr>(param.getValue())) {
    ref.tensor.path = file.getPath().str();
    ref.tensor.offset = file.getOffset();
  } else {
    auto values = params.read(param);
    if (!values.ok() || !element.isF32()) {
      why = "weight '" + ref.tensor.name + "' is not stored as raw data";
      return std::nullopt;
    }
    ref.tensor.values.assign((*values)->f.begin(), (*values)->f.end());
  }
  if (!weight.columns) ref.tensor.shape = {type.getNumElements()};
  else ref.tensor.shape = weight.transpose ? std::vector<int64_t>{weight.columns, weight.rows} : std::vector<int64_t>{weight.rows, weight.columns};
  if (elementsOf(ref.tensor.shape) != type.getNumElements()) {
    why = "weight '" + ref.tensor.name + "' is used in another shape than it has";
    return std::nullopt;
  }
  ref.transpose = weight.transpose;
  ref.begin = weight.begin;
  ref.end = weight.end;
  ref.plusOne = weight.plusOne;
  ref.unropeHeads = weight.unropeHeads;
  int64_t rows = weight.end ? weight.end - weight.begin : weight.rows;
  ref.shape = weight.columns ? std::vector<int64_t>{rows, weight.columns} : std::vector<int64_t>{rows};
  return ref;
}

bool Raiser::finish(Parts &parts, WeightMap &weights) {
  ModelConfig &config = parts.config;
  adopt(parts);
  std::vector<Rope> formulas;
  if (hint) formulas = hint->ropes;
  if (why = fitRopes(parts, formulas, sixteenBits, remarks); !why.empty()) {
    where = parts.ropes[config.ropes.size()].loc; // the first that is none
    return false;
  }
  for (auto &[op, table] : tables) // the runs saw some of their rows only
    if (why = checkTable(config, *table, sixteenBits); !why.empty()) {
      where = op->getLoc();
      return false;
    }
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
      ok = finish(parts, weights);
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

} // namespace
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
