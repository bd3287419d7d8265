// libFuzzer target: any bytes as a safetensors file.
#include "lathe/import/Safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::span<const uint8_t> bytes(data, size);
  auto header = lathe::safetensors::parseHeader(bytes);
  if (!header.ok()) return 0;
  uint64_t sum = 0;
  for (const auto &info : *header)
    for (uint8_t byte : bytes.subspan(info.offset, info.bytes))
      sum += byte;
  volatile uint64_t keep = sum;
  (void)keep;
  return 0;
}
