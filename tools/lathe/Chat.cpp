//===- Chat.cpp - a conversation on the terminal ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "LineEditor.h"
#include "Session.h"
#include <cstdio>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

constexpr char chatHelp[] = "/clear        forget the conversation\n"
                            "/system TEXT  set the system message and forget the conversation\n"
                            "/help         this list\n"
                            "/exit         end (so does Ctrl-D)\n"
                            "Ctrl-C stops an answer.\n";

class Chat {
public:
  Chat(Session &session, ChatSettings settings) : session(session), settings(std::move(settings)) { clear(); }

  void clear() {
    messages = Json::array();
    if (!settings.system.empty()) messages.push_back({{"role", "system"}, {"content", settings.system}});
  }

  /// True when |line| was a command; |end| when it ends the chat.
  bool command(const std::string &line, bool &end) {
    if (line.empty() || line[0] != '/') return false;
    size_t space = line.find(' ');
    std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit" || name == "/bye") {
      end = true;
    } else if (name == "/clear") {
      clear();
    } else if (name == "/system") {
      settings.system = rest;
      clear();
    } else {
      std::fputs(chatHelp, stdout);
    }
    return true;
  }

  Status answer(const std::string &line) {
    messages.push_back({{"role", "user"}, {"content", line}});
    Status status = respond();
    if (!status.ok()) messages.erase(messages.size() - 1);
    return status;
  }

private:
  Status respond() {
    CompletionRequest request;
    request.sequence = session.sequence;
    if (session.text->hasTemplate()) {
      ChatOptions options;
      options.parseSpecial = settings.parseSpecial;
      LATHE_ASSIGN_OR_RETURN(request.prompt, session.text->encodeChat(messages, options));
    } else { // a base model: it continues what was said
      std::string all;
      for (const Json &message : messages)
        all += message["content"].get<std::string>();
      request.prompt = session.text->encode(all, settings.parseSpecial);
    }
    request.sampling = settings.sampling;
    request.maxTokens = settings.maxTokens;
    request.stops = settings.stops;
    request.ignoreEnd = settings.ignoreEnd;
    request.continues = !session.text->hasTemplate();
    request.onPiece = [&](int32_t id, std::string_view piece) {
      if (!settings.ids)
        std::fwrite(piece.data(), 1, piece.size(), stdout);
      else if (id >= 0)
        std::printf("%d ", id);
      std::fflush(stdout);
      return !interrupted;
    };
    GenerateTimings timings;
    InterruptGuard guard;
    auto completed = complete(*session.engine, session.words(), {&request, 1}, &timings);
    LATHE_RETURN_IF_ERROR(completed.status());
    const auto &answers = *completed;
    LATHE_RETURN_IF_ERROR(answers[0].error);
    std::printf("\n");
    if (answers[0].reason == FinishReason::length &&
        session.engine->length(session.sequence) + 1 >= session.engine->contextTokens())
      std::fprintf(stderr, "the context of %u tokens is full; /clear starts anew\n", session.engine->contextTokens());
    std::fprintf(stderr, "%s\n", timingsLine(session, timings).c_str());
    messages.push_back({{"role", "assistant"}, {"content", answers[0].text}});
    return Status();
  }

  Session &session;
  ChatSettings settings;
  Json messages;
};

} // namespace

Result<int> chatLoop(Session &session, ChatSettings settings) {
  std::fprintf(stderr, "%s: ask away, with room for %u tokens; /help lists commands, Ctrl-D ends\n",
               session.artifact->path().c_str(), session.engine->availableTokens());
  Chat chat(session, std::move(settings));
  LineEditor editor;
  while (auto line = editor.read("> ")) {
    bool end = false;
    if (line->empty() || chat.command(*line, end)) {
      if (end) break;
      continue;
    }
    if (Status status = chat.answer(*line); !status.ok()) std::fprintf(stderr, "error: %s\n", status.message().c_str());
  }
  return 0;
}

} // namespace lathe::tool
