//===- Fields.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Fields.h"
#include <cmath>

namespace lathe::server {

std::string shown(const Json &value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t most = 60;
  if (text.size() <= most) return text;
  size_t cut = most;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80)
    --cut;
  return text.substr(0, cut) + "...";
}

const Json *Fields::find(const char *name) {
  known.insert(name);
  auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::boolean(const char *name, bool fallback) {
  const Json *value = find(name);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "expected true or false, found " + shown(*value));
  return fallback;
}

std::optional<int64_t> Fields::integer(const char *name, int64_t low, int64_t high) {
  const Json *value = find(name);
  if (!value) return std::nullopt;
  std::optional<int64_t> result;
  if (value->is_number_unsigned()) {
    if (value->get<uint64_t>() <= INT64_MAX) result = value->get<int64_t>();
  } else if (value->is_number_integer()) {
    result = value->get<int64_t>();
  } else if (value->is_number_float()) {
    double real = value->get<double>();
    if (std::floor(real) == real && std::fabs(real) < 9e15) result = static_cast<int64_t>(real);
  }
  if (!result || *result < low || *result > high) {
    fail(name, "expected a whole number in " + std::to_string(low) + ".." + std::to_string(high) + ", found " +
                   shown(*value));
    return std::nullopt;
  }
  return result;
}

std::optional<double> Fields::number(const char *name, double low, double high) {
  const Json *value = find(name);
  if (!value) return std::nullopt;
  double real = value->is_number() ? value->get<double>() : std::nan("");
  if (real >= low && real <= high) return real;
  char range[64];
  std::snprintf(range, sizeof range, "expected a number in %g..%g, found ", low, high);
  fail(name, range + shown(*value));
  return std::nullopt;
}

std::optional<std::string> Fields::text(const char *name, size_t maxBytes) {
  const Json *value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) {
    fail(name, "expected a string, found " + shown(*value));
    return std::nullopt;
  }
  const auto &string = value->get_ref<const std::string &>();
  if (string.size() > maxBytes) {
    fail(name, "expected at most " + std::to_string(maxBytes) + " bytes, found " + std::to_string(string.size()));
    return std::nullopt;
  }
  return string;
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (auto &[name, value] : object.items())
    if (!known.count(name)) names.push_back(name);
  return names;
}

bool readIds(Fields &fields, const std::string &name, const Json &list, uint32_t vocabulary, size_t most,
             std::vector<int32_t> &ids) {
  if (!list.is_array() || list.size() > most) {
    fields.fail(name, "expected a list of at most " + std::to_string(most) + " token ids, found " +
                          (list.is_array() ? std::to_string(list.size()) : shown(list)));
    return false;
  }
  ids.reserve(list.size());
  for (const Json &id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary) {
      fields.fail(name, "expected token ids in 0.." + std::to_string(vocabulary - 1) + ", found " + shown(id));
      return false;
    }
    ids.push_back(id.get<int32_t>());
  }
  return true;
}

std::optional<ApiError> parseBody(std::string_view text, uint32_t maxDepth, Json &body) {
  auto bad = [](std::string message) {
    ApiError e;
    e.message = std::move(message);
    e.code = "invalid_json";
    return e;
  };
  // Depth is counted before parsing: what is deep is costly to walk and to free.
  uint32_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted && c == '\\') ++i;
    else if (c == '"') quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{') && ++depth > maxDepth)
      return bad("the body: expected at most " + std::to_string(maxDepth) + " levels of JSON, found more at byte " +
                 std::to_string(i));
    else if (!quoted && (c == ']' || c == '}') && depth) --depth;
  }
  struct Place : nlohmann::json_sax<Json> { // only to find where it went wrong
    size_t at = 0;
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t &) override { return true; }
    bool string(string_t &) override { return true; }
    bool binary(binary_t &) override { return true; }
    bool start_object(size_t) override { return true; }
    bool key(string_t &) override { return true; }
    bool end_object() override { return true; }
    bool start_array(size_t) override { return true; }
    bool end_array() override { return true; }
    bool parse_error(size_t position, const std::string &, const nlohmann::detail::exception &) override {
      at = position;
      return false;
    }
  };
  body = Json::parse(text, nullptr, false);
  if (body.is_discarded()) {
    Place place;
    Json::sax_parse(text, &place);
    return bad("the body: expected JSON in UTF-8, found an error at byte " + std::to_string(place.at));
  }
  if (!body.is_object()) return bad("the body: expected a JSON object, found " + shown(body));
  return std::nullopt;
}

} // namespace lathe::server
