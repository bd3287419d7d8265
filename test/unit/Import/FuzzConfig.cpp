// libFuzzer target: any bytes as a config.json.
#include "lathe/import/Json.h"
#include "lathe/import/ModelConfig.h"
#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto json = lathe::parseJson({reinterpret_cast<const char *>(data), size});
  if (!json.ok()) return 0;
  (void)lathe::readModelConfig(*json, {});
  (void)lathe::readModelConfig(*json, {100});
  return 0;
}
