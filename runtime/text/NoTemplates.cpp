//===- NoTemplates.cpp - stands in while runtime/template is not there --===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/template/Template.h"

namespace lathe {
namespace jinja {
struct Program {};
} // namespace jinja

CivilTime CivilTime::now() { return {}; }
Result<Template> Template::parse(std::string_view) { return Template(std::make_shared<jinja::Program>()); }
Result<std::string> Template::render(const nlohmann::ordered_json &, const RenderOptions &) const {
  return Status(StatusCode::unsupported, "chat templates are not built in yet: give a plain prompt");
}

} // namespace lathe
