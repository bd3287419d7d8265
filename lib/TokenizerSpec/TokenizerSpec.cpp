//===- TokenizerSpec.cpp - checks and binary form -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Encoding: "LTOK", version, then the members in order. Integers are LEB128, strings have their
// length in front, scores are 4 or 8 bytes, ids that may be missing are stored plus one.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/TokenizerSpec.h"
#include <algorithm>
#include <cstring>

namespace lathe {
namespace {

constexpr char magic[4] = {'L', 'T', 'O', 'K'};

class Writer {
public:
  std::string out;
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }
  template <typename T> void byte(T value) { out += static_cast<char>(value); }
  void text(const std::string &value) {
    number(value.size());
    out += value;
  }
  void optional(int32_t id) { number(id < 0 ? 0 : static_cast<uint64_t>(id) + 1); }
  void ids(const std::vector<uint32_t> &list) {
    number(list.size());
    for (uint32_t id : list)
      number(id);
  }
};

/// Reads are checked; after the first error everything reads as zero.
class Reader {
public:
  explicit Reader(std::span<const uint8_t> data) : data(data) {}
  Status status() const { return error; }
  bool ok() const { return error.ok(); }
  bool atEnd() const { return at == data.size(); }

  void fail(const char *what) {
    if (error.ok()) error = makeError(StatusCode::dataLoss, "tokenizer: %s at offset %zu", what, sizeof magic + at);
    at = data.size();
  }
  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      if (at >= data.size()) break;
      uint8_t b = data[at++];
      value |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (!(b & 0x80)) return value;
    }
    fail(at >= data.size() ? "cut off" : "a number is too long");
    return 0;
  }
  uint32_t id() {
    uint64_t value = number();
    if (value > 0x7fffffff) fail("a number is too large");
    return ok() ? static_cast<uint32_t>(value) : 0;
  }
  int32_t optional() { return static_cast<int32_t>(static_cast<int64_t>(id()) - 1); }
  /// An element count; each element takes at least |bytes|.
  size_t count(size_t bytes = 1) {
    uint64_t value = number();
    if (value > (data.size() - at) / bytes) {
      fail("a count exceeds the data");
      return 0;
    }
    return value;
  }
  uint8_t byte() {
    if (at >= data.size()) {
      fail("cut off");
      return 0;
    }
    return data[at++];
  }
  bool flag() {
    uint8_t value = byte();
    if (value > 1) fail("expected a flag of 0 or 1");
    return value == 1;
  }
  template <typename E> E enumerator(E last) {
    uint8_t value = byte();
    if (value > static_cast<uint8_t>(last)) {
      fail("an unknown kind");
      return E{};
    }
    return static_cast<E>(value);
  }
  std::string text() {
    size_t size = count();
    if (!ok()) return {};
    std::string value(reinterpret_cast<const char *>(data.data()) + at, size);
    at += size;
    return value;
  }
  template <typename T> T real() {
    if (data.size() - at < sizeof(T)) {
      fail("cut off");
      return 0;
    }
    T value;
    std::memcpy(&value, data.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
  std::vector<uint32_t> ids() {
    std::vector<uint32_t> list(count());
    for (uint32_t &value : list)
      value = id();
    return list;
  }

private:
  std::span<const uint8_t> data;
  size_t at = 0;
  Status error;
};

} // namespace

Status TokenizerSpec::verify() const {
#define bad(...) makeError(StatusCode::invalidArgument, __VA_ARGS__)
  size_t n = pieces.size();
  if (n == 0) return bad("tokenizer: expected at least one piece, found none");
  if (n > 0x7fffffff) return bad("tokenizer: more than 2^31 pieces");
  if (types.size() != n) return bad("tokenizer: expected %zu piece types, found %zu", n, types.size());
  if (!scores.empty() && scores.size() != n) return bad("tokenizer: expected %zu scores, found %zu", n, scores.size());
  if ((model == Model::unigram || model == Model::scoredBpe) && scores.empty())
    return bad("tokenizer: the model needs scores, found none");
  for (size_t i = 0; i < scores.size(); ++i)
    if (!(scores[i] > -3.4e38f && scores[i] < 3.4e38f)) return bad("tokenizer: score of piece %zu is not finite", i);
  for (size_t i = 0; i < n; ++i) {
    if (types[i] < PieceType::normal || types[i] > PieceType::byte)
      return bad("tokenizer: piece %zu has unknown type %u", i, static_cast<unsigned>(types[i]));
    if (types[i] == PieceType::byte && pieces[i].size() != 1)
      return bad("tokenizer: byte piece %zu has %zu bytes", i, pieces[i].size());
  }
  for (size_t i = 0; i < merges.size(); ++i)
    if (merges[i].left >= n || merges[i].right >= n || merges[i].result >= n)
      return bad("tokenizer: merge %zu uses an id that is not below %zu", i, n);
  for (const AddedToken &token : added)
    if (token.id >= n || token.text.empty())
      return bad("tokenizer: added token '%.40s' has id %u, of %zu pieces", token.text.c_str(), token.id, n);
  for (const std::vector<uint32_t> *list : {&prefix, &suffix, &endOfGeneration})
    for (uint32_t id : *list)
      if (id >= n) return bad("tokenizer: special token %u is not below %zu", id, n);
  for (int32_t id : {bos, eos, eot, unknown, pad})
    if (id >= 0 && static_cast<size_t>(id) >= n) return bad("tokenizer: special token %d is not below %zu", id, n);
  return Status();
#undef bad
}

std::string TokenizerSpec::encode() const {
  Writer w;
  w.out.append(magic, sizeof magic);
  w.number(version);
  w.byte(model);
  for (bool flag : {byteLevel, byteFallback, ignoreMerges, fuseUnknown, floatSums})
    w.byte(flag);
  w.number(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    w.text(pieces[i]);
    w.byte(types[i]);
  }
  w.number(scores.size());
  // SentencePiece's scores are floats; only models trained elsewhere need more.
  bool wide = std::any_of(scores.begin(), scores.end(), [](double s) { return static_cast<float>(s) != s; });
  if (!scores.empty()) w.byte(wide);
  for (double score : scores) {
    float narrow = static_cast<float>(score);
    if (wide)
      w.out.append(reinterpret_cast<const char *>(&score), 8);
    else
      w.out.append(reinterpret_cast<const char *>(&narrow), 4);
  }
  w.number(merges.size());
  for (const Merge &merge : merges) {
    w.number(merge.left);
    w.number(merge.right);
    w.number(merge.result);
  }
  w.number(added.size());
  for (const AddedToken &token : added) {
    w.number(token.id);
    w.text(token.text);
    w.byte(token.special | token.stripLeft << 1 | token.stripRight << 2 | token.singleWord << 3 |
           token.normalized << 4);
  }
  w.number(normalizers.size());
  for (const Normalizer &normalizer : normalizers) {
    w.byte(normalizer.kind);
    w.number(normalizer.flags);
    w.text(normalizer.text);
    w.text(normalizer.with);
  }
  w.number(splits.size());
  for (const Split &split : splits) {
    w.byte(split.kind);
    w.byte(split.behavior);
    w.byte(split.prefix);
    w.byte(split.invert);
    w.text(split.pattern);
  }
  w.text(continuation);
  w.text(endOfWord);
  w.number(maxWordCharacters);
  w.byte(decoder);
  w.text(metaspace);
  w.number(stripStart);
  w.byte(cleanUp);
  w.ids(prefix);
  w.ids(suffix);
  for (int32_t id : {bos, eos, eot, unknown, pad})
    w.optional(id);
  w.ids(endOfGeneration);
  return std::move(w.out);
}

Result<TokenizerSpec> TokenizerSpec::decode(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof magic || std::memcmp(bytes.data(), magic, sizeof magic) != 0)
    return makeError(StatusCode::dataLoss, "tokenizer: expected the mark 'LTOK' at offset 0");
  Reader r(bytes.subspan(sizeof magic));
  TokenizerSpec s;
  uint64_t found = r.number();
  if (r.ok() && found != version)
    return makeError(StatusCode::failedPrecondition,
                     "tokenizer: expected version %u, found %llu; compile the model again with this Lathe", version,
                     static_cast<unsigned long long>(found));
  s.model = r.enumerator(Model::wordPiece);
  for (bool *flag : {&s.byteLevel, &s.byteFallback, &s.ignoreMerges, &s.fuseUnknown, &s.floatSums})
    *flag = r.flag();
  size_t n = r.count(2);
  s.pieces.reserve(n);
  s.types.reserve(n);
  for (size_t i = 0; i < n && r.ok(); ++i) {
    s.pieces.push_back(r.text());
    s.types.push_back(r.enumerator(PieceType::byte));
  }
  if (size_t scoreCount = r.count(4); scoreCount > 0) {
    bool wide = r.flag();
    s.scores.resize(scoreCount);
    for (double &score : s.scores)
      score = wide ? r.real<double>() : r.real<float>();
  }
  s.merges.resize(r.count(3));
  for (Merge &merge : s.merges) {
    merge.left = r.id();
    merge.right = r.id();
    merge.result = r.id();
  }
  size_t addedCount = r.count(3);
  for (size_t i = 0; i < addedCount && r.ok(); ++i) {
    AddedToken token;
    token.id = r.id();
    token.text = r.text();
    uint8_t flags = r.byte();
    if (flags > 31) r.fail("unknown flags of an added token");
    token.special = flags & 1;
    token.stripLeft = flags & 2;
    token.stripRight = flags & 4;
    token.singleWord = flags & 8;
    token.normalized = flags & 16;
    s.added.push_back(std::move(token));
  }
  size_t normalizerCount = r.count(4);
  for (size_t i = 0; i < normalizerCount && r.ok(); ++i) {
    Normalizer normalizer;
    normalizer.kind = r.enumerator(Normalizer::Kind::mergeSpaces);
    normalizer.flags = r.id();
    normalizer.text = r.text();
    normalizer.with = r.text();
    s.normalizers.push_back(std::move(normalizer));
  }
  size_t splitCount = r.count(5);
  for (size_t i = 0; i < splitCount && r.ok(); ++i) {
    Split split;
    split.kind = r.enumerator(Split::Kind::metaspace);
    split.behavior = r.enumerator(Split::Behavior::none);
    split.prefix = r.enumerator(Split::Prefix::always);
    split.invert = r.flag();
    split.pattern = r.text();
    s.splits.push_back(std::move(split));
  }
  s.continuation = r.text();
  s.endOfWord = r.text();
  s.maxWordCharacters = r.id();
  s.decoder = r.enumerator(Decoder::wordPiece);
  s.metaspace = r.text();
  s.stripStart = r.id();
  s.cleanUp = r.flag();
  s.prefix = r.ids();
  s.suffix = r.ids();
  for (int32_t *id : {&s.bos, &s.eos, &s.eot, &s.unknown, &s.pad})
    *id = r.optional();
  s.endOfGeneration = r.ids();
  if (r.ok() && !r.atEnd()) r.fail("expected the end");
  LATHE_RETURN_IF_ERROR(r.status());
  LATHE_RETURN_IF_ERROR(s.verify());
  return s;
}

} // namespace lathe
