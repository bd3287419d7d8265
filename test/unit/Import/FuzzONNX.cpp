// libFuzzer target: any bytes as an ONNX model. Seeds: the files below test/fixtures/onnx.
#include "lathe/import/ONNX.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto model = lathe::onnxfile::parse({data, size}, "model.onnx", "/nonexistent");
  if (!model.ok()) return 0;
  uint64_t sum = 0;
  for (const auto &tensor : model->graph.initializers)
    if (!tensor.path.empty())
      for (uint64_t i = 0; i < tensor.bytes; ++i) sum += data[tensor.offset + i];
  volatile uint64_t keep = sum;
  (void)keep;
  return 0;
}
