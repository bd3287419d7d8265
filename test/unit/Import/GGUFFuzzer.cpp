// libFuzzer target: any bytes as a GGUF file, every getter on every key.
#include "lathe/import/GGUF.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto file = lathe::gguf::File::parse({data, size}, "fuzz");
  if (!file.ok()) return 0;
  for (std::string_view key : file->keys()) {
    (void)file->string(key);
    (void)file->integer(key);
    (void)file->number(key);
    (void)file->boolean(key);
    (void)file->strings(key);
    (void)file->integers(key);
    (void)file->floats(key);
    (void)file->booleans(key);
  }
  uint64_t sum = 0;
  for (const auto &info : file->tensors()) {
    auto bytes = file->tensorBytes(info);
    sum += bytes.front() + bytes.back();
  }
  volatile uint64_t keep = sum;
  (void)keep;
  return 0;
}
