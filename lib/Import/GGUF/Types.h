//===- Types.h - tables shared by the parser and the getters -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/GGUF.h"

namespace lathe::gguf {

/// Name of a type that is not supported, or its number.
std::string describeTensorType(uint32_t id);
/// "F32, F16, ..."
std::string supportedTensorTypes();
/// Size of one value; 0 for strings and arrays.
uint64_t valueTypeBytes(ValueType type);

} // namespace lathe::gguf
