//===- Strftime.h - printing a moment -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Template.h"

namespace lathe::jinja {

/// strftime of the C locale, without a time zone, with Python's %f.
std::string formatTime(const CivilTime &time, std::string_view format);

} // namespace lathe::jinja
