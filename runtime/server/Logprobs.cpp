//===- Logprobs.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Logprobs.h"
#include "runtime/server/JsonText.h"
#include <algorithm>
#include <cstring>

namespace lathe::server {
using namespace runtime;

std::string tokenText(const ServedModel &model, int32_t id) {
  return model.text ? model.text->tokenizer().tokenToPiece(id, true) : std::to_string(id);
}

namespace {

bool isUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    auto c = static_cast<unsigned char>(text[i]);
    size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (!n || i + n > text.size()) return false;
    for (size_t j = 1; j < n; ++j)
      if ((static_cast<unsigned char>(text[i + j]) & 0xc0) != 0x80) return false;
    i += n;
  }
  return true;
}

/// Two tokens that are parts of characters must not get one name: "bytes:\xe2\x80", as OpenAI's completions have it.
std::string tokenName(const ServedModel &model, int32_t id) {
  std::string text = tokenText(model, id);
  if (isUtf8(text)) return jsonString(text);
  std::string name = "\"bytes:";
  char hex[8];
  for (char c : text) {
    std::snprintf(hex, sizeof hex, "\\\\x%02x", static_cast<unsigned char>(c));
    name += hex;
  }
  return name + '"';
}

std::string chatToken(const ServedModel &model, int32_t id, float logprob) {
  std::string text = tokenText(model, id), out = "\"token\":" + jsonString(text) + ",\"logprob\":" + decimal(logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < text.size(); ++i)
    out += (i ? "," : "") + std::to_string(static_cast<unsigned char>(text[i]));
  return out + "]";
}

} // namespace

std::string chatLogprobs(const ServedModel &model, const std::vector<Sample> &tokens) {
  std::string out = "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += (i ? ",{" : "{") + chatToken(model, tokens[i].token, tokens[i].logprob) + ",\"top_logprobs\":[";
    for (size_t j = 0; j < tokens[i].top.size(); ++j)
      out += (j ? ",{" : "{") + chatToken(model, tokens[i].top[j].token, tokens[i].top[j].logprob) + "}";
    out += "]}";
  }
  return out + "],\"refusal\":null}";
}

void CompletionLogprobs::add(int32_t token, float logprob, std::span<const TokenLogprob> top) {
  if (!names.empty())
    for (std::string *list : {&names, &logprobs, &tops, &offsets})
      *list += ',';
  names += tokenName(model, token);
  logprobs += decimal(logprob);
  offsets += std::to_string(at);
  for (char c : tokenText(model, token))
    at += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  if (std::isnan(logprob)) {
    tops += "null";
    return;
  }
  tops += '{';
  bool chosen = false;
  size_t count = std::min<size_t>(top.size(), static_cast<size_t>(std::max(most, 0)));
  for (size_t i = 0; i < count; ++i) {
    tops += (i ? "," : "") + tokenName(model, top[i].token) + ":" + decimal(top[i].logprob);
    chosen |= top[i].token == token;
  }
  if (!chosen) tops += (count ? "," : "") + tokenName(model, token) + ":" + decimal(logprob);
  tops += '}';
}

void CompletionLogprobs::add(const std::vector<Sample> &tokens) {
  for (const Sample &s : tokens)
    add(s.token, s.logprob, s.top);
}

void CompletionLogprobs::add(const std::vector<PromptLogprob> &tokens) {
  for (const PromptLogprob &t : tokens)
    add(t.token, t.logprob, t.top);
}

std::string CompletionLogprobs::object() const {
  return "{\"tokens\":[" + names + "],\"token_logprobs\":[" + logprobs + "],\"top_logprobs\":[" + tops +
         "],\"text_offset\":[" + offsets + "]}";
}

std::string promptLogprobs(const ServedModel &model, const std::vector<PromptLogprob> &tokens, int32_t most) {
  std::string out = "[";
  auto entry = [&](int32_t token, float logprob, const std::string &rank) {
    return "\"" + std::to_string(token) + "\":{\"logprob\":" + decimal(logprob) + ",\"rank\":" + rank +
           ",\"decoded_token\":" + jsonString(tokenText(model, token)) + "}";
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const PromptLogprob &t = tokens[i];
    if (i) out += ',';
    if (std::isnan(t.logprob)) {
      out += "null";
      continue;
    }
    out += '{';
    size_t count = std::min<size_t>(t.top.size(), static_cast<size_t>(std::max(most, 0))), rank = 0;
    for (size_t j = 0; j < t.top.size(); ++j)
      if (t.top[j].token == t.token) rank = j + 1;
    for (size_t j = 0; j < count; ++j)
      out += (j ? "," : "") + entry(t.top[j].token, t.top[j].logprob, std::to_string(j + 1));
    if (!rank || rank > count)
      out += (count ? "," : "") + entry(t.token, t.logprob, rank ? std::to_string(rank) : "null");
    out += '}';
  }
  return out + "]";
}

std::string base64(const std::vector<float> &values) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = static_cast<uint32_t>(bytes[i]) << 16;
    if (i + 1 < bytes.size()) three |= static_cast<uint32_t>(bytes[i + 1]) << 8;
    if (i + 2 < bytes.size()) three |= bytes[i + 2];
    out += digits[three >> 18];
    out += digits[three >> 12 & 63];
    out += i + 1 < bytes.size() ? digits[three >> 6 & 63] : '=';
    out += i + 2 < bytes.size() ? digits[three & 63] : '=';
  }
  return out;
}

} // namespace lathe::server
