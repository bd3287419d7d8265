//===- TemplateFuzzer.cpp - any bytes as a template -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The input is the template; the context is fixed. Limits are low, so that slow inputs stand out.
// Words: test/fixtures/template/jinja.dict
//===----------------------------------------------------------------------===//
#include "template/Template.h"

using namespace lathe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "user", "content": "Grüße 🙂"}, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}],
    "tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}],
    "n": 7, "f": 2.5, "s": "hello World", "d": {"b": 1, "A": 2}, "l": [3, 1, 2], "none_value": null,
    "add_generation_prompt": true, "bos_token": "<s>"})");
  auto parsed = Template::parse(std::string_view(reinterpret_cast<const char *>(data), size));
  if (!parsed.ok()) return 0;
  RenderOptions options;
  options.maxSteps = 20000;
  options.maxOutputBytes = 1 << 20;
  options.maxLiveBytes = 16 << 20;
  (void)parsed->render(context, options);
  return 0;
}
