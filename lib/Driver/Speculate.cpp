//===- Speculate.cpp - the draft model beside the model ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Speculate.h"
#include "ModelText.h"
#include "dialects/LLM/LLM.h"
#include "lathe/import/DraftHeads.h"
#include "lathe/import/Import.h"
#include "lathe/import/Vocabulary.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;

namespace lathe {

std::string SpeculateOption::pass() const {
  return "llm-speculate{method=" + method + (method == "layerskip" ? " layers=" + std::to_string(layers) : "") + "}";
}

Result<SpeculateOption> parseSpeculate(const std::string &text) {
  SpeculateOption option;
  StringRef rest = text;
  if (rest.empty()) return option;
  if (rest.consume_front("draft:") && !rest.empty()) {
    option.method = "draft";
    option.model = rest.str();
    return option;
  }
  if (rest.consume_front("layerskip:") && !rest.getAsInteger(10, option.layers) && option.layers > 0) {
    option.method = "layerskip";
    return option;
  }
  if (text == "medusa" || text == "eagle" || text == "eagle2" || text == "eagle3") {
    option.method = text;
    return option;
  }
  if (text == "ngram" || text == "suffix" || text == "suffix-tree") {
    option.lookup = text;
    return option;
  }
  return makeError(StatusCode::invalidArgument, "--speculate '%s': expected draft:MODEL, layerskip:LAYERS of at least 1, medusa, eagle, eagle2, eagle3, ngram, suffix or suffix-tree",
                   text.c_str());
}

Status addDraftModel(ModuleOp module, const SpeculateOption &option, const CompileOptions &options, const ModelText &text) {
  MLIRContext &context = *module.getContext();
  std::string where = "--speculate 'draft:" + option.model + "'";
  OwningOpRef<ModuleOp> draft;
  if (StringRef(option.model).ends_with(".mlir")) {
    if (!llvm::sys::fs::exists(option.model)) return makeError(StatusCode::notFound, "%s: cannot open it", where.c_str());
    draft = parseSourceFile<ModuleOp>(option.model, &context);
    if (!draft) return makeError(StatusCode::invalidArgument, "%s: it is not a valid module", where.c_str());
  } else {
    ImportOptions importOptions;
    importOptions.maxSequence = options.maxSeq;
    auto imported = importModel(context, option.model, importOptions);
    if (!imported.ok()) return Status(imported.status()).at(where);
    draft = *std::move(imported);
  }
  if (Status status = runPhases(*draft, Phase::import, Phase::raise, options); !status.ok()) return std::move(status).at(where);
  auto step = module.lookupSymbol<func::FuncOp>("step"), other = draft->lookupSymbol<func::FuncOp>("step");
  if (!other) return makeError(StatusCode::unsupported, "%s: expected a language model with a function 'step'", where.c_str());
  auto vocabulary = [](func::FuncOp function) {
    auto type = function.getNumResults() ? dyn_cast<RankedTensorType>(function.getResultTypes()[0]) : RankedTensorType();
    return type ? type.getShape().back() : 0;
  };
  if (step && vocabulary(step) != vocabulary(other))
    return makeError(StatusCode::invalidArgument, "%s: expected a vocabulary of %lld tokens, found %lld", where.c_str(), (long long)vocabulary(step), (long long)vocabulary(other));
  ModelText draftText;
  if (Status status = readModelText(option.model, "", *draft, options, draftText); !status.ok()) return std::move(status).at(where);
  if (!text.tokenizer.empty()) {
    if (draftText.tokenizer.empty()) return makeError(StatusCode::invalidArgument, "%s: the draft model has no tokenizer to compare with the model's", where.c_str());
    LATHE_ASSIGN_OR_RETURN(TokenizerSpec model, TokenizerSpec::decode(text.tokenizer));
    LATHE_ASSIGN_OR_RETURN(TokenizerSpec drafts, TokenizerSpec::decode(draftText.tokenizer));
    if (Status status = compareVocabularies(model, drafts); !status.ok()) return std::move(status).at(where);
  }
  draft->setSymName("draft");
  module.push_back(draft.release());
  return Status();
}

Status addDraftHeads(ModuleOp module, const SpeculateOption &option, const CompileOptions &options) {
  std::string where = "--speculate-weights '" + options.speculateWeights + "'";
  auto step = module.lookupSymbol<func::FuncOp>("step");
  RankedTensorType hidden, logits;
  if (step && step.getNumResults()) logits = dyn_cast<RankedTensorType>(step.getResultTypes()[0]);
  if (step) step.walk([&](llm::SelectRowsOp select) { hidden = dyn_cast<RankedTensorType>(select.getInput().getType()); });
  if (!logits || !hidden) return makeError(StatusCode::unsupported, "%s: expected a language model with a function 'step' and an llm.select_rows in it", where.c_str());
  HeadShape shape{hidden.getShape().back(), logits.getShape().back()};
  auto read = [&] {
    if (option.method == "medusa") return importMedusaHeads(*module.getContext(), options.speculateWeights, shape);
    EagleShape eagle{shape, 0, options.maxSeq, option.method == "eagle3"};
    step.walk([&](llm::KVAppendOp) { ++eagle.layers; });
    if (auto model = module->getAttrOfType<DictionaryAttr>("llm.model"); model && !eagle.maxSequence)
      if (auto positions = model.getAs<IntegerAttr>("max_sequence")) eagle.maxSequence = positions.getInt();
    return importEagle(*module.getContext(), options.speculateWeights, eagle);
  };
  auto heads = read();
  if (!heads.ok()) return heads.status().at(where);
  (*heads)->setSymName("draft");
  module.push_back(heads->release());
  return Status();
}

} // namespace lathe
