//===- Json.cpp - JSON in and out -------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include <cmath>

namespace lathe::jinja {

bool Renderer::fromJson(const nlohmann::ordered_json &json, Value &out, int depth) {
  auto wrong = [&](StatusCode code, const std::string &what) {
    if (error.ok()) error = Status(code, "template context: " + what);
    return false;
  };
  using Type = nlohmann::ordered_json::value_t;
  if (depth > options.maxDepth)
    return wrong(StatusCode::resourceExhausted, "nested more than " + std::to_string(options.maxDepth) + " deep");
  switch (json.type()) {
  case Type::null:
    out = Value::none();
    return true;
  case Type::boolean:
    out = Value::boolean(json.get<bool>());
    return true;
  case Type::number_integer:
    out = Value::integer(json.get<int64_t>());
    return true;
  case Type::number_unsigned: {
    uint64_t n = json.get<uint64_t>();
    if (n > INT64_MAX) return wrong(StatusCode::unsupported, "integer " + std::to_string(n) + " does not fit 64 bits");
    out = Value::integer(static_cast<int64_t>(n));
    return true;
  }
  case Type::number_float:
    out = Value::real(json.get<double>());
    return true;
  case Type::string: {
    const std::string &text = json.get_ref<const std::string &>();
    if (!isValidUtf8(text)) return wrong(StatusCode::invalidArgument, "a string is not UTF-8");
    out = Value::string(text);
    break;
  }
  case Type::array: {
    std::vector<Value> items(json.size());
    size_t at = 0;
    for (const auto &element : json)
      if (!fromJson(element, items[at++], depth + 1)) return false;
    out = Value::list(std::move(items));
    break;
  }
  case Type::object: {
    auto dict = std::make_shared<DictObject>();
    for (auto it = json.begin(); it != json.end(); ++it) {
      Value value;
      if (!isValidUtf8(it.key())) return wrong(StatusCode::invalidArgument, "a key is not UTF-8");
      if (!fromJson(it.value(), value, depth + 1)) return false;
      dict->set(Value::string(it.key()), std::move(value));
    }
    out = jinja::makeDict(std::move(dict));
    break;
  }
  default:
    return wrong(StatusCode::invalidArgument, std::string("unexpected ") + json.type_name() + " value");
  }
  if (Object::liveBytes - liveBase > static_cast<int64_t>(options.maxLiveBytes))
    return wrong(StatusCode::resourceExhausted,
                 "values take more than " + std::to_string(options.maxLiveBytes) + " bytes");
  return true;
}

namespace {

/// json.dumps
class JsonWriter {
public:
  JsonWriter(Renderer &r, std::string &out) : renderer(r), out(out) {}
  bool ensureAscii = false, sortKeys = false, pretty = false;
  std::string indent, itemSeparator = ", ", keySeparator = ": ";

  bool write(const Value &v, int level) {
    if (!renderer.tick() || !renderer.checkSize(out.size())) return false;
    switch (v.kind()) {
    case Kind::none:
      out += "null";
      return true;
    case Kind::boolean:
      out += v.asBool() ? "true" : "false";
      return true;
    case Kind::integer:
      out += std::to_string(v.asInt());
      return true;
    case Kind::real:
      out += number(v.asReal());
      return true;
    case Kind::string:
      return string(v.text());
    case Kind::list:
    case Kind::tuple: {
      if (v.items().empty()) {
        out += "[]";
        return true;
      }
      out += '[';
      bool first = true;
      for (const Value &item : v.items()) {
        if (!first) out += itemSeparator;
        first = false;
        newline(level + 1);
        if (!write(item, level + 1)) return false;
      }
      newline(level);
      out += ']';
      return true;
    }
    case Kind::dict:
      return dict(v.as<DictObject>(), level);
    default:
      return renderer.fail("tojson: a %s has no JSON form", typeName(v));
    }
  }

private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return formatReal(d);
  }
  void newline(int level) {
    if (!pretty) return;
    out += '\n';
    for (int i = 0; i < level; ++i)
      out += indent;
  }
  bool dict(DictObject &dict, int level) {
    if (dict.items.empty()) {
      out += "{}";
      return true;
    }
    std::vector<Value> keys, order;
    for (size_t i = 0; i < dict.items.size(); ++i) {
      keys.push_back(dict.items[i].first);
      order.push_back(Value::integer(static_cast<int64_t>(i)));
    }
    if (sortKeys && !renderer.sortBy(order, keys, false)) return false;
    out += '{';
    bool first = true;
    for (const Value &at : order) {
      const auto &[key, value] = dict.items[at.asInt()];
      if (!first) out += itemSeparator;
      first = false;
      newline(level + 1);
      std::string name;
      switch (key.kind()) {
      case Kind::string:
        name = key.text();
        break;
      case Kind::none:
        name = "null";
        break;
      case Kind::boolean:
        name = key.asBool() ? "true" : "false";
        break;
      case Kind::integer:
        name = std::to_string(key.asInt());
        break;
      case Kind::real:
        name = number(key.asReal());
        break;
      default:
        return renderer.fail("tojson: a %s cannot be a key in JSON", typeName(key));
      }
      if (!string(name)) return false;
      out += keySeparator;
      if (!write(value, level + 1)) return false;
    }
    newline(level);
    out += '}';
    return true;
  }
  void unit(char32_t c) {
    static const char hex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4)
      out += hex[c >> shift & 15];
  }
  bool string(const std::string &text) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
      size_t begin = i;
      char32_t c = decodeAt(text, i);
      switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (ensureAscii && c > 0x7e && c < 0x10000))
          unit(c);
        else if (ensureAscii && c >= 0x10000) {
          unit(0xD800 + ((c - 0x10000) >> 10));
          unit(0xDC00 + ((c - 0x10000) & 0x3FF));
        } else {
          out.append(text, begin, i - begin);
        }
      }
    }
    out += '"';
    return renderer.tickBytes(text.size()) && renderer.checkSize(out.size());
  }

  Renderer &renderer;
  std::string &out;
};

} // namespace

bool Renderer::toJson(const Value &v, Args &args, Value &out) {
  std::vector<Value> a;
  std::string text;
  JsonWriter writer(*this, text);
  if (!bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, a)) return false;
  if (!a[0].isMissing() && !truth(a[0], writer.ensureAscii)) return false;
  if (!a[3].isMissing() && !truth(a[3], writer.sortKeys)) return false;
  if (!a[1].isMissing() && !a[1].is(Kind::none)) {
    writer.pretty = true;
    writer.itemSeparator = ",";
    if (a[1].is(Kind::string)) {
      writer.indent = a[1].text();
    } else {
      int64_t width;
      if (!needInt("tojson", a[1], width)) return false;
      if (width > 1000) return exhausted("tojson: an indentation of more than 1000");
      writer.indent.assign(width > 0 ? width : 0, ' ');
    }
  }
  if (!a[2].isMissing() && !a[2].is(Kind::none)) {
    std::vector<Value> pair;
    if (!collect(a[2], pair)) return false;
    if (pair.size() != 2) return fail("tojson: expected 2 separators, found %zu", pair.size());
    if (!needText("tojson", pair[0], writer.itemSeparator) || !needText("tojson", pair[1], writer.keySeparator))
      return false;
  }
  return writer.write(v, 0) && makeString(std::move(text), out);
}

} // namespace lathe::jinja
