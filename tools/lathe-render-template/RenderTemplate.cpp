//===- RenderTemplate.cpp - renders jobs from stdin -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// For tests: reads one JSON object a line, {"template": text, "context": {...}, "now": [year, month,
// day, hour, minute, second]}, and answers with one line, {"text": ...} or {"code": n, "error": ...}.
//===----------------------------------------------------------------------===//
#include "../../runtime/template/Template.h"
#include <cstdio>
#include <iostream>

using namespace lathe;
using Json = nlohmann::ordered_json;

static Json failure(const Status &status) {
  return {{"code", static_cast<int>(status.code())}, {"error", status.message()}};
}

static Json run(const std::string &line) {
  Json job = Json::parse(line, nullptr, false);
  if (!job.is_object() || !job.contains("template") || !job["template"].is_string() || !job.contains("context"))
    return failure(Status(StatusCode::invalidArgument, "expected a JSON object with 'template' and 'context'"));
  auto parsed = Template::parse(job["template"].get_ref<const std::string &>());
  if (!parsed.ok()) return failure(parsed.status());
  RenderOptions options;
  if (auto now = job.find("now"); now != job.end() && now->is_array()) {
    int *fields[] = {&options.now.year, &options.now.month,  &options.now.day,
                     &options.now.hour, &options.now.minute, &options.now.second};
    for (size_t i = 0; i < now->size() && i < std::size(fields); ++i)
      if ((*now)[i].is_number_integer()) *fields[i] = (*now)[i].get<int>();
  }
  auto text = parsed->render(job["context"], options);
  if (!text.ok()) return failure(text.status());
  return {{"text", *text}};
}

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::puts(run(line).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  }
}
