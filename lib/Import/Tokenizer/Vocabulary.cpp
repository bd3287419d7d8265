//===- Vocabulary.cpp ---------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Vocabulary.h"
#include "lathe/import/Quote.h"
#include <map>
#include <tuple>

namespace lathe {

Status compareVocabularies(const TokenizerSpec &model, const TokenizerSpec &draft) {
  auto differ = [](const std::string &what, const std::string &expected, const std::string &found) {
    return makeError(StatusCode::invalidArgument, "the draft model's vocabulary is another one: %s: expected %s, found %s", what.c_str(), expected.c_str(), found.c_str());
  };
  if (model.pieces.size() != draft.pieces.size()) return differ("tokens", std::to_string(model.pieces.size()), std::to_string(draft.pieces.size()));
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id] != draft.pieces[id]) return differ("token " + std::to_string(id), quoteName(model.pieces[id]), quoteName(draft.pieces[id]));
    if (model.types[id] != draft.types[id])
      return differ("kind of token " + std::to_string(id) + " " + quoteName(model.pieces[id]), std::to_string(int(model.types[id])), std::to_string(int(draft.types[id])));
  }
  std::map<uint32_t, const TokenizerSpec::AddedToken *> added;
  for (const auto &token : model.added) added[token.id] = &token;
  for (const auto &token : draft.added) {
    auto found = added.find(token.id);
    std::string what = "special token " + std::to_string(token.id);
    if (found == added.end()) return differ(what, "none", quoteName(token.text));
    if (found->second->text != token.text) return differ(what, quoteName(found->second->text), quoteName(token.text));
    added.erase(found);
  }
  if (!added.empty()) return differ("special token " + std::to_string(added.begin()->first), quoteName(added.begin()->second->text), "none");
  for (auto [what, expected, found] : {std::tuple("begin of text", model.bos, draft.bos), {"end of text", model.eos, draft.eos}})
    if (expected != found && expected >= 0 && found >= 0) return differ(std::string(what) + ", token", std::to_string(expected), std::to_string(found));
  return Status();
}

} // namespace lathe
