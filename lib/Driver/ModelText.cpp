//===- ModelText.cpp - tokenizer, template, defaults, metadata ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ModelText.h"
#include "Speculate.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/Import.h"
#include "lathe/import/ONNXModule.h"
#include "lathe/import/Quote.h"
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

/// |named|: the user said that |source| has one.
Result<ImportedTokenizer> readTokenizer(const std::string &source, bool named) {
  if (llvm::sys::fs::is_directory(source)) return importTokenizerDirectory(source);
  if (named) {
    auto file = llvm::MemoryBuffer::getFileSlice(source, 4, 0);
    if (file && (*file)->getBuffer() != "GGUF")
      return makeError(StatusCode::invalidArgument, "expected a tokenizer: a directory with a tokenizer.json, a file of that name, or a GGUF file");
  }
  LATHE_ASSIGN_OR_RETURN(auto file, gguf::File::open(source));
  return importTokenizer(file);
}

const char *const numberKeys[] = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};
const char *const tokenKeys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

Result<llvm::json::Object> jsonObject(const std::string &text, const std::string &path) {
  auto parsed = llvm::json::parse(text);
  if (!parsed || !parsed->getAsObject()) {
    if (!parsed) llvm::consumeError(parsed.takeError());
    return makeError(StatusCode::invalidArgument, "'%s': expected a JSON object", path.c_str());
  }
  return std::move(*parsed->getAsObject());
}

/// ONNX Runtime GenAI keeps the same settings in two sections of its own file.
llvm::json::Object fromGenAI(llvm::json::Object &all) {
  llvm::json::Object generation, *search = all.getObject("search"), *model = all.getObject("model");
  if (llvm::json::Value *value = search ? search->get("do_sample") : nullptr) generation["do_sample"] = *value;
  for (const char *key : numberKeys)
    if (llvm::json::Value *value = search ? search->get(key) : nullptr) generation[key] = *value;
  for (const char *key : tokenKeys)
    if (llvm::json::Value *value = model ? model->get(key) : nullptr) generation[key] = *value;
  return generation;
}

Status checkGeneration(const llvm::json::Object &generation, const std::string &path) {
  using llvm::json::Value;
  auto expect = [&](const char *key, auto good, const char *what) {
    const Value *value = generation.get(key);
    if (!value || value->kind() == Value::Null || good(*value)) return Status();
    std::string text;
    llvm::raw_string_ostream(text) << *value;
    return makeError(StatusCode::invalidArgument, "'%s': '%s': expected %s, found %s", path.c_str(), key, what, text.substr(0, 40).c_str());
  };
  for (const char *key : numberKeys)
    LATHE_RETURN_IF_ERROR(expect(key, [](const Value &v) { return v.getAsNumber().has_value(); }, "a number"));
  LATHE_RETURN_IF_ERROR(expect("do_sample", [](const Value &v) { return v.getAsBoolean().has_value(); }, "true or false"));
  for (const char *key : tokenKeys)
    LATHE_RETURN_IF_ERROR(expect(key, [](const Value &v) {
      const llvm::json::Array *list = v.getAsArray();
      return v.getAsInteger() || (list && llvm::all_of(*list, [](const Value &id) { return id.getAsInteger().has_value(); }));
    }, "a token's number or a list of them"));
  return Status();
}

/// Settings of the first directory that has any. Of one with both files, generation_config.json's.
Result<llvm::json::Object> readGeneration(ArrayRef<std::string> directories) {
  for (const std::string &directory : directories)
    for (const char *name : {"generation_config.json", "genai_config.json"}) {
      std::string text = fileText(directory, name), path = directory + "/" + name;
      if (text.empty()) continue;
      LATHE_ASSIGN_OR_RETURN(llvm::json::Object object, jsonObject(text, path));
      if (StringRef(name) == "genai_config.json") object = fromGenAI(object);
      LATHE_RETURN_IF_ERROR(checkGeneration(object, path));
      return object;
    }
  return llvm::json::Object();
}

} // namespace

Status readModelText(const std::string &path, const std::string &tokenizer, ModuleOp module, const CompileOptions &options, ModelText &text) {
  bool isModule = StringRef(path).ends_with(".mlir");
  std::vector<std::string> homes = {path};
  if (auto file = findONNXFile(path); file.ok() && isONNXName(*file) && !hasSafetensors(path)) homes = directoriesOfONNX(*file);
  std::string named = tokenizer;
  if (llvm::sys::path::filename(tokenizer) == "tokenizer.json" && !llvm::sys::fs::is_directory(tokenizer)) {
    named = llvm::sys::path::parent_path(tokenizer).str();
    if (named.empty()) named = ".";
  }
  auto hasTokenizer = [](const std::string &home) { return llvm::sys::fs::exists(home + "/tokenizer.json"); };
  auto home = llvm::find_if(homes, hasTokenizer);
  std::string source = !named.empty() ? named : home == homes.end() ? homes[0] : *home;
  std::vector<std::string> directories; // a place named for text comes first
  if (!named.empty() && llvm::sys::fs::is_directory(named)) directories.push_back(named);
  for (const std::string &place : homes)
    if (!isModule && llvm::sys::fs::is_directory(place)) directories.push_back(place);
  LATHE_ASSIGN_OR_RETURN(llvm::json::Object generation, readGeneration(directories));
  if (!isModule || !tokenizer.empty()) {
    auto imported = readTokenizer(source, !named.empty());
    if (!imported.ok()) {
      // A directory without a tokenizer is still a model; ids work.
      if (imported.status().code() != StatusCode::notFound || !tokenizer.empty()) return imported.status().at((named.empty() ? "'" : "--tokenizer '") + source + "'");
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
  // Lookups put nothing into the artifact.
  if (auto draft = parseSpeculate(options.speculate); draft.ok() && !draft->method.empty()) {
    auto [method, rest] = StringRef(options.speculate).split(':');
    metadata["speculate"] = (method + ":" + llvm::sys::path::filename(rest)).str();
  }
  llvm::raw_string_ostream(text.metadata) << llvm::json::Value(std::move(metadata));
  return Status();
}

Status checkVocabulary(const ModelText &text, int64_t vocabulary, const std::string &source, std::vector<std::string> &warnings) {
  if (text.tokenizer.empty() || vocabulary <= 0) return Status();
  LATHE_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpec::decode(text.tokenizer));
  auto limit = static_cast<size_t>(vocabulary);
  if (spec.pieces.size() <= limit) return Status();
  llvm::DenseSet<uint32_t> added;
  for (const TokenizerSpec::AddedToken &token : spec.added) added.insert(token.id);
  for (size_t id = spec.pieces.size(); id-- > limit;)
    if (!spec.pieces[id].empty() && !added.contains(static_cast<uint32_t>(id))) // ids without a text are holes between others
      return makeError(StatusCode::invalidArgument, "the tokenizer in '%s': expected ids below the model's vocabulary of %lld tokens, found %zu ids, the last one %s", source.c_str(), (long long)vocabulary,
                       id + 1, quoteName(spec.pieces[id]).c_str());
  size_t last = spec.pieces.size() - 1;
  while (last >= limit && spec.pieces[last].empty()) --last;
  if (last < limit) return Status(); // nothing but holes
  warnings.push_back("the tokenizer in '" + source + "' has added tokens beyond the model's vocabulary of " + std::to_string(vocabulary) + " tokens, up to id " + std::to_string(last) + ", " +
                     quoteName(spec.pieces[last]) + ": the model cannot read a prompt with one of them");
  return Status();
}

} // namespace lathe
