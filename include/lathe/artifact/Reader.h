//===- Reader.h - the sections of an artifact file ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Finds and checks sections; enters no code. What runs an artifact is runtime/artifact.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "lathe/base/MappedFile.h"
#include "lathe/base/Status.h"
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lathe::artifact {

const char *toString(SectionKind kind);
const char *toString(Variant variant);

/// The sections of an artifact that lies in memory.
class ArtifactView {
public:
  /// Checks magic, version, sizes, the section table and its hash, and the hash of every section
  /// except WEIGHTS (|checkHashes| off: for fuzzing only). Errors: invalidArgument (not an artifact),
  /// failedPrecondition (another format version), dataLoss (damaged, byte offsets named).
  static Result<ArtifactView> parse(std::span<const uint8_t> file, bool checkHashes = true);

  /// The section's bytes; nullopt when there is none.
  std::optional<std::span<const uint8_t>> find(SectionKind kind, Variant variant = Variant::none) const;
  /// The same as text, empty when there is none.
  std::string_view text(SectionKind kind) const;
  /// WEIGHTS; empty when there is none.
  std::span<const uint8_t> weights() const { return find(SectionKind::weights).value_or(std::span<const uint8_t>()); }
  std::span<const Section> sections() const { return table; }
  std::span<const uint8_t> file() const { return all; }
  /// Reads all of WEIGHTS and compares its hash.
  Status verifyWeights() const;
  /// A name for the artifact's content: the hash of its section table.
  Hash128 contentHash() const { return tableHash; }

private:
  std::span<const uint8_t> all;
  std::vector<Section> table;
  Hash128 tableHash{};
};

} // namespace lathe::artifact
