//===- Keys.h - who may use the server -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::server {

struct ApiKey {
  std::string name;          ///< for logs
  std::string key;           ///< the secret, 8..256 printable ASCII characters
  std::string tenant;        ///< fair share and prefix cache; the name when the file gives none
  int32_t priority = 0;      ///< the best (lowest) that its requests may ask for
  uint32_t concurrency = 0;  ///< requests at one time; 0: no bound
};

/// The keys of a server. Immutable.
class KeyTable {
public:
  /// Lines of JSON, one object a key: {"name": "...", "key": "...", "tenant": "...", "priority": 0, "concurrency": 8}.
  /// Empty lines and lines that begin with # are skipped. Errors: invalidArgument naming the line and the field.
  static Result<KeyTable> parse(std::string_view text);
  /// The same from a file. Errors also: notFound, failedPrecondition (others may read or write it).
  static Result<KeyTable> load(const std::string &path);

  bool empty() const { return keys.empty(); }
  const std::vector<ApiKey> &all() const { return keys; }
  /// Index of |secret|, or -1. Takes the same time whatever |secret| is and wherever it stands.
  int find(std::string_view secret) const;

private:
  std::vector<ApiKey> keys;
};

} // namespace lathe::server
