//===- Error.h - errors as a client sees them ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <optional>
#include <string>

namespace lathe::server {

/// An HTTP status and the members of OpenAI's error object. docs/serving.md says what each code means.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param; ///< the field, or empty
  std::string code;  ///< for programs, or empty
  double retryAfter = 0; ///< seconds, for 429 and 503
};

/// {"error": {"message", "type", "param", "code"}}
std::string errorBody(const ApiError &error);

/// An error of the engine. |retryAfter|: for what is full at the moment.
ApiError fromStatus(const Status &status, double retryAfter = 0);
ApiError badField(std::string field, std::string message);
ApiError shuttingDown(double retryAfter);

} // namespace lathe::server
