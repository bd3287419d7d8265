//===- Tokenizer.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Tokenizer.h"
#include "Impl.h"
#include <algorithm>

namespace lathe {
using namespace tokenizer;

namespace {

/// Ids of words seen in this call. Text repeats its words; a word's ids do not depend on its place.
class WordCache {
public:
  explicit WordCache(size_t textBytes) {
    if (textBytes >= 2048) slots.resize(std::bit_ceil(std::min<size_t>(textBytes / 8, 16384)));
  }
  void encode(const Model &model, std::string_view word, Scratch &scratch, std::vector<int32_t> &out) {
    if (slots.empty() || word.size() > sizeof(Slot::key)) return model.encode(word, scratch, out);
    Slot &slot = slots[hashBytes(word) & (slots.size() - 1)];
    if (slot.size == word.size() && std::memcmp(slot.key, word.data(), word.size()) == 0) {
      out.insert(out.end(), slot.ids, slot.ids + slot.count);
      return;
    }
    size_t first = out.size();
    model.encode(word, scratch, out);
    size_t count = out.size() - first;
    if (count > std::size(slot.ids)) return;
    slot.size = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(count);
    std::memcpy(slot.key, word.data(), word.size());
    std::copy_n(out.begin() + static_cast<ptrdiff_t>(first), count, slot.ids);
  }

private:
  struct Slot {
    uint8_t size = 0, count = 0;
    char key[22];
    int32_t ids[10];
  };
  std::vector<Slot> slots;
};

/// A word character as `tokenizers` has it where it asks for whole words.
bool isWordAt(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  unsigned length;
  uint32_t cp = unicode::decode(text, at, length);
  constexpr uint32_t categories = unicode::letters | unicode::marks | unicode::categoryBit(unicode::Category::Nd) |
                                  unicode::categoryBit(unicode::Category::Nl) |
                                  unicode::categoryBit(unicode::Category::Pc);
  return cp != unicode::invalid && (unicode::isIn(cp, categories) || cp == 0x200c || cp == 0x200d);
}
bool isWordBefore(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t start = at - 1;
  while (start > 0 && at - start < 4 && (static_cast<uint8_t>(text[start]) & 0xc0) == 0x80)
    --start;
  return isWordAt(text, start);
}
/// Bytes of white space at the end of text[from, at).
size_t spaceBefore(std::string_view text, size_t from, size_t at) {
  size_t end = at;
  while (at > from) {
    size_t start = at - 1;
    while (start > from && (static_cast<uint8_t>(text[start]) & 0xc0) == 0x80)
      --start;
    unsigned length;
    uint32_t cp = unicode::decode(text, start, length);
    if (cp == unicode::invalid || !unicode::isSpace(cp) || start + length != at) break;
    at = start;
  }
  return end - at;
}
size_t spaceAfter(std::string_view text, size_t at) {
  size_t begin = at;
  while (at < text.size()) {
    unsigned length;
    uint32_t cp = unicode::decode(text, at, length);
    if (cp == unicode::invalid || !unicode::isSpace(cp)) break;
    at += length;
  }
  return at - begin;
}

/// May text be cut before a space mark that follows something else, before it is merged? Then words
/// repeat and can be cached. Not where a piece has the mark inside: |joining| gets the bytes that
/// stand before it there.
bool mayCutAtSpaces(const TokenizerSpec &spec, std::bitset<256> &joining) {
  using Type = TokenizerSpec::PieceType;
  bool merging =
      spec.model == TokenizerSpec::Model::scoredBpe || (spec.model == TokenizerSpec::Model::bpe && !spec.byteLevel);
  if (!merging || spec.metaspace.empty() || !spec.endOfWord.empty() || spec.ignoreMerges ||
      !unicode::isValid(spec.metaspace))
    return false;
  // A model that drops characters without a piece merges what stood on both sides of them.
  if (spec.model == TokenizerSpec::Model::bpe && spec.unknown < 0) return false;
  bool markIsPiece = false; // or unknown tokens could be fused across it
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    Type type = spec.types[id];
    if (type != Type::normal && type != Type::unused && type != Type::userDefined) continue;
    std::string_view piece = spec.pieces[id], mark = spec.metaspace;
    markIsPiece |= piece == mark && type == Type::normal;
    for (size_t at = piece.find(mark); at != std::string_view::npos; at = piece.find(mark, at + mark.size()))
      if (at > 0 && !piece.substr(0, at).ends_with(mark)) joining.set(static_cast<uint8_t>(piece[at - 1]));
  }
  return markIsPiece;
}

/// Bytes of the first word: everything up to a space mark that follows something else.
size_t wordEnd(std::string_view text, std::string_view mark, const std::bitset<256> &joining) {
  size_t at = 0;
  while (text.substr(at).starts_with(mark))
    at += mark.size();
  for (;;) {
    at = text.find(mark, at);
    if (at == std::string_view::npos) return text.size();
    if (at > 0 && !joining[static_cast<uint8_t>(text[at - 1])]) return at;
    while (text.substr(at).starts_with(mark))
      at += mark.size();
  }
}

} // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> i) : impl(std::move(i)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer &&) noexcept = default;
Tokenizer &Tokenizer::operator=(Tokenizer &&) noexcept = default;

Result<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  LATHE_RETURN_IF_ERROR(spec.verify());
  auto impl = std::make_unique<Impl>();
  impl->spec = std::move(spec);
  const TokenizerSpec &s = impl->spec;
  LATHE_RETURN_IF_ERROR(impl->normalizers.init(s.normalizers).at("tokenizer"));
  LATHE_RETURN_IF_ERROR(impl->splitter.init(s.splits).at("tokenizer"));
  switch (s.model) {
  case TokenizerSpec::Model::bpe:
    impl->model = makeBpe(s);
    break;
  case TokenizerSpec::Model::scoredBpe:
    impl->model = makeScoredBpe(s);
    break;
  case TokenizerSpec::Model::unigram:
    impl->model = makeUnigram(s);
    break;
  case TokenizerSpec::Model::wordPiece:
    impl->model = makeWordPiece(s);
    break;
  }
  impl->cutAtSpaces = mayCutAtSpaces(s, impl->joining);
  impl->special.resize(s.pieces.size());
  for (size_t id = 0; id < s.pieces.size(); ++id)
    impl->special[id] = s.types[id] == TokenizerSpec::PieceType::control;
  impl->normalizedTexts.resize(s.added.size());
  std::vector<Trie::Key> raw, plain, normalized;
  for (uint32_t i = 0; i < s.added.size(); ++i) {
    const TokenizerSpec::AddedToken &token = s.added[i];
    impl->special[token.id] = token.special;
    if (token.normalized && !token.special) {
      impl->normalizedTexts[i] = impl->normalizers.apply(token.text);
      normalized.push_back({impl->normalizedTexts[i], i});
      continue;
    }
    raw.push_back({token.text, i});
    if (!token.special) plain.push_back({token.text, i});
  }
  impl->withSpecial.build(std::move(raw));
  impl->withoutSpecial.build(std::move(plain));
  impl->afterNormalization.build(std::move(normalized));
  return Tokenizer(std::move(impl));
}

/// Cuts text[first, last) at added tokens of |trie|, the longest at the leftmost place, and hands
/// tokens and the text between them to |onToken| and |onText|.
template <typename OnText, typename OnToken>
void Tokenizer::Impl::cut(const Trie &special, const Trie &plain, std::string_view text,
                          const std::vector<uint8_t> *allowed, OnText onText, OnToken onToken) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    // A special token must lie inside stretches that allow it.
    bool open = !allowed || (*allowed)[at];
    const Trie &trie = open ? special : plain;
    uint32_t node = Trie::root, found = Trie::none;
    size_t end = at;
    for (size_t i = at; i < text.size(); ++i) {
      node = trie.child(node, static_cast<uint8_t>(text[i]));
      if (node == Trie::none) break;
      uint32_t index = trie.value(node);
      if (index == Trie::none) continue;
      const TokenizerSpec::AddedToken &token = spec.added[index];
      if (token.singleWord && (isWordBefore(text, at) || isWordAt(text, i + 1))) continue;
      if (token.special && allowed &&
          std::find(allowed->begin() + static_cast<ptrdiff_t>(at), allowed->begin() + static_cast<ptrdiff_t>(i + 1),
                    0) != allowed->begin() + static_cast<ptrdiff_t>(i + 1))
        continue;
      found = index;
      end = i + 1;
    }
    if (found == Trie::none) {
      ++at;
      continue;
    }
    const TokenizerSpec::AddedToken &token = spec.added[found];
    size_t left = at;
    if (token.stripLeft) left -= spaceBefore(text, done, at);
    if (left > done) onText(text.substr(done, left - done), done == 0);
    onToken(token.id);
    if (token.stripRight) end += spaceAfter(text, end);
    at = done = end;
  }
  if (done < text.size()) onText(text.substr(done), done == 0);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return encode({{text, options.parseSpecial}}, options.addSpecial);
}

std::vector<int32_t> Tokenizer::encode(const std::vector<TextPiece> &pieces, bool addSpecial) const {
  const TokenizerSpec &spec = impl->spec;
  std::vector<int32_t> out;
  if (addSpecial) out.insert(out.end(), spec.prefix.begin(), spec.prefix.end());

  std::string joined;
  std::string_view text;
  std::vector<uint8_t> allowed; // per byte, only when pieces differ
  bool all = true, none = true;
  for (const TextPiece &piece : pieces)
    if (!piece.text.empty()) (piece.parseSpecial ? none : all) = false;
  if (pieces.size() == 1) {
    text = pieces[0].text;
  } else {
    for (const TextPiece &piece : pieces) {
      joined += piece.text;
      if (!all && !none) allowed.resize(joined.size(), piece.parseSpecial);
    }
    text = joined;
  }

  Scratch scratch;
  WordCache cache(text.size());
  std::vector<Splitter::Piece> words;
  auto onWords = [&](std::string segment, bool isFirst) {
    impl->splitter.apply(segment, isFirst, words);
    for (const Splitter::Piece &word : words) {
      std::string_view rest = std::string_view(segment).substr(word.first, word.last - word.first);
      while (impl->cutAtSpaces && !rest.empty()) {
        size_t end = wordEnd(rest, spec.metaspace, impl->joining);
        cache.encode(*impl->model, rest.substr(0, end), scratch, out);
        rest.remove_prefix(end);
      }
      if (!rest.empty()) cache.encode(*impl->model, rest, scratch, out);
    }
  };
  auto onToken = [&](uint32_t id) { out.push_back(static_cast<int32_t>(id)); };
  auto onText = [&](std::string_view part, bool isFirst) {
    std::string normalized = impl->normalizers.apply(std::string(part));
    if (impl->afterNormalization.empty()) return onWords(std::move(normalized), isFirst);
    impl->cut(
        impl->afterNormalization, impl->afterNormalization, normalized, nullptr,
        [&](std::string_view rest, bool restFirst) { onWords(std::string(rest), isFirst && restFirst); }, onToken);
  };
  const Trie &special = none ? impl->withoutSpecial : impl->withSpecial;
  impl->cut(special, impl->withoutSpecial, text, allowed.empty() ? nullptr : &allowed, onText, onToken);

  if (addSpecial) out.insert(out.end(), spec.suffix.begin(), spec.suffix.end());
  return out;
}

int32_t Tokenizer::vocabularySize() const { return static_cast<int32_t>(impl->spec.pieces.size()); }
const TokenizerSpec &Tokenizer::spec() const { return impl->spec; }
bool Tokenizer::isSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < impl->special.size() && impl->special[id];
}
bool Tokenizer::isEndOfGeneration(int32_t id) const {
  const auto &list = impl->spec.endOfGeneration;
  return id >= 0 && std::find(list.begin(), list.end(), static_cast<uint32_t>(id)) != list.end();
}

int32_t Tokenizer::pieceToToken(std::string_view text) const {
  for (const TokenizerSpec::AddedToken &token : impl->spec.added)
    if (token.text == text) return static_cast<int32_t>(token.id);
  for (size_t id = 0; id < impl->spec.pieces.size(); ++id)
    if (impl->spec.pieces[id] == text) return static_cast<int32_t>(id);
  return -1;
}

} // namespace lathe
