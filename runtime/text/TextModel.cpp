//===- TextModel.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/text/TextModel.h"
#include <algorithm>

namespace lathe::runtime {
using artifact::SectionKind;
using Json = nlohmann::ordered_json;

namespace {

// U+FDD0, a noncharacter: put behind the first character of a control token's text inside a message, so that
// it survives the template and shows where the text must stay text.
constexpr std::string_view marker = "\xef\xb7\x90";

constexpr int maxJsonDepth = 64;

size_t characterBytes(std::string_view text) {
  auto lead = static_cast<unsigned char>(text[0]);
  size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(n, text.size());
}

/// A number of the GENERATION section, or nothing when it is absent or null.
Status readNumber(const nlohmann::json &object, const char *key, float &value) {
  auto found = object.find(key);
  if (found == object.end() || found->is_null()) return Status();
  if (!found->is_number())
    return makeError(StatusCode::dataLoss, "generation defaults: expected a number for '%s', found %s", key,
                     found->dump().substr(0, 40).c_str());
  value = found->get<float>();
  return Status();
}

} // namespace

Result<TextModel> TextModel::create(const LoadedArtifact &artifact) {
  auto inFile = [&](Status status) { return std::move(status).at("'" + artifact.path() + "'"); };
  auto section = artifact.view().find(SectionKind::tokenizer);
  if (!section)
    return inFile(Status(StatusCode::notFound, "the artifact has no tokenizer; give token ids instead of text"));
  auto spec = TokenizerSpec::decode(*section);
  if (!spec.ok()) return inFile(spec.status());
  std::vector<std::string> specials;
  for (const TokenizerSpec::AddedToken &token : spec->added)
    if (token.special && !token.text.empty()) specials.push_back(token.text);
  std::sort(specials.begin(), specials.end(), [](auto &a, auto &b) { return a.size() > b.size(); });
  std::vector<int32_t> ends(spec->endOfGeneration.begin(), spec->endOfGeneration.end());
  auto tokenizer = Tokenizer::create(*std::move(spec));
  if (!tokenizer.ok()) return inFile(tokenizer.status());

  TextModel model(*std::move(tokenizer));
  model.specials = std::move(specials);
  model.stops = std::move(ends);
  model.defaults.temperature = 0;
  if (auto text = artifact.view().text(SectionKind::generation); !text.empty())
    if (Status s = model.readGeneration(text); !s.ok()) return inFile(std::move(s));
  if (auto source = artifact.view().text(SectionKind::chatTemplate); !source.empty()) {
    auto parsed = Template::parse(source);
    if (parsed.ok())
      model.chat = *std::move(parsed);
    else
      model.chatError = inFile(parsed.status());
  }
  return model;
}

Status TextModel::readGeneration(std::string_view text) {
  auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return Status(StatusCode::dataLoss, "generation defaults: expected a JSON object");
  if (auto sample = object.find("do_sample"); sample != object.end() && sample->is_boolean() && sample->get<bool>()) {
    defaults.temperature = 1;
    float topK = 0;
    LATHE_RETURN_IF_ERROR(readNumber(object, "temperature", defaults.temperature));
    LATHE_RETURN_IF_ERROR(readNumber(object, "top_k", topK));
    LATHE_RETURN_IF_ERROR(readNumber(object, "top_p", defaults.topP));
    LATHE_RETURN_IF_ERROR(readNumber(object, "min_p", defaults.minP));
    defaults.topK = static_cast<int32_t>(std::clamp(topK, 0.0f, 1e6f));
  }
  LATHE_RETURN_IF_ERROR(readNumber(object, "repetition_penalty", defaults.repetitionPenalty));
  if (auto eos = object.find("eos_token_id"); eos != object.end())
    for (const auto &id : eos->is_array() ? *eos : nlohmann::json::array({*eos}))
      if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < words.vocabularySize())
        stops.push_back(id.get<int32_t>());
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return defaults.validate(words.vocabularySize());
}

std::string TextModel::mark(const std::string &text) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    std::string_view rest = std::string_view(text).substr(at);
    if (rest.substr(0, marker.size()) == marker) { // a message that brings its own marker loses it
      at += marker.size();
      continue;
    }
    size_t n = characterBytes(rest);
    out.append(rest.substr(0, n));
    for (const std::string &special : specials)
      if (rest.substr(0, special.size()) == special) {
        out.append(marker);
        break;
      }
    at += n;
  }
  return out;
}

Json TextModel::markAll(const Json &value, int depth) const {
  if (value.is_string()) return mark(value.get_ref<const std::string &>());
  if (depth > maxJsonDepth || !value.is_structured()) return value;
  Json copy = value;
  for (auto &item : copy)
    item = markAll(item, depth + 1);
  return copy;
}

Result<Json> TextModel::parseMessages(std::string_view text) {
  int depth = 0; // counted before parsing: what is deep is costly to free and to walk
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted && c == '\\') ++i;
    else if (c == '"') quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{') && ++depth > maxJsonDepth)
      return makeError(StatusCode::invalidArgument, "messages: expected at most %d levels of JSON", maxJsonDepth);
    else if (!quoted && (c == ']' || c == '}')) --depth;
  }
  auto messages = Json::parse(text, nullptr, false);
  if (!messages.is_array()) return Status(StatusCode::invalidArgument, "messages: expected a JSON array of objects");
  for (size_t i = 0; i < messages.size(); ++i)
    if (!messages[i].is_object() || !messages[i].contains("role") || !messages[i]["role"].is_string())
      return makeError(StatusCode::invalidArgument, "messages: expected an object with a 'role' at index %zu", i);
  return messages;
}

Result<std::string> TextModel::render(const Json &messages, const ChatOptions &options) const {
  LATHE_RETURN_IF_ERROR(chatError);
  if (!chat)
    return Status(StatusCode::failedPrecondition,
                  "the artifact has no chat template; give a plain prompt without '--chat'");
  Json context = options.extra.is_object() ? options.extra : Json::object();
  context["messages"] = messages;
  for (const char *name : {"tools", "documents"})
    if (!context.contains(name)) context[name] = nullptr;
  context["add_generation_prompt"] = options.addGenerationPrompt;
  const TokenizerSpec &spec = words.spec();
  auto textOf = [&](int32_t id) { return id >= 0 ? words.tokenToPiece(id, true) : std::string(); };
  context["bos_token"] = textOf(spec.bos);
  context["eos_token"] = textOf(spec.eos);
  RenderOptions limits;
  limits.now = CivilTime::now();
  return chat->render(context, limits);
}

Result<std::vector<int32_t>> TextModel::encodeChat(const Json &messages, const ChatOptions &options) const {
  LATHE_ASSIGN_OR_RETURN(std::string text, render(options.parseSpecial ? messages : markAll(messages, 0), options));
  // Cut at the markers: the character before one may not begin a control token.
  std::vector<std::string> parts;
  std::vector<bool> plain;
  auto add = [&](std::string_view part, bool isPlain) {
    if (part.empty()) return;
    parts.emplace_back(part);
    plain.push_back(isPlain);
  };
  std::string_view rest = text;
  for (size_t at; (at = rest.find(marker)) != std::string_view::npos; rest = rest.substr(at + marker.size())) {
    size_t start = at; // of the character before the marker
    while (start > 0 && (static_cast<unsigned char>(rest[--start]) & 0xc0) == 0x80) {
    }
    add(rest.substr(0, start), false);
    add(rest.substr(start, at - start), true);
  }
  add(rest, false);
  std::vector<TextPiece> pieces;
  for (size_t i = 0; i < parts.size(); ++i)
    pieces.push_back({parts[i], !plain[i]});
  // Templates write the beginning-of-text token themselves; none is to be added twice.
  return words.encode(pieces, false);
}

} // namespace lathe::runtime
