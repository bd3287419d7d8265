//===- Fields.h - reading the fields of a body ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Request.h"
#include <set>

namespace lathe::server {

/// Takes fields out of one JSON object. The first thing that is wrong is kept as the error; null counts as absent.
class Fields {
public:
  explicit Fields(const Json &object) : object(object) {}

  /// The value, or null when it is absent. The name counts as known from now on.
  const Json *find(const char *name);
  bool boolean(const char *name, bool fallback);
  std::optional<int64_t> integer(const char *name, int64_t low, int64_t high);
  std::optional<double> number(const char *name, double low, double high);
  std::optional<std::string> text(const char *name, size_t maxBytes);

  void fail(const std::string &name, const std::string &message) {
    if (!error) error = badField(name, message);
  }
  bool ok() const { return !error; }
  std::optional<ApiError> takeError() { return std::move(error); }
  /// Names that nobody asked for.
  std::vector<std::string> unknown() const;

private:
  const Json &object;
  std::set<std::string, std::less<>> known;
  std::optional<ApiError> error;
};

/// A value as it is printed in a message: short, and valid UTF-8.
std::string shown(const Json &value);

/// Reads token ids in 0..|vocabulary|-1.
bool readIds(Fields &fields, const std::string &name, const Json &list, uint32_t vocabulary, size_t most,
             std::vector<int32_t> &ids);

/// Fields that clients send though they change nothing: accepted at their neutral values, refused at others.
void checkNeutralFields(Fields &fields, Endpoint endpoint);

/// `messages` and the fields of the template.
void readConversation(Fields &fields, const ServedModel &model, const ApiLimits &limits, ApiRequest &request);

} // namespace lathe::server
