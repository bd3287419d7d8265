//===- Conversation.cpp - messages of a chat -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Fields.h"
#include <array>

namespace lathe::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The text of a message's content: a string, or parts of type text joined by line ends.
bool readContent(Fields &fields, const std::string &where, const Json &content, std::string &text) {
  if (content.is_string()) {
    text = content.get<std::string>();
    return true;
  }
  if (!content.is_array()) {
    fields.fail(where, "expected a string or a list of parts, found " + shown(content));
    return false;
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const Json &part = content[i];
    std::string at = where + "[" + std::to_string(i) + "]";
    auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || (*type != "text" && *type != "input_text")) {
      fields.fail(at, "expected a part of type 'text', found " +
                          (part.is_object() && type != part.end() ? shown(*type) : shown(part)));
      return false;
    }
    auto words = part.find("text");
    if (words == part.end() || !words->is_string()) {
      fields.fail(at + ".text", "expected a string");
      return false;
    }
    if (i) text += '\n';
    text += words->get_ref<const std::string &>();
  }
  return true;
}

bool readMessage(Fields &fields, const std::string &where, const Json &message, OrderedJson &out) {
  if (!message.is_object()) {
    fields.fail(where, "expected an object with role and content, found " + shown(message));
    return false;
  }
  auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    fields.fail(where + ".role", "expected system, developer, user or assistant");
    return false;
  }
  std::string name = role->get<std::string>();
  if (name != "system" && name != "developer" && name != "user" && name != "assistant") {
    fields.fail(where + ".role", "expected system, developer, user or assistant, found " + shown(*role));
    return false;
  }
  // What assistants said is sent back with members that are empty; at other values they would be lost.
  for (const char *field : {"tool_calls", "function_call", "audio", "tool_call_id"})
    if (auto found = message.find(field); found != message.end() && !found->is_null() && !found->empty()) {
      fields.fail(where + "." + field, "not supported");
      return false;
    }
  auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    fields.fail(where + ".content", "expected a string or a list of parts, found none");
    return false;
  }
  std::string text;
  if (!readContent(fields, where + ".content", *content, text)) return false;
  // Templates know system; developer is its newer name.
  out = {{"role", name == "developer" ? "system" : name}, {"content", std::move(text)}};
  for (const char *field : {"name", "reasoning_content"})
    if (auto found = message.find(field); found != message.end() && found->is_string())
      out[field] = found->get<std::string>();
  return true;
}

/// |value| in the type that templates take; false past |left| values.
bool convert(const Json &value, uint32_t &left, OrderedJson &out) {
  if (left-- == 0) {
    left = 0;
    return false;
  }
  if (value.is_object()) {
    out = OrderedJson::object();
    std::vector<std::pair<std::string, OrderedJson>> members; // a map has no equal names: no need to look each up
    for (auto &[name, member] : value.items()) {
      OrderedJson copy;
      if (!convert(member, left, copy)) return false;
      members.emplace_back(name, std::move(copy));
    }
    auto &object = out.get_ref<OrderedJson::object_t &>();
    for (auto &member : members)
      object.emplace_back(std::move(member.first), std::move(member.second));
  } else if (value.is_array()) {
    out = OrderedJson::array();
    for (const Json &item : value) {
      OrderedJson copy;
      if (!convert(item, left, copy)) return false;
      out.push_back(std::move(copy));
    }
  } else if (value.is_string()) {
    out = value.get_ref<const std::string &>();
  } else if (value.is_boolean()) {
    out = value.get<bool>();
  } else if (value.is_number_unsigned()) {
    out = value.get<uint64_t>();
  } else if (value.is_number_integer()) {
    out = value.get<int64_t>();
  } else if (value.is_number_float()) {
    out = value.get<double>();
  } else {
    out = nullptr;
  }
  return true;
}

} // namespace

void readConversation(Fields &fields, const ServedModel &model, const ApiLimits &limits, ApiRequest &request) {
  request.conversation = true;
  request.chat.addGenerationPrompt = fields.boolean("add_generation_prompt", true);
  if (const Json *given = fields.find("chat_template"))
    fields.fail("chat_template", "a request cannot bring its own template, found " + shown(*given));
  if (fields.boolean("add_special_tokens", false))
    fields.fail("add_special_tokens", "expected false: the template writes them");

  const Json *messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty() || messages->size() > limits.maxMessages) {
    std::string found = !messages ? "none" : messages->is_array() ? std::to_string(messages->size()) : shown(*messages);
    return fields.fail("messages",
                       "expected a list of 1.." + std::to_string(limits.maxMessages) + " messages, found " + found);
  }
  request.messages = nlohmann::ordered_json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    nlohmann::ordered_json message;
    if (!readMessage(fields, "messages[" + std::to_string(i) + "]", (*messages)[i], message)) return;
    request.messages.push_back(std::move(message));
  }

  if (const Json *extra = fields.find("chat_template_kwargs")) {
    if (!extra->is_object())
      return fields.fail("chat_template_kwargs", "expected an object, found " + shown(*extra));
    static constexpr std::array reserved = {"messages",  "tools",     "documents",     "add_generation_prompt",
                                            "bos_token", "eos_token", "chat_template", "continue_final_message"};
    for (const char *name : reserved)
      if (extra->contains(name))
        return fields.fail("chat_template_kwargs", "expected other names than '" + std::string(name) +
                                                       "', which the request cannot replace");
    uint32_t left = limits.maxTemplateNodes;
    if (!convert(*extra, left, request.chat.extra))
      fields.fail("chat_template_kwargs", "expected at most " + std::to_string(limits.maxTemplateNodes) + " values");
  }
  if (fields.ok() && (!model.text || !model.text->hasTemplate()))
    fields.fail("messages", "the model has no chat template; use /v1/completions");
}

} // namespace lathe::server
