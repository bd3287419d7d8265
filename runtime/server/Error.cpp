//===- Error.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Error.h"
#include <nlohmann/json.hpp>

namespace lathe::server {
using Json = nlohmann::ordered_json;

std::string errorBody(const ApiError &e) {
  auto orNull = [](const std::string &text) { return text.empty() ? Json() : Json(text); };
  Json body = {{"error", {{"message", e.message}, {"type", e.type}, {"param", orNull(e.param)}, {"code", orNull(e.code)}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiError fromStatus(const Status &status, double retryAfter) {
  ApiError e;
  e.message = status.message();
  switch (status.code()) {
  case StatusCode::invalidArgument:
  case StatusCode::unsupported:
  case StatusCode::notFound: { // "logit_bias: expected ..." names the field
    std::string field = e.message.substr(0, e.message.find(':'));
    if (field.size() < e.message.size() && field.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos)
      e.param = field;
    e.code = "invalid_value";
    break;
  }
  case StatusCode::resourceExhausted:
    e.status = 429, e.type = "rate_limit_error", e.code = "overloaded", e.retryAfter = retryAfter;
    break;
  case StatusCode::failedPrecondition:
    return shuttingDown(retryAfter);
  case StatusCode::ok:
  case StatusCode::dataLoss:
  case StatusCode::cancelled:
  case StatusCode::internal:
    e.status = 500, e.type = "server_error", e.code = "internal_error";
    break;
  }
  return e;
}

ApiError badField(std::string field, std::string message) {
  ApiError e;
  e.message = field + ": " + message;
  e.param = std::move(field);
  e.code = "invalid_value";
  return e;
}

ApiError shuttingDown(double retryAfter) {
  ApiError e;
  e.status = 503, e.type = "server_error", e.code = "shutting_down", e.retryAfter = retryAfter;
  e.message = "the server is shutting down and takes no new requests";
  return e;
}

} // namespace lathe::server
