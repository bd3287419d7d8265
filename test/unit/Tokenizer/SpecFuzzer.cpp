//===- SpecFuzzer.cpp - hostile tokenizer sections ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Decodes, and uses what decodes: a spec that verifies must not be able to hurt the tokenizer.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/Tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace lathe;
  auto spec = TokenizerSpec::decode({data, size});
  if (!spec.ok()) return 0;
  std::string encoded = spec->encode();
  auto again = TokenizerSpec::decode({reinterpret_cast<const uint8_t *>(encoded.data()), encoded.size()});
  if (!again.ok() || again->encode() != encoded) __builtin_trap();
  auto tokenizer = Tokenizer::create(std::move(*spec));
  if (!tokenizer.ok()) return 0;
  std::string text(reinterpret_cast<const char *>(data), size < 200 ? size : 200);
  for (bool special : {false, true}) {
    std::vector<int32_t> ids = tokenizer->encode(text + " ab \xe2\x96\x81 12'll\n", {true, special});
    tokenizer->decode(ids);
    StreamDecoder stream(*tokenizer, special);
    for (int32_t id : ids)
      stream.push(id);
    stream.flush();
  }
  return 0;
}
