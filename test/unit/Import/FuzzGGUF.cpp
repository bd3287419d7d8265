// libFuzzer target: any bytes as a GGUF file; every getter on every key, then the configuration, the weights' rows and the tokenizer.
#include "../../../runtime/tokenizer/Tokenizer.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/ModelConfig.h"
#include "lathe/import/Tokenizer.h"
#include "lathe/import/WeightMap.h"
#include "lathe/weights/Storage.h"
#include <algorithm>

using namespace lathe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto file = gguf::File::parse({data, size}, "fuzz");
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
  for (const gguf::TensorInfo &info : file->tensors()) {
    auto columns = static_cast<int64_t>(std::min<uint64_t>(info.dims[0], 4096));
    StorageType storage = *storageFromGGUF(info.type->id);
    if (!rowFits(storage, columns)) continue;
    std::vector<float> row(static_cast<size_t>(columns));
    dequantizeRow(storage, file->tensorBytes(info).data(), row);
  }
  auto config = readModelConfig(*file, {});
  if (config.ok()) (void)WeightMap::fromGGUF(*config, *file);
  auto imported = importTokenizer(*file);
  if (!imported.ok()) return 0;
  auto tokenizer = Tokenizer::create(std::move(imported->spec));
  if (tokenizer.ok()) tokenizer->decode(tokenizer->encode("Hello  w\xc3\xb6rld \xe4\xb8\xad 123\n'll \xff", {true, true}));
  return 0;
}
