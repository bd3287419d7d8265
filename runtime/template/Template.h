//===- Template.h - chat templates --------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The Jinja2 that real chat templates use, configured as transformers configures it: trim_blocks and
// lstrip_blocks on, loop controls, `{% generation %}`, an immutable sandbox (no method changes a
// list or a dict), `tojson` that does not escape HTML, `raise_exception` and `strftime_now`.
// What is and is not in: docs/chat-templates.md.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lathe {

namespace jinja {
struct Program;
}

/// A moment on the wall clock of some place, the one `strftime_now` formats.
struct CivilTime {
  int year = 1970, month = 1, day = 1; ///< month and day count from 1
  int hour = 0, minute = 0, second = 0;
  int microsecond = 0;
  /// The local time of this machine, now.
  static CivilTime now();
};

struct RenderOptions {
  CivilTime now;
  uint64_t maxSteps = 1000000;             ///< statements, loop rounds, calls, list elements, KiB of text
  size_t maxOutputBytes = 16u << 20;       ///< of the output, and of any one string on the way
  size_t maxLiveBytes = size_t(256) << 20; ///< of all values that exist at one time
  int maxDepth = 100;                      ///< calls within calls, and lists within lists
  int64_t maxRange = 100000;               ///< elements of one range()
};

/// A parsed template. Cheap to copy; immutable, so any number of threads may render it at one time.
class Template {
public:
  /// Parses |source| (UTF-8). invalidArgument with "template line N: ..." for what Jinja2 refuses too,
  /// unsupported for template inheritance and imports (extends, block, include, import).
  static Result<Template> parse(std::string_view source);

  /// Renders with the members of the object |context| as variables. Callers that want what
  /// transformers gives pass `messages`, `tools` and `documents` (null when there are none),
  /// `add_generation_prompt`, `bos_token`, `eos_token` and whatever the request adds.
  ///
  /// Errors: the message that the template gave to raise_exception, as it is (invalidArgument);
  /// otherwise "template line N: ..."; resourceExhausted for an exceeded limit of |options|.
  Result<std::string> render(const nlohmann::ordered_json &context, const RenderOptions &options) const;

private:
  explicit Template(std::shared_ptr<const jinja::Program> program) : program(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program;
};

} // namespace lathe
