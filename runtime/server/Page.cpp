//===- Page.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Page.h"

// LATHE_PAGE_DIR is the folder of the files.
#define EMBED(name, file)                                                                                              \
  __asm__(".section .rodata\n"                                                                                         \
          ".local " #name "Begin\n"                                                                                    \
          ".local " #name "End\n" #name "Begin:\n.incbin \"" LATHE_PAGE_DIR "/" file "\"\n" #name "End:\n.text\n");     \
  extern "C" const char name##Begin[], name##End[];

EMBED(lathePageHtml, "index.html")
EMBED(lathePageScript, "page.js")
EMBED(lathePageStyle, "page.css")

namespace lathe::server {

std::string_view pageHtml() { return {lathePageHtmlBegin, lathePageHtmlEnd}; }
std::string_view pageScript() { return {lathePageScriptBegin, lathePageScriptEnd}; }
std::string_view pageStyle() { return {lathePageStyleBegin, lathePageStyleEnd}; }

} // namespace lathe::server
