//===- DraftHeads.cpp - checkpoints of heads that draft -----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/DraftHeads.h"
#include "DraftCheckpoint.h"
#include "lathe/artifact/Program.h"
#include "lathe/import/Json.h"
#include <nlohmann/json.hpp>

using namespace mlir;

namespace lathe {
namespace {

constexpr int64_t mostHeads = maxDraftTokens, mostBlocks = 16;

class MedusaBuilder : DraftCheckpoint {
public:
  MedusaBuilder(MLIRContext &context, const safetensors::Model &file, HeadShape shape) : DraftCheckpoint(context, file), shape(shape) {}

  Result<OwningOpRef<ModuleOp>> run(int64_t wantedHeads, int64_t wantedBlocks) {
    if (!file.tensors().empty() && llvm::all_of(file.tensors(), [](auto &t) { return StringRef(t.name).starts_with("medusa_head."); })) prefix = "medusa_head.";
    int64_t heads = 0;
    while (heads <= mostHeads && (has(heads, "0.linear.weight") || has(heads, "0.weight"))) ++heads;
    if (!heads || heads > mostHeads || (wantedHeads && heads != wantedHeads))
      return makeError(StatusCode::invalidArgument, "expected %s heads '%s0.0.linear.weight', '%s1.0.linear.weight', ..., found %s%lld",
                       wantedHeads ? std::to_string(wantedHeads).c_str() : ("1 to " + std::to_string(mostHeads)).c_str(), prefix.c_str(), prefix.c_str(), heads > mostHeads ? "more than " : "",
                       (long long)std::min(heads, mostHeads));
    OwningOpRef<ModuleOp> module = ModuleOp::create(b.getUnknownLoc());
    b.setInsertionPointToEnd(module->getBody());
    SmallVector<Type> results(heads, rows(shape.vocabulary));
    auto function = func::FuncOp::create(b, b.getUnknownLoc(), "heads", b.getFunctionType({rows(shape.hidden)}, results));
    Block *entry = function.addEntryBlock();
    b.setInsertionPointToEnd(entry);
    SmallVector<Value> logits;
    for (int64_t head = 0; head < heads; ++head) {
      Value x = entry->getArgument(0);
      int64_t block = 0;
      for (; has(head, std::to_string(block) + ".linear.weight"); ++block) {
        if (block == mostBlocks) return makeError(StatusCode::invalidArgument, "head %lld: expected at most %lld blocks, found more", (long long)head, (long long)mostBlocks);
        std::string name = nameOf(head, std::to_string(block) + ".linear");
        LATHE_ASSIGN_OR_RETURN(Value w, weight(name + ".weight", {shape.hidden, shape.hidden}));
        LATHE_ASSIGN_OR_RETURN(Value bias, weight(name + ".bias", {shape.hidden}));
        Location loc = NameLoc::get(b.getStringAttr(name));
        Value y = llm::LinearOp::create(b, loc, x.getType(), x, ValueRange(w), bias);
        y = llm::ActivationOp::create(b, loc, y.getType(), llm::Activation::silu, y);
        x = llm::AddOp::create(b, loc, x.getType(), x, y);
      }
      if (wantedBlocks >= 0 && block != wantedBlocks)
        return makeError(StatusCode::invalidArgument, "head %lld: expected %lld blocks, as 'medusa_num_layers' says, found %lld", (long long)head, (long long)wantedBlocks, (long long)block);
      std::string name = nameOf(head, std::to_string(block));
      LATHE_ASSIGN_OR_RETURN(Value w, weight(name + ".weight", {shape.vocabulary, shape.hidden}));
      logits.push_back(llm::LinearOp::create(b, NameLoc::get(b.getStringAttr(name)), rows(shape.vocabulary), x, ValueRange(w), Value()));
    }
    func::ReturnOp::create(b, b.getUnknownLoc(), logits);
    if (const safetensors::TensorInfo *tensor = unused()) return makeError(StatusCode::unsupported, "tensor %s is no part of %lld heads", quoteName(tensor->name).c_str(), (long long)heads);
    return module;
  }

private:
  std::string nameOf(int64_t head, const std::string &rest) const { return prefix + std::to_string(head) + "." + rest; }
  bool has(int64_t head, const std::string &rest) const { return file.tensor(nameOf(head, rest)); }

  HeadShape shape;
  std::string prefix;
};

/// A whole number of |json|, or |otherwise| when it is not there.
Result<int64_t> numberOf(const nlohmann::json &json, const char *key, int64_t otherwise) {
  auto it = json.find(key);
  if (it == json.end()) return otherwise;
  if (!it->is_number_integer() || it->get<int64_t>() < 0) return makeError(StatusCode::invalidArgument, "expected a whole number '%s', found %s", key, it->dump().substr(0, 40).c_str());
  return it->get<int64_t>();
}

} // namespace

Result<OwningOpRef<ModuleOp>> importMedusaHeads(MLIRContext &context, const std::string &directory, HeadShape shape) {
  int64_t heads = 0, blocks = -1;
  if (exists(directory + "/config.json")) {
    LATHE_ASSIGN_OR_RETURN(std::string path, resolveInside(directory, "config.json"));
    LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    auto json = parseJson({reinterpret_cast<const char *>(file.bytes().data()), file.fileSize()});
    if (!json.ok()) return json.status().at(path);
    if (!json->is_object()) return makeError(StatusCode::invalidArgument, "%s: expected a JSON object", path.c_str());
    auto wantedHeads = numberOf(*json, "medusa_num_heads", 0), wantedBlocks = numberOf(*json, "medusa_num_layers", -1);
    if (!wantedHeads.ok()) return wantedHeads.status().at(path);
    if (!wantedBlocks.ok()) return wantedBlocks.status().at(path);
    heads = *wantedHeads, blocks = *wantedBlocks;
  }
  std::string path;
  for (const char *name : {"medusa_lm_head.safetensors", "model.safetensors"})
    if (path.empty() && exists(directory + "/" + name)) {
      LATHE_ASSIGN_OR_RETURN(path, resolveInside(directory, name));
    }
  if (path.empty()) {
    if (exists(directory + "/medusa_lm_head.pt"))
      return makeError(StatusCode::unsupported, "'%s/medusa_lm_head.pt' is an archive of PyTorch's: expected its tensors as medusa_lm_head.safetensors", directory.c_str());
    return makeError(StatusCode::notFound, "expected medusa_lm_head.safetensors or model.safetensors in '%s'", directory.c_str());
  }
  LATHE_ASSIGN_OR_RETURN(safetensors::Model file, safetensors::Model::openFile(path));
  auto module = MedusaBuilder(context, file, shape).run(heads, blocks);
  if (!module.ok()) return module.status().at(path);
  return module;
}

} // namespace lathe
