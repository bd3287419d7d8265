//===- Page.h - the built-in page ----------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <string_view>

namespace lathe::server {

// The files of page/, embedded at build.
std::string_view pageHtml();
std::string_view pageScript();
std::string_view pageStyle();

} // namespace lathe::server
