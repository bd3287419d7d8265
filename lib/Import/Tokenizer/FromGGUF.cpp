//===- FromGGUF.cpp - tokenizer.ggml.* to a TokenizerSpec -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// GGUF says how a vocabulary looks and names the rest; what the names mean is llama.cpp's behaviour,
// and the models' own tokenizers where that is an approximation of them.
//===----------------------------------------------------------------------===//
#include "Common.h"
#include "lathe/base/Pattern.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/Quote.h"
#include <algorithm>

namespace lathe {
namespace {
using namespace tokenizerimport;
using Type = TokenizerSpec::PieceType;
using Model = TokenizerSpec::Model;
using Normalizer = TokenizerSpec::Normalizer;
using Split = TokenizerSpec::Split;

constexpr const char *metaspace = "\xe2\x96\x81";

class Importer {
public:
  explicit Importer(const gguf::File &file) : file(file) {}

  Result<ImportedTokenizer> run() {
    LATHE_ASSIGN_OR_RETURN(kind, file.string("tokenizer.ggml.model"));
    LATHE_ASSIGN_OR_RETURN(pre, file.stringOr("tokenizer.ggml.pre", ""));
    LATHE_RETURN_IF_ERROR(readPieces());
    if (kind == "gpt2") {
      LATHE_RETURN_IF_ERROR(byteLevelBpe());
    } else if (kind == "gemma4") {
      LATHE_RETURN_IF_ERROR(characterBpe());
    } else if (kind == "llama") {
      LATHE_RETURN_IF_ERROR(sentencePieceBpe());
    } else if (kind == "t5") {
      LATHE_RETURN_IF_ERROR(unigram());
    } else if (kind == "bert") {
      LATHE_RETURN_IF_ERROR(wordPiece());
    } else {
      return makeError(StatusCode::unsupported,
                       "tokenizer model %s is not supported; supported are gpt2, gemma4, llama, t5, bert",
                       quoteName(kind).c_str());
    }
    LATHE_RETURN_IF_ERROR(specialTokens());
    LATHE_RETURN_IF_ERROR(templates());
    LATHE_RETURN_IF_ERROR(spec.verify());
    return std::move(out);
  }

private:
  Status readPieces() {
    LATHE_ASSIGN_OR_RETURN(tokens, file.strings("tokenizer.ggml.tokens"));
    size_t n = tokens.size();
    if (n == 0) return makeError(StatusCode::invalidArgument, "'tokenizer.ggml.tokens': expected pieces, found none");
    spec.types.assign(n, Type::normal);
    if (file.has("tokenizer.ggml.token_type")) {
      LATHE_ASSIGN_OR_RETURN(std::vector<int64_t> types, file.integers("tokenizer.ggml.token_type"));
      if (types.size() != n)
        return makeError(StatusCode::invalidArgument, "'tokenizer.ggml.token_type': expected %zu entries, found %zu", n,
                         types.size());
      for (size_t i = 0; i < n; ++i)
        spec.types[i] = types[i] >= 1 && types[i] <= 6 ? static_cast<Type>(types[i]) : Type::normal;
    }
    if (file.has("tokenizer.ggml.scores")) {
      LATHE_ASSIGN_OR_RETURN(std::vector<float> scores, file.floats("tokenizer.ggml.scores"));
      spec.scores.assign(scores.begin(), scores.end());
      if (spec.scores.size() != n)
        return makeError(StatusCode::invalidArgument, "'tokenizer.ggml.scores': expected %zu entries, found %zu", n,
                         spec.scores.size());
    }
    ids.reserve(n);
    for (size_t i = 0; i < n; ++i)
      ids.emplace(tokens[i], static_cast<uint32_t>(i));
    spec.pieces.resize(n);
    for (size_t i = 0; i < n; ++i) {
      spec.pieces[i] = std::string(tokens[i]);
      if (spec.types[i] == Type::byte) {
        int value = byteOfName(tokens[i]);
        if (value < 0)
          return makeError(StatusCode::invalidArgument,
                           "token %zu: expected the name of a byte like '<0x0A>', found %s", i,
                           quoteName(tokens[i]).c_str());
        spec.pieces[i] = std::string(1, static_cast<char>(value));
      }
      bool special = spec.types[i] == Type::control || spec.types[i] == Type::unknown;
      if ((special || spec.types[i] == Type::userDefined) && !tokens[i].empty()) {
        TokenizerSpec::AddedToken token;
        token.id = static_cast<uint32_t>(i);
        token.text = std::string(tokens[i]);
        token.special = special;
        spec.added.push_back(std::move(token));
      }
    }
    return Status();
  }

  /// "left right" per line; the parts are pieces, and so is what they make.
  Status readMerges() {
    LATHE_ASSIGN_OR_RETURN(std::vector<std::string_view> lines, file.strings("tokenizer.ggml.merges"));
    spec.merges.reserve(lines.size());
    std::string joined;
    size_t lost = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      size_t space = lines[i].find(' ', 1); // a part is never empty, but may start with a space
      if (space == std::string_view::npos)
        return makeError(StatusCode::invalidArgument,
                         "'tokenizer.ggml.merges' entry %zu: expected two pieces, found %s", i,
                         quoteName(lines[i]).c_str());
      std::string_view left = lines[i].substr(0, space), right = lines[i].substr(space + 1);
      joined.assign(left);
      joined += right;
      auto a = ids.find(left), b = ids.find(right), c = ids.find(joined);
      if (a == ids.end() || b == ids.end() || c == ids.end()) {
        ++lost;
        continue;
      }
      spec.merges.push_back({a->second, b->second, c->second});
    }
    if (lost > 0)
      out.warnings.push_back(std::to_string(lost) + " merges of pieces that are not in the vocabulary were dropped");
    return Status();
  }

  Status byteLevelBpe() {
    const NamedPreTokenizer *named = findPreTokenizer(pre);
    if (!named)
      return makeError(StatusCode::unsupported, "pre-tokenizer %s is not supported; supported are %s",
                       quoteName(pre).c_str(), preTokenizerNames().c_str());
    if (pre.empty() || pre == "default")
      out.warnings.push_back("the file names no pre-tokenizer; a common one is used, which may not be the model's own");
    spec.model = Model::bpe;
    spec.byteLevel = true;
    spec.ignoreMerges = named->ignoreMerges;
    addBos = named->addBos;
    spec.scores.clear();
    for (const char *pattern : named->patterns) {
      Split split;
      split.pattern = pattern;
      spec.splits.push_back(std::move(split));
    }
    LATHE_RETURN_IF_ERROR(readMerges());
    std::string bytes;
    for (size_t i = 0; i < spec.pieces.size(); ++i) {
      if (spec.types[i] == Type::unused) spec.types[i] = Type::normal;
      if (spec.types[i] != Type::normal) continue;
      if (fromByteAlphabet(tokens[i], bytes))
        spec.pieces[i] = bytes;
      else
        spec.types[i] = Type::unused; // text in bytes cannot become it
    }
    spec.decoder = TokenizerSpec::Decoder::byteLevel;
    defaultBos = defaultEos = 11;
    return Status();
  }

  Status characterBpe() {
    spec.model = Model::bpe;
    spec.byteFallback = true;
    spec.fuseUnknown = true;
    spec.scores.clear();
    spec.normalizers.push_back(replaceSpaces());
    LATHE_RETURN_IF_ERROR(readMerges());
    decodeMetaspace(false);
    addBos = true;
    return Status();
  }

  Status sentencePieceBpe() {
    spec.model = Model::scoredBpe;
    spec.byteFallback = true;
    LATHE_ASSIGN_OR_RETURN(bool prefix, file.booleanOr("tokenizer.ggml.add_space_prefix", true));
    if (prefix) {
      Normalizer step;
      step.kind = Normalizer::Kind::prepend;
      step.text = " ";
      spec.normalizers.push_back(std::move(step));
    }
    spec.normalizers.push_back(replaceSpaces());
    // User-defined pieces are found after spaces became U+2581, so that both count; with a prefix each
    // would get one as well.
    if (!prefix)
      for (TokenizerSpec::AddedToken &token : spec.added)
        token.normalized = !token.special;
    decodeMetaspace(prefix);
    addBos = true;
    defaultBos = 1;
    defaultEos = 2;
    defaultUnknown = 0;
    return Status();
  }

  Status unigram() {
    spec.model = Model::unigram;
    spec.fuseUnknown = true;
    spec.floatSums = true;
    if (file.has("tokenizer.ggml.precompiled_charsmap")) {
      LATHE_ASSIGN_OR_RETURN(std::vector<int64_t> bytes, file.integers("tokenizer.ggml.precompiled_charsmap"));
      Normalizer step;
      step.kind = Normalizer::Kind::charsMap;
      for (int64_t b : bytes)
        step.text += static_cast<char>(b);
      if (!step.text.empty()) spec.normalizers.push_back(std::move(step));
    }
    LATHE_ASSIGN_OR_RETURN(bool merge, file.booleanOr("tokenizer.ggml.remove_extra_whitespaces", false));
    if (merge) {
      Normalizer step;
      step.kind = Normalizer::Kind::mergeSpaces;
      spec.normalizers.push_back(std::move(step));
    }
    LATHE_ASSIGN_OR_RETURN(bool prefix, file.booleanOr("tokenizer.ggml.add_space_prefix", true));
    if (prefix) {
      Normalizer step;
      step.kind = Normalizer::Kind::prepend;
      step.text = " ";
      spec.normalizers.push_back(std::move(step));
    }
    spec.normalizers.push_back(replaceSpaces());
    decodeMetaspace(prefix);
    addEos = true;
    defaultEos = 1;
    defaultUnknown = 2;
    return Status();
  }

  Status wordPiece() {
    // The converter writes the start of a word as U+2581 and leaves the rest of a word bare.
    spec.model = Model::wordPiece;
    LATHE_ASSIGN_OR_RETURN(bool lower, file.booleanOr("tokenizer.ggml.normalizer.lowercase", true));
    LATHE_ASSIGN_OR_RETURN(bool strip, file.booleanOr("tokenizer.ggml.normalizer.strip_accents", lower));
    Normalizer step;
    step.kind = Normalizer::Kind::bert;
    step.flags = 1 | 2 | (strip ? 4 : 0) | (lower ? 8 : 0);
    spec.normalizers.push_back(std::move(step));
    Split spaces;
    spaces.pattern = "\\s+";
    spaces.behavior = Split::Behavior::removed;
    spec.splits.push_back(std::move(spaces));
    Split marks;
    marks.pattern = "[\\p{P}$+<=>^`|~]";
    spec.splits.push_back(std::move(marks));
    spec.continuation = "##";
    spec.maxWordCharacters = 0x7fffffff;
    for (size_t i = 0; i < spec.pieces.size(); ++i) {
      if (spec.types[i] != Type::normal) continue;
      std::string &piece = spec.pieces[i];
      if (piece.starts_with(metaspace))
        piece.erase(0, 3);
      else
        piece.insert(0, "##");
    }
    spec.decoder = TokenizerSpec::Decoder::wordPiece;
    spec.cleanUp = true;
    addBos = addEos = true;
    defaultUnknown = 100;
    defaultPad = 0;
    return Status();
  }

  static Normalizer replaceSpaces() {
    Normalizer step;
    step.kind = Normalizer::Kind::replace;
    step.text = " ";
    step.with = metaspace;
    return step;
  }
  void decodeMetaspace(bool prefix) {
    spec.decoder = TokenizerSpec::Decoder::metaspace;
    spec.metaspace = metaspace;
    spec.stripStart = prefix ? 1 : 0;
  }

  Status specialTokens() {
    auto id = [&](const char *key, int64_t fallback) -> Result<int32_t> {
      LATHE_ASSIGN_OR_RETURN(int64_t value, file.integerOr(key, fallback));
      // -1 and 2^32-1 both stand for "none" in files.
      if (value < 0 || value >= static_cast<int64_t>(spec.pieces.size())) return -1;
      return static_cast<int32_t>(value);
    };
    bool bert = kind == "bert";
    LATHE_ASSIGN_OR_RETURN(
        spec.bos, id(bert ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", bert ? 101 : defaultBos));
    LATHE_ASSIGN_OR_RETURN(spec.eos, id(bert ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id",
                                        bert ? 102 : defaultEos));
    LATHE_ASSIGN_OR_RETURN(spec.eot, id("tokenizer.ggml.eot_token_id", -1));
    LATHE_ASSIGN_OR_RETURN(int32_t eom, id("tokenizer.ggml.eom_token_id", -1));
    if (eom >= 0) spec.endOfGeneration.push_back(static_cast<uint32_t>(eom));
    LATHE_ASSIGN_OR_RETURN(spec.pad, id("tokenizer.ggml.padding_token_id", defaultPad));
    LATHE_ASSIGN_OR_RETURN(spec.unknown, id("tokenizer.ggml.unknown_token_id", defaultUnknown));
    if (spec.byteLevel) spec.unknown = -1; // a byte without a piece is dropped, as the models' own tokenizers do
    LATHE_ASSIGN_OR_RETURN(addBos, file.booleanOr("tokenizer.ggml.add_bos_token", addBos));
    LATHE_ASSIGN_OR_RETURN(addEos, file.booleanOr("tokenizer.ggml.add_eos_token", addEos));
    if (kind == "gemma4") addBos = true; // early files say no, and the model cannot do without
    if (addBos && spec.bos >= 0) spec.prefix.push_back(static_cast<uint32_t>(spec.bos));
    if (addEos && spec.eos >= 0) spec.suffix.push_back(static_cast<uint32_t>(spec.eos));

    // The file does not say which tokens swallow the space after them; for Phi-3 they are known.
    LATHE_ASSIGN_OR_RETURN(std::string_view name, file.stringOr("general.name", ""));
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos)
      for (TokenizerSpec::AddedToken &token : spec.added)
        token.stripRight = token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
    completeSpecialTokens(out);
    return Status();
  }

  Status templates() {
    LATHE_ASSIGN_OR_RETURN(std::string_view text, file.stringOr("tokenizer.chat_template", ""));
    out.chatTemplate = std::string(text);
    constexpr std::string_view prefix = "tokenizer.chat_template.";
    for (std::string_view key : file.keys()) {
      if (!key.starts_with(prefix)) continue;
      LATHE_ASSIGN_OR_RETURN(std::string_view named, file.string(key));
      out.namedTemplates.emplace_back(key.substr(prefix.size()), named);
    }
    return Status();
  }

  const gguf::File &file;
  std::string_view kind, pre;
  std::vector<std::string_view> tokens;
  PieceIds ids;
  ImportedTokenizer out;
  TokenizerSpec &spec = out.spec;
  bool addBos = false, addEos = false;
  int32_t defaultBos = -1, defaultEos = -1, defaultUnknown = -1, defaultPad = -1;
};

} // namespace

Result<ImportedTokenizer> importTokenizer(const gguf::File &file) { return Importer(file).run(); }

} // namespace lathe
