//===- Types.cpp - GGUF value and tensor types ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Types.h"

namespace lathe::gguf {
namespace {

const TensorType supported[] = {{0, "F32", 1, 4},       {1, "F16", 1, 2},       {30, "BF16", 1, 2},
                                {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},
                                {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},
                                {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},
                                {14, "Q6_K", 256, 210}, {20, "IQ4_NL", 32, 18}};

// Types that exist but are not read, so that an error can name them.
const struct {
  uint32_t id;
  const char *name;
} unsupported[] = {{9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
                   {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},
                   {25, "I16"},   {26, "I32"},   {27, "I64"},     {28, "F64"},    {29, "IQ1_M"},
                   {34, "TQ1_0"}, {35, "TQ2_0"}, {39, "MXFP4"},   {40, "NVFP4"}};

} // namespace

const TensorType *findTensorType(uint32_t id) {
  for (const TensorType &type : supported)
    if (type.id == id) return &type;
  return nullptr;
}

std::string describeTensorType(uint32_t id) {
  for (const auto &type : unsupported)
    if (type.id == id) return type.name;
  return "number " + std::to_string(id);
}

std::string supportedTensorTypes() {
  std::string list;
  for (const TensorType &type : supported)
    list += (list.empty() ? "" : ", ") + std::string(type.name);
  return list;
}

const char *valueTypeName(ValueType type) {
  switch (type) {
  case ValueType::uint8:
    return "uint8";
  case ValueType::int8:
    return "int8";
  case ValueType::uint16:
    return "uint16";
  case ValueType::int16:
    return "int16";
  case ValueType::uint32:
    return "uint32";
  case ValueType::int32:
    return "int32";
  case ValueType::float32:
    return "float32";
  case ValueType::boolean:
    return "bool";
  case ValueType::string:
    return "string";
  case ValueType::array:
    return "array";
  case ValueType::uint64:
    return "uint64";
  case ValueType::int64:
    return "int64";
  case ValueType::float64:
    return "float64";
  }
  return "unknown";
}

uint64_t valueTypeBytes(ValueType type) {
  switch (type) {
  case ValueType::uint8:
  case ValueType::int8:
  case ValueType::boolean:
    return 1;
  case ValueType::uint16:
  case ValueType::int16:
    return 2;
  case ValueType::uint32:
  case ValueType::int32:
  case ValueType::float32:
    return 4;
  case ValueType::uint64:
  case ValueType::int64:
  case ValueType::float64:
    return 8;
  case ValueType::string:
  case ValueType::array:
    return 0;
  }
  return 0;
}

} // namespace lathe::gguf
