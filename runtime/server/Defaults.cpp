//===- Defaults.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Defaults.h"
#include <nlohmann/json.hpp>

namespace lathe::server {

Status readDefaults(std::string_view text, ServedModel &model) {
  if (text.empty()) return Status();
  auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return Status(StatusCode::dataLoss, "generation defaults: expected a JSON object");
  auto read = [&](const char *name, double low, double high, auto &to) {
    auto found = config.find(name);
    if (found == config.end() || found->is_null()) return Status();
    double value = found->is_number() ? found->get<double>() : -1e300;
    if (!(value >= low && value <= high))
      return makeError(StatusCode::dataLoss, "generation defaults: expected a number in %g..%g for '%s', found %s", low, high,
                       name, found->dump(-1, ' ', true).substr(0, 40).c_str());
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
    return Status();
  };
  SamplingParams &d = model.defaults;
  LATHE_RETURN_IF_ERROR(read("temperature", 0, 100, d.temperature));
  LATHE_RETURN_IF_ERROR(read("top_k", -1, INT32_MAX, d.topK));
  LATHE_RETURN_IF_ERROR(read("top_p", 1e-6, 1, d.topP));
  LATHE_RETURN_IF_ERROR(read("min_p", 0, 1, d.minP));
  LATHE_RETURN_IF_ERROR(read("repetition_penalty", 0.01, 100, d.repetitionPenalty));
  return read("max_new_tokens", 1, UINT32_MAX, model.defaultMaxTokens);
}

} // namespace lathe::server
