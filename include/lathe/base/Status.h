//===- Status.h - errors as values --------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The error type of everything that is not MLIR: file readers, artifact, runtime. No exceptions,
// no asserts on anything a user's file or request can reach.
//
// Messages start in lower case, end without a period, and say what was expected, what was found
// and where: "tensor 'blk.3.attn_q.weight': expected 331776 bytes at offset 1184, file ends at 900".
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdarg>
#include <cstdio>
#include <string>
#include <utility>
#include <variant>

namespace lathe {

enum class StatusCode {
  ok = 0,
  invalidArgument,    ///< the caller's request or file is wrong
  notFound,           ///< a named thing does not exist
  unsupported,        ///< valid, but Lathe cannot do it; the message lists what it can
  resourceExhausted,  ///< memory, KV blocks or a stated limit
  dataLoss,           ///< a file is damaged or changed while in use
  failedPrecondition, ///< wrong state or wrong machine (CPU feature, format version)
  cancelled,
  internal, ///< a bug of Lathe's own
};

/// Success, or a code with a message. Cheap to move.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(StatusCode code, std::string message) : errorCode(code), text(std::move(message)) {}
  bool ok() const { return errorCode == StatusCode::ok; }
  explicit operator bool() const = delete; // say ok()
  StatusCode code() const { return errorCode; }
  const std::string &message() const { return text; }
  /// Prepends "|where|: ", for callers that know the file or the field.
  Status at(const std::string &where) && {
    if (!ok()) text = where + ": " + text;
    return std::move(*this);
  }

private:
  StatusCode errorCode = StatusCode::ok;
  std::string text;
};

/// printf-style construction; `%s` takes C strings.
[[gnu::format(printf, 2, 3)]] inline Status makeError(StatusCode code, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(n < 0 ? 0 : static_cast<size_t>(n), '\0');
  if (n > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return Status(code, std::move(text));
}

/// A value or an error.
template <typename T>
class [[nodiscard]] Result {
public:
  Result(T value) : state(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state(std::in_place_index<1>, std::move(status)) {}
  bool ok() const { return state.index() == 0; }
  /// Only when ok().
  T &operator*() & { return std::get<0>(state); }
  const T &operator*() const & { return std::get<0>(state); }
  T &&operator*() && { return std::get<0>(std::move(state)); }
  T *operator->() { return &std::get<0>(state); }
  const T *operator->() const { return &std::get<0>(state); }
  /// The error; an ok Status when there is a value.
  Status status() const { return ok() ? Status() : std::get<1>(state); }

private:
  std::variant<T, Status> state;
};

} // namespace lathe

#define LATHE_CONCAT_(a, b) a##b
#define LATHE_CONCAT(a, b) LATHE_CONCAT_(a, b)
/// Returns the error of |expr| (a Status) to the caller.
#define LATHE_RETURN_IF_ERROR(expr)                                                                                    \
  do {                                                                                                                 \
    if (::lathe::Status lathe_status_ = (expr); !lathe_status_.ok()) return lathe_status_;                             \
  } while (0)
/// |decl| = value of |expr| (a Result), or returns its error to the caller.
#define LATHE_ASSIGN_OR_RETURN(decl, expr)                                                                             \
  auto LATHE_CONCAT(lathe_result_, __LINE__) = (expr);                                                                 \
  if (!LATHE_CONCAT(lathe_result_, __LINE__).ok()) return LATHE_CONCAT(lathe_result_, __LINE__).status();              \
  decl = *std::move(LATHE_CONCAT(lathe_result_, __LINE__))
