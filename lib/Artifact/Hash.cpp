//===- Hash.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/Hash.h"
#include <cstdio>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe::artifact {

struct Hasher::State {
  XXH3_state_t value;
};

static Hash128 convert(XXH128_hash_t hash) { return {hash.low64, hash.high64}; }

Hash128 hashBytes(std::span<const uint8_t> bytes) { return convert(XXH3_128bits(bytes.data(), bytes.size())); }

std::string toHex(const Hash128 &hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text;
}

Hasher::Hasher() : state(std::make_unique<State>()) { XXH3_128bits_reset(&state->value); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher &&) noexcept = default;
Hasher &Hasher::operator=(Hasher &&) noexcept = default;
void Hasher::update(std::span<const uint8_t> bytes) { XXH3_128bits_update(&state->value, bytes.data(), bytes.size()); }
Hash128 Hasher::digest() const { return convert(XXH3_128bits_digest(&state->value)); }

} // namespace lathe::artifact
