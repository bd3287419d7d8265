//===- Writer.h - writes an artifact, whole or not at all ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "lathe/artifact/Hash.h"
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe::artifact {

/// Streams an artifact to a file without a name (or, where the file system has none, with a
/// temporary one) in the target's directory; finish() gives it its name in one rename. Until then, and when
/// the process is killed, nothing appears under the final name and an older file there stays.
/// Move-only, one thread.
///
///   auto writer = ArtifactWriter::create("model.lathe");
///   writer->addSection(SectionKind::program, Variant::none, encodeProgram(p));
///   writer->beginWeights();
///   writer->append(tile) ... writer->pad(64)
///   writer->finish();
class ArtifactWriter {
public:
  static Result<ArtifactWriter> create(const std::string &path);
  ArtifactWriter(ArtifactWriter &&other) noexcept;
  ArtifactWriter &operator=(ArtifactWriter &&other) noexcept;
  ~ArtifactWriter(); ///< drops everything unless finish() succeeded

  /// Writes a whole section; not after beginWeights(). Each (kind, variant) once.
  Status addSection(SectionKind kind, Variant variant, std::span<const uint8_t> bytes);
  Status addSection(SectionKind kind, const std::string &text) {
    return addSection(kind, Variant::none, {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  }

  /// Starts WEIGHTS, the last section.
  Status beginWeights();
  /// Adds bytes to WEIGHTS. Errors: resourceExhausted when the disk is full.
  Status append(std::span<const uint8_t> bytes);
  /// Adds zeros until weightBytes() is a multiple of |alignment|.
  Status pad(uint64_t alignment);
  /// Bytes of WEIGHTS so far: the offset of what is appended next.
  uint64_t weightBytes() const { return weightsBegun ? position - sections.back().offset : 0; }
  /// Bytes of the file so far.
  uint64_t fileBytes() const { return position; }

  /// Writes the header, syncs and renames into place. Nothing may be called after it.
  Status finish();

private:
  ArtifactWriter() = default;
  Status write(std::span<const uint8_t> bytes);
  Status flush();
  Status alignTo(uint64_t alignment);
  Status fail(const char *what);
  void discard();

  std::string path, directory, temporary; ///< |temporary| is empty while the file has no name
  int fd = -1;
  uint64_t position = 0;
  bool weightsBegun = false;
  std::vector<Section> sections;
  std::vector<uint8_t> buffer;
  Hasher hasher;
};

} // namespace lathe::artifact
