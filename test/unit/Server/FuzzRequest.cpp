//===- FuzzRequest.cpp - bodies nobody vouches for ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include "runtime/server/Request.h"
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace lathe;
  using namespace lathe::server;
  static const ServedModel model = test::toyModel(nullptr);
  if (!size) return 0;
  auto endpoint = static_cast<Endpoint>(data[0] % 5);
  std::string_view text(reinterpret_cast<const char *>(data) + 1, size - 1);
  Json body;
  if (parseBody(text, 64, body)) return 0;
  std::optional<std::string> name;
  (void)readModelName(body, name);
  ApiRequest request;
  if (auto error = parseRequest(endpoint, body, model, ApiLimits(), request)) {
    // Whatever is wrong, the message is one that can be sent.
    if (!Json::accept(errorBody(*error))) std::abort();
    return 0;
  }
  if (endpoint == Endpoint::tokenize || endpoint == Endpoint::detokenize) return 0;
  std::vector<runtime::Request> prepared;
  if (prepare(request, model, prepared)) return 0;
  // What passes is what an engine may be given.
  for (const runtime::Request &r : prepared) {
    if (r.prompt.empty() || r.prompt.size() > model.contextTokens) std::abort();
    if (!r.sampling.validate(static_cast<int32_t>(model.vocabulary)).ok()) std::abort();
    for (int32_t token : r.prompt)
      if (token < 0 || token >= static_cast<int32_t>(model.vocabulary)) std::abort();
  }
  return 0;
}
