//===- Fields.h - typed access to a JSON object --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include "lathe/import/Quote.h"
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// Fields of one object. A missing field and null are the same; a field of the wrong type is an error
/// that names it (with |where| in front), what was expected and what was found.
class Fields {
public:
  Fields(const nlohmann::json &object, std::string where) : object(object), where(std::move(where)) {}

  const nlohmann::json *find(const char *name) const {
    auto it = object.find(name);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
  Status wrong(const char *name, const char *expected) const {
    std::string text =
        find(name) ? find(name)->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) : "nothing";
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    return Status(StatusCode::invalidArgument, where + quoteName(name) + ": expected " + expected + ", found " + text);
  }
  Result<std::optional<int64_t>> integer(const char *name) const {
    const nlohmann::json *value = find(name);
    if (!value) return std::optional<int64_t>();
    if (value->is_number_unsigned() && value->get<uint64_t>() <= INT64_MAX)
      return std::optional<int64_t>(static_cast<int64_t>(value->get<uint64_t>()));
    if (value->is_number_integer() && !value->is_number_unsigned())
      return std::optional<int64_t>(value->get<int64_t>());
    return wrong(name, "an integer");
  }
  Result<int64_t> integer(const char *name, std::optional<int64_t> fallback) const {
    LATHE_ASSIGN_OR_RETURN(std::optional<int64_t> value, integer(name));
    if (value) return *value;
    if (!fallback) return Status(StatusCode::notFound, where + quoteName(name) + " is missing");
    return *fallback;
  }
  Result<double> number(const char *name, std::optional<double> fallback) const {
    const nlohmann::json *value = find(name);
    if (!value && fallback) return *fallback;
    if (!value) return Status(StatusCode::notFound, where + quoteName(name) + " is missing");
    if (!value->is_number()) return wrong(name, "a number");
    return value->get<double>();
  }
  Result<bool> boolean(const char *name, bool fallback) const {
    const nlohmann::json *value = find(name);
    if (!value) return fallback;
    if (!value->is_boolean()) return wrong(name, "true or false");
    return value->get<bool>();
  }
  Result<std::string> string(const char *name, std::string fallback) const {
    const nlohmann::json *value = find(name);
    if (!value) return fallback;
    if (!value->is_string()) return wrong(name, "a string");
    return value->get<std::string>();
  }
  Result<std::vector<double>> numbers(const char *name) const {
    std::vector<double> out;
    const nlohmann::json *value = find(name);
    if (!value) return out;
    if (!value->is_array() || value->size() > 65536) return wrong(name, "a list of numbers");
    for (const nlohmann::json &item : *value) {
      if (!item.is_number()) return wrong(name, "a list of numbers");
      out.push_back(item.get<double>());
    }
    return out;
  }

private:
  const nlohmann::json &object;
  std::string where;
};

} // namespace lathe
