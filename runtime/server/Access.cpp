//===- Access.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Access.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <charconv>

namespace lathe::server {
namespace {

/// A Host header without its port and brackets.
std::string hostName(std::string_view header) {
  if (!header.empty() && header[0] == '[') {
    size_t end = header.find(']');
    return std::string(header.substr(1, end == std::string_view::npos ? end : end - 1));
  }
  std::string name(header.substr(0, header.find(':')));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

bool isAddress(const std::string &name) {
  in6_addr address;
  return inet_pton(AF_INET, name.c_str(), &address) == 1 || inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

} // namespace

bool isLoopback(std::string_view host) {
  std::string name(host);
  in_addr address;
  if (inet_pton(AF_INET, name.c_str(), &address) == 1) return ntohl(address.s_addr) >> 24 == 127;
  return name == "localhost" || name == "::1";
}

bool hostAllowed(std::string_view header, std::string_view hostname, const std::vector<std::string> &allowed) {
  std::string name = hostName(header);
  if (isAddress(name) || name == "localhost" || (!name.empty() && name == hostName(hostname))) return true;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string &one) { return one == "*" || hostName(one) == name; });
}

bool originAllowed(std::string_view origin, std::string_view host, const std::vector<std::string> &allowed) {
  if (origin.empty()) return true;
  if (size_t at = origin.find("://"); at != std::string_view::npos && !host.empty() && origin.substr(at + 3) == host)
    return true;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string &one) { return one == "*" || one == origin; });
}

std::string percentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

} // namespace lathe::server
