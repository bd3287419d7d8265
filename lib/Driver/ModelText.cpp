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
  if (llvm::sys::fs::is_directory(source)) return importTokenizerDirectory(source);
  LATHE_ASSIGN_OR_RETURN(auto file, gguf::File::open(source));
  return importTokenizer(file);
}

/// ONNX Runtime GenAI keeps the same settings in a section of its own file.
void readGenAIDefaults(const std::string &home, llvm::json::Object &generation) {
  auto parsed = llvm::json::parse(fileText(home, "genai_config.json"));
  if (!parsed) return llvm::consumeError(parsed.takeError());
  llvm::json::Object *all = parsed->getAsObject(), *search = all ? all->getObject("search") : nullptr, *model = all ? all->getObject("model") : nullptr;
  for (const char *key : {"do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"})
    if (llvm::json::Value *value = search ? search->get(key) : nullptr) generation[key] = *value;
  for (const char *key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (llvm::json::Value *value = model ? model->get(key) : nullptr) generation[key] = *value;
}

} // namespace

Status readModelText(const std::string &path, const std::string &tokenizer, ModuleOp module, const CompileOptions &options, ModelText &text) {
  bool isModule = StringRef(path).ends_with(".mlir");
  // An .onnx file's texts lie beside it.
  std::string home = StringRef(path).ends_with(".onnx") && !llvm::sys::fs::is_directory(path) ? llvm::sys::path::parent_path(path).str() : path;
  if (home.empty()) home = ".";
  std::string source = tokenizer.empty() ? home : tokenizer;
  llvm::json::Object generation;
  if (!isModule && llvm::sys::fs::is_directory(home)) {
    std::string defaults = fileText(home, "generation_config.json");
    if (!defaults.empty()) {
      auto parsed = llvm::json::parse(defaults);
      if (!parsed || !parsed->getAsObject()) {
        if (!parsed) llvm::consumeError(parsed.takeError());
        return makeError(StatusCode::invalidArgument, "'%s/generation_config.json': expected a JSON object", home.c_str());
      }
      generation = *parsed->getAsObject();
    } else {
      readGenAIDefaults(home, generation);
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
  if (!options.speculate.empty()) {
    auto [method, rest] = StringRef(options.speculate).split(':');
    metadata["speculate"] = (method + ":" + llvm::sys::path::filename(rest)).str();
  }
  llvm::raw_string_ostream(text.metadata) << llvm::json::Value(std::move(metadata));
  return Status();
}

} // namespace lathe
