//===- Common.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common.h"
#include "lathe/base/Unicode.h"
#include <algorithm>
#include <array>

namespace lathe::tokenizerimport {
namespace {

/// Printable Latin-1 stands for itself, the other 68 bytes are U+0100 and on, in order.
std::array<int16_t, 0x144> makeByteAlphabet() {
  std::array<int16_t, 0x144> map;
  map.fill(-1);
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
    map[static_cast<size_t>(printable ? b : next++)] = static_cast<int16_t>(b);
  }
  return map;
}

// Texts by which models end an answer or a turn.
constexpr std::string_view turnEnds[] = {"<|eot_id|>",
                                         "<|im_end|>",
                                         "<|end|>",
                                         "<end_of_turn>",
                                         "<turn|>",
                                         "<|endoftext|>",
                                         "<|end_of_text|>",
                                         "<EOT>",
                                         "_<EOT>",
                                         "[EOT]",
                                         "<\xef\xbd\x9c"
                                         "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                                         "<end_of_utterance>"};
constexpr std::string_view otherEnds[] = {"<|return|>", "<|call|>", "<|calls|>", "<|flush|>",        "</s>",
                                          "<|eom_id|>", "[EOS]",    "<eos>",     "<|tool_response>", "[e~["};

} // namespace

bool fromByteAlphabet(std::string_view text, std::string &out) {
  static const std::array<int16_t, 0x144> map = makeByteAlphabet();
  out.clear();
  for (size_t i = 0; i < text.size();) {
    unsigned length;
    uint32_t cp = unicode::decode(text, i, length);
    if (cp >= map.size() || map[cp] < 0) return false;
    out += static_cast<char>(map[cp]);
    i += length;
  }
  return true;
}

int byteOfName(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (char c : text.substr(3, 2)) {
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

void completeSpecialTokens(ImportedTokenizer &tokenizer) {
  TokenizerSpec &spec = tokenizer.spec;
  int32_t n = static_cast<int32_t>(spec.pieces.size());
  for (auto [id, name] : {std::pair(&spec.bos, "bos"),
                          {&spec.eos, "eos"},
                          {&spec.eot, "eot"},
                          {&spec.unknown, "unknown"},
                          {&spec.pad, "pad"}})
    if (*id >= n) {
      tokenizer.warnings.push_back(std::string(name) + " token " + std::to_string(*id) +
                                   " is outside of the vocabulary and was dropped");
      *id = -1;
    }

  // Only added tokens: an ordinary piece that reads "</s>" ends nothing.
  std::unordered_map<std::string_view, uint32_t> added;
  for (const TokenizerSpec::AddedToken &token : spec.added)
    added.emplace(token.text, token.id);
  auto find = [&](std::string_view text) {
    auto it = added.find(text);
    return it == added.end() ? -1 : static_cast<int32_t>(it->second);
  };
  auto ends = [&](int32_t id) {
    auto &list = spec.endOfGeneration;
    if (id >= 0 && id < n && std::find(list.begin(), list.end(), static_cast<uint32_t>(id)) == list.end())
      list.push_back(static_cast<uint32_t>(id));
  };
  for (std::string_view text : turnEnds) {
    if (spec.eot < 0) spec.eot = find(text);
    ends(find(text));
  }
  for (std::string_view text : otherEnds)
    ends(find(text));
  ends(spec.eos);
  ends(spec.eot);
  auto &list = spec.endOfGeneration;
  list.erase(std::remove_if(list.begin(), list.end(), [&](uint32_t id) { return id >= static_cast<uint32_t>(n); }),
             list.end());
  // Families that close a part of an answer, not the answer, with one of those texts.
  auto drop = [&](int32_t id) {
    if (id >= 0 && id != spec.eos)
      list.erase(std::remove(list.begin(), list.end(), static_cast<uint32_t>(id)), list.end());
  };
  bool channels = find("<|return|>") >= 0 && find("<|call|>") >= 0;
  bool flushes = (find("<|calls|>") >= 0 || find("<|call|>") >= 0) && find("<|flush|>") >= 0;
  if (channels || flushes) {
    drop(find("<|end|>"));
    if (spec.eot == find("<|end|>")) spec.eot = -1;
  }
  if (find("<|tool_response>") >= 0) drop(find("</s>"));
  std::sort(list.begin(), list.end());

  auto text = [&](int32_t id) { return id >= 0 ? spec.pieces[static_cast<size_t>(id)] : std::string(); };
  tokenizer.bosText = text(spec.bos);
  tokenizer.eosText = text(spec.eos);
}

} // namespace lathe::tokenizerimport
