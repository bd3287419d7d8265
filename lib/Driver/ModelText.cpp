//===- ModelText.cpp - tokenizer, template, defaults, metadata ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ModelText.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/Tokenizer.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;

namespace lathe {
namespace {

/// Text of a small file of the model's directory; empty when it is not there.
std::string fileText(const std::string &directory, const char *name) {
  auto buffer = llvm::MemoryBuffer::getFile(directory + "/" + name);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

Result<ImportedTokenizer> readTokenizer(const std::string &source) {
  if (llvm::sys::fs::is_directory(source)) return makeError(StatusCode::notFound, "tokenizer.json");
  LATHE_ASSIGN_OR_RETURN(auto file, gguf::File::open(source));
  return importTokenizer(file);
}

} // namespace

Status readModelText(const std::string &path, const std::string &tokenizer, ModuleOp module, const CompileOptions &options, ModelText &text) {
  bool isModule = StringRef(path).ends_with(".mlir");
  std::string source = tokenizer.empty() ? path : tokenizer;
  llvm::json::Object generation;
  if (!isModule && llvm::sys::fs::is_directory(path)) {
    std::string defaults = fileText(path, "generation_config.json");
    if (!defaults.empty()) {
      auto parsed = llvm::json::parse(defaults);
      if (!parsed || !parsed->getAsObject()) {
        if (!parsed) llvm::consumeError(parsed.takeError());
        return makeError(StatusCode::invalidArgument, "'%s/generation_config.json': expected a JSON object", path.c_str());
      }
      generation = *parsed->getAsObject();
    }
  }
  if (!isModule || !tokenizer.empty()) {
    auto imported = readTokenizer(source);
    if (!imported.ok()) {
      // A directory without a tokenizer is still a model; ids work.
      if (imported.status().code() != StatusCode::notFound || !tokenizer.empty()) return imported.status().at("'" + source + "'");
    } else {
      std::string bytes = imported->spec.encode();
      text.tokenizer.assign(bytes.begin(), bytes.end());
      text.chatTemplate = imported->chatTemplate;
    }
  }
  llvm::raw_string_ostream(text.generation) << llvm::json::Value(std::move(generation));

  llvm::json::Object model;
  if (auto attr = module->getAttrOfType<DictionaryAttr>("llm.model"))
    for (NamedAttribute entry : attr) {
      llvm::json::ObjectKey key(entry.getName().getValue());
      if (auto s = dyn_cast<StringAttr>(entry.getValue()))
        model[key] = s.getValue();
      else if (auto i = dyn_cast<IntegerAttr>(entry.getValue()))
        model[key] = i.getInt();
      else if (auto a = dyn_cast<ArrayAttr>(entry.getValue())) {
        llvm::json::Array list;
        for (Attribute element : a)
          if (auto s = dyn_cast<StringAttr>(element)) list.push_back(s.getValue());
        model[key] = std::move(list);
      }
    }
  llvm::json::Object metadata{{"model", std::move(model)}, {"source", llvm::sys::path::filename(path)},
                              {"options", llvm::json::Object{{"activations", options.activations}, {"kv", options.kv}, {"quantize", options.quantize},
                                                             {"page", options.page}, {"max_rows", options.maxRows}}}};
  llvm::raw_string_ostream(text.metadata) << llvm::json::Value(std::move(metadata));
  return Status();
}

} // namespace lathe
