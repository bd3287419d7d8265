//===- Template.cpp - chat templates ----------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Template.h"
#include "Parser.h"
#include "Renderer.h"

namespace lathe {

/// Above what any real template needs (the largest known has 17 KB).
static constexpr size_t maxSourceBytes = 1 << 20;

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > maxSourceBytes)
    return makeError(StatusCode::resourceExhausted, "template of %zu bytes, at most %zu are allowed", source.size(),
                     maxSourceBytes);
  if (!jinja::isValidUtf8(source)) return Status(StatusCode::invalidArgument, "template is not UTF-8");
  auto program = std::make_shared<jinja::Program>();
  LATHE_RETURN_IF_ERROR(jinja::parseProgram(source, *program));
  LATHE_RETURN_IF_ERROR(jinja::resolveProgram(*program));
  return Template(std::move(program));
}

Result<std::string> Template::render(const nlohmann::ordered_json &context, const RenderOptions &options) const {
  jinja::Renderer renderer(options);
  return renderer.run(*program, context);
}

} // namespace lathe
