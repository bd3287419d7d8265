//===- Access.h - which hosts and sites may call -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lathe::server {

/// True for 127.0.0.0/8, ::1 and "localhost".
bool isLoopback(std::string_view host);

/// Whether a Host header may pass: an address, localhost, this machine's |hostname|, or a name of |allowed|; a port is
/// ignored. A web page that makes its own name point here (DNS rebinding) comes with that name, never with an address.
bool hostAllowed(std::string_view header, std::string_view hostname, const std::vector<std::string> &allowed);

/// Whether an Origin header may pass: the site that |host| names, or one of |allowed|. An empty header passes: no browser.
bool originAllowed(std::string_view origin, std::string_view host, const std::vector<std::string> &allowed);

/// "%2F" to "/"; what is no escape stays.
std::string percentDecoded(std::string_view text);

} // namespace lathe::server
