//===- BoostErrors.cpp - what Boost would throw ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Exceptions are off, and every call takes an error code. What remains are failures of the system to give an event loop
// or a thread at start: nothing can be served then.
//===----------------------------------------------------------------------===//
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace boost {

struct source_location;

[[noreturn]] void throw_exception(const std::exception &error) {
  std::fprintf(stderr, "lathe: error: %s\n", error.what());
  std::abort();
}
[[noreturn]] void throw_exception(const std::exception &error, const source_location &) { throw_exception(error); }

} // namespace boost
