//===- Filters.h - tables of filters ------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Renderer.h"
#include <span>

namespace lathe::jinja {

struct FilterEntry {
  const char *name;
  bool (*apply)(Renderer &r, const Value &in, Args &args, Value &out);
};

std::span<const FilterEntry> textFilters();     ///< TextFilters.cpp
std::span<const FilterEntry> sequenceFilters(); ///< SequenceFilters.cpp

} // namespace lathe::jinja
