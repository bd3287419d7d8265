//===- Json.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Json.h"
#include "lathe/import/Quote.h"
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace lathe {
namespace {
using nlohmann::json;

/// A first pass without a tree: depth, duplicate keys (a tree would keep one of them in silence)
/// and the place of the first mistake.
class Checker : public nlohmann::json_sax<json> {
public:
  explicit Checker(unsigned maxDepth) : maxDepth(maxDepth) {}
  Status status;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t &) override { return true; }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t &name) override {
    if (keys.back().insert(name).second) return true;
    status = Status(StatusCode::invalidArgument, "JSON: key " + quoteName(name) + " occurs twice in one object");
    return false;
  }
  bool parse_error(size_t position, const std::string &, const nlohmann::detail::exception &) override {
    status = Status(StatusCode::invalidArgument, "not valid JSON at byte " + std::to_string(position));
    return false;
  }

private:
  bool enter() {
    keys.emplace_back();
    if (keys.size() <= maxDepth) return true;
    status = Status(StatusCode::invalidArgument, "JSON is nested deeper than " + std::to_string(maxDepth) + " levels");
    return false;
  }
  bool leave() {
    keys.pop_back();
    return true;
  }
  unsigned maxDepth;
  std::vector<std::set<std::string>> keys;
};

} // namespace

Result<json> parseJson(std::string_view text, const JsonLimits &limits) {
  if (text.size() > limits.maxBytes)
    return makeError(StatusCode::invalidArgument, "expected at most %zu bytes of JSON, found %zu", limits.maxBytes,
                     text.size());
  Checker checker(limits.maxDepth);
  if (!json::sax_parse(text, &checker))
    return checker.status.ok() ? Status(StatusCode::invalidArgument, "not valid JSON") : checker.status;
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) return Status(StatusCode::invalidArgument, "not valid JSON");
  return value;
}

} // namespace lathe
