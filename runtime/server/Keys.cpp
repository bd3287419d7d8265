//===- Keys.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Keys.h"
#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace lathe::server {
namespace {

constexpr size_t minKeyBytes = 8, maxKeyBytes = 256, maxNameBytes = 64;

bool printable(const std::string &text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

Status readText(const nlohmann::json &line, const char *field, bool required, size_t low, size_t high,
                std::string &value) {
  auto found = line.find(field);
  if (found == line.end() && !required) return Status();
  if (found == line.end() || !found->is_string())
    return makeError(StatusCode::invalidArgument, "expected a string for '%s'", field);
  value = found->get<std::string>();
  if (value.size() < low || value.size() > high || !printable(value)) // the value may be the secret: it is not printed
    return makeError(StatusCode::invalidArgument,
                     "expected %zu..%zu printable ASCII characters without spaces for '%s'", low, high, field);
  return Status();
}

template <typename T>
Status readNumber(const nlohmann::json &line, const char *field, int64_t low, int64_t high, T &value) {
  auto found = line.find(field);
  if (found == line.end()) return Status();
  if (!found->is_number_integer() || found->get<int64_t>() < low || found->get<int64_t>() > high)
    return makeError(StatusCode::invalidArgument, "expected a number in %lld..%lld for '%s', found %s",
                     static_cast<long long>(low), static_cast<long long>(high), field,
                     found->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 40).c_str());
  value = static_cast<T>(found->get<int64_t>());
  return Status();
}

Result<ApiKey> parseLine(std::string_view text) {
  auto line = nlohmann::json::parse(text, nullptr, false);
  if (!line.is_object()) return makeError(StatusCode::invalidArgument, "expected a JSON object with 'name' and 'key'");
  ApiKey key;
  LATHE_RETURN_IF_ERROR(readText(line, "name", true, 1, maxNameBytes, key.name));
  LATHE_RETURN_IF_ERROR(readText(line, "key", true, minKeyBytes, maxKeyBytes, key.key));
  key.tenant = key.name;
  LATHE_RETURN_IF_ERROR(readText(line, "tenant", false, 1, maxNameBytes, key.tenant));
  LATHE_RETURN_IF_ERROR(readNumber(line, "priority", INT32_MIN, INT32_MAX, key.priority));
  LATHE_RETURN_IF_ERROR(readNumber(line, "concurrency", 0, 1 << 20, key.concurrency));
  for (auto &[field, value] : line.items())
    if (field != "name" && field != "key" && field != "tenant" && field != "priority" && field != "concurrency")
      return makeError(StatusCode::invalidArgument,
                       "unknown field '%s', expected name, key, tenant, priority or concurrency",
                       field.substr(0, 40).c_str());
  return key;
}

} // namespace

Result<KeyTable> KeyTable::parse(std::string_view text) {
  KeyTable table;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    std::string where = "line " + std::to_string(number);
    auto key = parseLine(line);
    if (!key.ok()) return key.status().at(where);
    for (const ApiKey &other : table.keys)
      if (other.name == key->name || other.key == key->key)
        return makeError(StatusCode::invalidArgument, "%s: the %s of '%s' is taken by '%s'", where.c_str(),
                         other.name == key->name ? "name" : "key", key->name.c_str(), other.name.c_str());
    table.keys.push_back(*std::move(key));
  }
  if (table.keys.empty()) return makeError(StatusCode::invalidArgument, "expected at least one key, found none");
  return table;
}

Result<KeyTable> KeyTable::load(const std::string &path) {
  std::string where = "key file '" + path + "'";
  struct stat info{};
  std::ifstream file(path, std::ios::binary);
  if (!file || stat(path.c_str(), &info) != 0)
    return Status(StatusCode::notFound, "cannot read it").at(where);
  if (S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXO | S_IWGRP)))
    return Status(StatusCode::failedPrecondition, "others may read or change it; 'chmod 600' it").at(where);
  std::string text(std::istreambuf_iterator<char>(file), {});
  auto table = parse(text);
  if (!table.ok()) return table.status().at(where);
  return table;
}

int KeyTable::find(std::string_view secret) const {
  // Every byte of every key is looked at, so that the time tells nothing about how much of a guess was right.
  unsigned char padded[maxKeyBytes] = {};
  std::copy_n(secret.begin(), std::min(secret.size(), maxKeyBytes), padded);
  int found = -1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string &key = keys[i].key;
    volatile unsigned different = key.size() != secret.size();
    for (size_t at = 0; at < maxKeyBytes; ++at)
      different = different | (padded[at] ^ static_cast<unsigned char>(at < key.size() ? key[at] : 0));
    int mask = -static_cast<int>(different == 0);
    found = (static_cast<int>(i) & mask) | (found & ~mask);
  }
  return found;
}

} // namespace lathe::server
