//===- FromJson.cpp - tokenizer.json to a TokenizerSpec -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common.h"
#include "Steps.h"
#include "lathe/base/MappedFile.h"
#include "lathe/import/Json.h"
#include "lathe/import/Quote.h"
#include <algorithm>

namespace lathe {
namespace {
using namespace tokenizerimport;
using Type = TokenizerSpec::PieceType;
using Model = TokenizerSpec::Model;

class Importer {
public:
  Result<ImportedTokenizer> run(const TokenizerFiles &files) {
    LATHE_ASSIGN_OR_RETURN(Json root, parse(files.tokenizer, "tokenizer.json"));
    LATHE_RETURN_IF_ERROR(tokenizerJson(root).at("tokenizer.json"));
    root = Json(); // large; not needed beside the spec
    Json config, special, generation, model;
    if (!files.config.empty()) {
      LATHE_ASSIGN_OR_RETURN(config, parse(files.config, "tokenizer_config.json"));
    }
    if (!files.specialTokens.empty()) {
      LATHE_ASSIGN_OR_RETURN(special, parse(files.specialTokens, "special_tokens_map.json"));
    }
    if (!files.generationConfig.empty()) {
      LATHE_ASSIGN_OR_RETURN(generation, parse(files.generationConfig, "generation_config.json"));
    }
    if (!files.modelConfig.empty()) {
      LATHE_ASSIGN_OR_RETURN(model, parse(files.modelConfig, "config.json"));
    }
    LATHE_RETURN_IF_ERROR(addedTokensDecoder(config).at("tokenizer_config.json"));
    namedTokens(config, special);
    endTokens(generation, model);
    LATHE_RETURN_IF_ERROR(templates(config).at("tokenizer_config.json"));
    if (!files.chatTemplate.empty()) out.chatTemplate = std::string(files.chatTemplate);
    bosRule(config);
    completeSpecialTokens(out);
    LATHE_RETURN_IF_ERROR(spec.verify());
    return std::move(out);
  }

private:
  static Result<Json> parse(std::string_view text, const char *name) {
    auto json = parseJson(text);
    if (!json.ok()) return json.status().at(name);
    if (!json->is_object())
      return makeError(StatusCode::invalidArgument, "%s: expected an object, found %s", name, json->type_name());
    return json;
  }

  Status tokenizerJson(const Json &root) {
    const Json *model = memberOf(root, "model");
    if (!model || !model->is_object()) return makeError(StatusCode::invalidArgument, "expected an object 'model'");
    LATHE_ASSIGN_OR_RETURN(std::string type, textOr(*model, "type", guess(*model), "model"));
    spec.model = type == "Unigram" ? Model::unigram : type == "WordPiece" ? Model::wordPiece : Model::bpe;
    if (type != "BPE" && type != "Unigram" && type != "WordPiece")
      return makeError(StatusCode::unsupported, "model %s is not supported; supported are BPE, Unigram, WordPiece",
                       quoteName(type).c_str());
    if (const Json *step = memberOf(root, "normalizer")) LATHE_RETURN_IF_ERROR(readNormalizer(*step, spec));
    if (const Json *step = memberOf(root, "pre_tokenizer")) LATHE_RETURN_IF_ERROR(readPreTokenizer(*step, out));
    if (spec.byteLevel && spec.model != Model::bpe)
      return makeError(StatusCode::unsupported, "pre-tokenizer 'ByteLevel' is only supported with a BPE model");
    LATHE_RETURN_IF_ERROR(spec.model == Model::unigram ? unigramVocabulary(*model) : vocabulary(*model));
    LATHE_RETURN_IF_ERROR(addedTokens(root));
    LATHE_RETURN_IF_ERROR(types(*model));
    if (spec.model == Model::bpe) LATHE_RETURN_IF_ERROR(bpe(*model));
    if (spec.model == Model::wordPiece) LATHE_RETURN_IF_ERROR(wordPiece(*model));
    spec.decoder = TokenizerSpec::Decoder::plain;
    if (const Json *step = memberOf(root, "decoder")) LATHE_RETURN_IF_ERROR(readDecoder(*step, out));
    if (const Json *step = memberOf(root, "post_processor")) LATHE_RETURN_IF_ERROR(readPostProcessor(*step, spec));
    return Status();
  }

  /// Old files do not say the type of their model.
  static std::string guess(const Json &model) {
    if (memberOf(model, "merges")) return "BPE";
    const Json *vocab = memberOf(model, "vocab");
    return vocab && vocab->is_array() ? "Unigram" : "WordPiece";
  }

  /// Room for piece |id|; ids far beyond the number of entries would cost memory for nothing.
  Status place(uint64_t id, const std::string &text, size_t entries) {
    if (id >= 2 * entries + 100000)
      return makeError(StatusCode::invalidArgument, "token %s has id %llu, in a vocabulary of %zu",
                       quoteName(text).c_str(), static_cast<unsigned long long>(id), entries);
    if (id >= spec.pieces.size()) {
      spec.pieces.resize(id + 1);
      spec.types.resize(id + 1, Type::unused);
    }
    spec.pieces[id] = text;
    spec.types[id] = Type::normal;
    return Status();
  }

  Status vocabulary(const Json &model) {
    const Json *vocab = memberOf(model, "vocab");
    if (!vocab || !vocab->is_object())
      return makeError(StatusCode::invalidArgument, "model: expected an object 'vocab'");
    names.reserve(vocab->size());
    for (auto it = vocab->begin(); it != vocab->end(); ++it) {
      if (!it.value().is_number_unsigned())
        return makeError(StatusCode::invalidArgument, "model: token %s has an id that is no number",
                         quoteName(it.key()).c_str());
      uint64_t id = it.value().get<uint64_t>();
      LATHE_RETURN_IF_ERROR(place(id, it.key(), vocab->size()));
      names.emplace(it.key(), static_cast<uint32_t>(id));
    }
    return Status();
  }

  Status unigramVocabulary(const Json &model) {
    const Json *vocab = memberOf(model, "vocab");
    if (!vocab || !vocab->is_array()) return makeError(StatusCode::invalidArgument, "model: expected a list 'vocab'");
    for (const Json &entry : *vocab) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        return makeError(StatusCode::invalidArgument, "model: expected pieces with scores in 'vocab'");
      std::string text = entry[0].get<std::string>();
      names.emplace(text, static_cast<uint32_t>(spec.pieces.size()));
      spec.pieces.push_back(std::move(text));
      spec.types.push_back(Type::normal);
      spec.scores.push_back(entry[1].get<double>());
    }
    if (const Json *unknown = memberOf(model, "unk_id")) {
      if (!unknown->is_number_unsigned() || unknown->get<uint64_t>() >= spec.pieces.size())
        return makeError(StatusCode::invalidArgument, "model: 'unk_id' is no id of a piece");
      spec.unknown = unknown->get<int32_t>();
    }
    spec.fuseUnknown = true;
    LATHE_ASSIGN_OR_RETURN(spec.byteFallback, flagOr(model, "byte_fallback", false, "model"));
    return Status();
  }

  Status addedTokens(const Json &root) {
    const Json *list = memberOf(root, "added_tokens");
    if (!list) return Status();
    if (!list->is_array()) return makeError(StatusCode::invalidArgument, "expected a list 'added_tokens'");
    for (const Json &entry : *list) {
      LATHE_ASSIGN_OR_RETURN(int64_t id, integerOf(entry, "id", "added_tokens"));
      LATHE_RETURN_IF_ERROR(addedToken(entry, id, spec.pieces.size() + list->size()));
    }
    return Status();
  }

  Status addedToken(const Json &entry, int64_t id, size_t entries) {
    const char *where = "added_tokens";
    TokenizerSpec::AddedToken token;
    LATHE_ASSIGN_OR_RETURN(token.text, textOf(entry, "content", where));
    LATHE_ASSIGN_OR_RETURN(token.special, flagOr(entry, "special", false, where));
    LATHE_ASSIGN_OR_RETURN(token.stripLeft, flagOr(entry, "lstrip", false, where));
    LATHE_ASSIGN_OR_RETURN(token.stripRight, flagOr(entry, "rstrip", false, where));
    LATHE_ASSIGN_OR_RETURN(token.singleWord, flagOr(entry, "single_word", false, where));
    LATHE_ASSIGN_OR_RETURN(token.normalized, flagOr(entry, "normalized", !token.special, where));
    if (id < 0) return makeError(StatusCode::invalidArgument, "added_tokens: a negative id");
    if (token.text.empty()) return Status();
    LATHE_RETURN_IF_ERROR(place(static_cast<uint64_t>(id), token.text, entries));
    token.id = static_cast<uint32_t>(id);
    addedIds.emplace(token.text, token.id);
    spec.added.push_back(std::move(token));
    return Status();
  }

  /// Tokens that only tokenizer_config.json knows.
  Status addedTokensDecoder(const Json &config) {
    const Json *map = memberOf(config, "added_tokens_decoder");
    if (!map || !map->is_object()) return Status();
    size_t before = spec.pieces.size();
    for (auto it = map->begin(); it != map->end(); ++it) {
      uint64_t id = 0;
      if (it.key().empty() || it.key().size() > 9 || it.key().find_first_not_of("0123456789") != std::string::npos)
        return makeError(StatusCode::invalidArgument, "added_tokens_decoder: expected ids as keys, found %s",
                         quoteName(it.key()).c_str());
      for (char c : it.key())
        id = id * 10 + static_cast<uint64_t>(c - '0');
      LATHE_ASSIGN_OR_RETURN(std::string text, textOf(it.value(), "content", "added_tokens_decoder"));
      if (addedIds.count(text)) continue;
      LATHE_RETURN_IF_ERROR(addedToken(it.value(), static_cast<int64_t>(id), before + map->size()));
      setAddedType(spec.added.back());
    }
    if (!spec.scores.empty()) spec.scores.resize(spec.pieces.size(), 0.0);
    return Status();
  }

  void setAddedType(const TokenizerSpec::AddedToken &token) {
    spec.pieces[token.id] = token.text;
    spec.types[token.id] = token.special ? Type::control : Type::userDefined;
  }

  /// Pieces become the bytes they stand for.
  Status types(const Json &model) {
    if (spec.model == Model::bpe) {
      LATHE_ASSIGN_OR_RETURN(spec.byteFallback, flagOr(model, "byte_fallback", false, "model"));
    }
    std::string bytes;
    for (size_t id = 0; id < spec.pieces.size(); ++id) {
      if (spec.types[id] != Type::normal) continue;
      if (spec.byteLevel) {
        if (fromByteAlphabet(spec.pieces[id], bytes))
          spec.pieces[id] = bytes;
        else
          spec.types[id] = Type::unused; // text in bytes cannot become it
      } else if (int value = byteOfName(spec.pieces[id]); spec.byteFallback && value >= 0) {
        spec.pieces[id] = std::string(1, static_cast<char>(value));
        spec.types[id] = Type::byte;
      }
    }
    for (const TokenizerSpec::AddedToken &token : spec.added)
      setAddedType(token);
    if (!spec.scores.empty()) spec.scores.resize(spec.pieces.size(), 0.0);
    return Status();
  }

  Status bpe(const Json &model) {
    LATHE_ASSIGN_OR_RETURN(spec.ignoreMerges, flagOr(model, "ignore_merges", false, "model"));
    LATHE_ASSIGN_OR_RETURN(spec.fuseUnknown, flagOr(model, "fuse_unk", false, "model"));
    LATHE_ASSIGN_OR_RETURN(spec.endOfWord, textOr(model, "end_of_word_suffix", "", "model"));
    LATHE_ASSIGN_OR_RETURN(std::string prefix, textOr(model, "continuing_subword_prefix", "", "model"));
    if (!prefix.empty())
      return makeError(StatusCode::unsupported, "model: 'continuing_subword_prefix' is not supported for BPE");
    if (const Json *dropout = memberOf(model, "dropout");
        dropout && dropout->is_number() && dropout->get<double>() != 0)
      return makeError(StatusCode::unsupported, "model: 'dropout' is not supported");
    LATHE_ASSIGN_OR_RETURN(std::string unknown, textOr(model, "unk_token", "", "model"));
    if (auto it = names.find(unknown); !unknown.empty() && it != names.end())
      spec.unknown = static_cast<int32_t>(it->second);

    const Json *merges = memberOf(model, "merges");
    if (!merges || !merges->is_array())
      return makeError(StatusCode::invalidArgument, "model: expected a list 'merges'");
    spec.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) {
      const Json &entry = (*merges)[i];
      std::string left, right;
      if (entry.is_string()) {
        std::string text = entry.get<std::string>();
        size_t space = text.find(' ', 1);
        if (space != std::string::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0].get<std::string>();
        right = entry[1].get<std::string>();
      }
      if (left.empty() || right.empty())
        return makeError(StatusCode::invalidArgument, "model: expected two pieces as merge %zu", i);
      auto a = names.find(left), b = names.find(right), c = names.find(left + right);
      if (a == names.end() || b == names.end() || c == names.end())
        return makeError(StatusCode::invalidArgument, "model: merge %zu uses %s, which is not in 'vocab'", i,
                         quoteName(a == names.end()   ? left
                                   : b == names.end() ? right
                                                      : left + right)
                             .c_str());
      spec.merges.push_back({a->second, b->second, c->second});
    }
    return Status();
  }

  Status wordPiece(const Json &model) {
    LATHE_ASSIGN_OR_RETURN(spec.continuation, textOr(model, "continuing_subword_prefix", "##", "model"));
    LATHE_ASSIGN_OR_RETURN(std::string unknown, textOr(model, "unk_token", "[UNK]", "model"));
    if (auto it = names.find(unknown); it != names.end()) spec.unknown = static_cast<int32_t>(it->second);
    if (memberOf(model, "max_input_chars_per_word")) {
      LATHE_ASSIGN_OR_RETURN(int64_t longest, integerOf(model, "max_input_chars_per_word", "model"));
      if (longest < 0) return makeError(StatusCode::invalidArgument, "model: a negative 'max_input_chars_per_word'");
      spec.maxWordCharacters = static_cast<uint32_t>(std::min<int64_t>(longest, 0x7fffffff));
    }
    return Status();
  }

  int32_t idOf(const std::string &text) const {
    if (auto it = addedIds.find(text); it != addedIds.end()) return static_cast<int32_t>(it->second);
    auto it = names.find(text);
    return it == names.end() ? -1 : static_cast<int32_t>(it->second);
  }

  void namedTokens(const Json &config, const Json &special) {
    for (auto [key, id] : {std::pair("bos_token", &spec.bos), {"eos_token", &spec.eos}, {"pad_token", &spec.pad}})
      for (const Json *source : {&config, &special}) {
        const Json *token = memberOf(*source, key);
        if (token && token->is_object()) token = memberOf(*token, "content");
        if (*id < 0 && token && token->is_string()) *id = idOf(token->get<std::string>());
      }
  }

  void endTokens(const Json &generation, const Json &model) {
    for (const Json *source : {&generation, &model}) {
      const Json *ids = memberOf(*source, "eos_token_id");
      if (!ids) continue;
      for (const Json &id : ids->is_array() ? *ids : Json::array({*ids})) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= spec.pieces.size()) continue;
        if (spec.eos < 0) spec.eos = id.get<int32_t>();
        spec.endOfGeneration.push_back(id.get<uint32_t>());
      }
      break; // what is said for generation comes before what the model's shape says
    }
    if (spec.bos < 0)
      for (const Json *source : {&generation, &model})
        if (const Json *id = memberOf(*source, "bos_token_id");
            spec.bos < 0 && id && id->is_number_unsigned() && id->get<uint64_t>() < spec.pieces.size())
          spec.bos = id->get<int32_t>();
    std::sort(spec.endOfGeneration.begin(), spec.endOfGeneration.end());
    spec.endOfGeneration.erase(std::unique(spec.endOfGeneration.begin(), spec.endOfGeneration.end()),
                               spec.endOfGeneration.end());
  }

  Status templates(const Json &config) {
    const Json *value = memberOf(config, "chat_template");
    if (!value) return Status();
    if (value->is_string()) {
      out.chatTemplate = value->get<std::string>();
      return Status();
    }
    if (!value->is_array())
      return makeError(StatusCode::invalidArgument, "'chat_template': expected a string or a list");
    for (const Json &entry : *value) {
      LATHE_ASSIGN_OR_RETURN(std::string name, textOf(entry, "name", "'chat_template'"));
      LATHE_ASSIGN_OR_RETURN(std::string text, textOf(entry, "template", "'chat_template'"));
      if (name == "default")
        out.chatTemplate = std::move(text);
      else
        out.namedTemplates.emplace_back(std::move(name), std::move(text));
    }
    return Status();
  }

  /// The Llama and Gemma classes of transformers build the template from these flags.
  void bosRule(const Json &config) {
    const Json *name = memberOf(config, "tokenizer_class");
    if (!name || !name->is_string()) return;
    std::string text = name->get<std::string>();
    if (!text.starts_with("Llama") && !text.starts_with("CodeLlama") && !text.starts_with("Gemma")) return;
    for (auto [key, id, list] :
         {std::tuple("add_bos_token", spec.bos, &spec.prefix), {"add_eos_token", spec.eos, &spec.suffix}}) {
      const Json *flag = memberOf(config, key);
      if (!flag || !flag->is_boolean() || id < 0) continue;
      list->clear();
      if (flag->get<bool>()) list->push_back(static_cast<uint32_t>(id));
    }
  }

  ImportedTokenizer out;
  TokenizerSpec &spec = out.spec;
  std::unordered_map<std::string, uint32_t> names; ///< of the model's vocabulary, as written in the file
  std::unordered_map<std::string, uint32_t> addedIds;
};

} // namespace

Result<ImportedTokenizer> importTokenizer(const TokenizerFiles &files) { return Importer().run(files); }

Result<ImportedTokenizer> importTokenizerDirectory(const std::string &directory) {
  MappedFile mapped[6];
  std::string_view texts[6];
  const char *names[6] = {"tokenizer.json",         "tokenizer_config.json", "special_tokens_map.json",
                          "generation_config.json", "config.json",           "chat_template.jinja"};
  for (int i = 0; i < 6; ++i) {
    auto file = MappedFile::open(directory + "/" + names[i]);
    if (!file.ok()) {
      if (i > 0 && file.status().code() == StatusCode::notFound) continue;
      return file.status();
    }
    mapped[i] = *std::move(file);
    texts[i] = {reinterpret_cast<const char *>(mapped[i].bytes().data()), mapped[i].fileSize()};
  }
  auto result = importTokenizer(TokenizerFiles{texts[0], texts[1], texts[2], texts[3], texts[4], texts[5]});
  for (const MappedFile &file : mapped)
    LATHE_RETURN_IF_ERROR(file.check());
  if (!result.ok()) return result.status().at(directory);
  return result;
}

} // namespace lathe
