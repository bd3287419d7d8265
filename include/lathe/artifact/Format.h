//===- Format.h - the artifact file, format 0 ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Specification: docs/artifact-format.md. Little endian. Header, then sections, each aligned to
// 4096 bytes; WEIGHTS is the last. Table sections are hashed (XXH3-128) and checked at load, WEIGHTS
// by `lathe inspect --verify`.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace lathe::artifact {

inline constexpr char magic[8] = {'L', 'A', 'T', 'H', 'E', '\r', '\n', '\x1a'};
inline constexpr uint16_t formatVersion = 0;
/// Rises with every change of what a section holds while the format is 0: a file of another draft is refused like one of another
/// version. A frozen format has draft 0.
inline constexpr uint16_t formatDraft = 4;
inline constexpr uint32_t sectionAlignment = 4096;
inline constexpr uint32_t maxSections = 64;

enum class SectionKind : uint32_t {
  metadata = 1,   ///< UTF-8 JSON: what `inspect` prints
  program = 2,    ///< ProgramCodec
  code = 3,       ///< ELF shared object; |variant| says for which CPU
  tokenizer = 4,  ///< TokenizerSpec
  chatTemplate = 5, ///< UTF-8 Jinja source
  generation = 6, ///< UTF-8 JSON: defaults for sampling, stop tokens
  weights = 7,
  ptx = 8,   ///< PTX text of a GPU's kernels; |variant| says for which chip
  cubin = 9, ///< the same, assembled
  graph = 10, ///< GraphSection: tensors of a general graph by role
};

/// Code variants: of x86, best last, and NVIDIA chips by their compute capability. A chip has a program of its own.
enum class Variant : uint32_t {
  none = 0, avx2 = 1, avx512vnni = 2, avx512bf16 = 3, amx = 4,
  sm_80 = 80, sm_89 = 89, sm_90a = 90, sm_100a = 100, sm_120a = 120,
};
constexpr bool isGpu(Variant v) { return static_cast<uint32_t>(v) >= 80; }

struct Hash128 {
  uint64_t low, high;
};

struct Section {
  uint32_t kind;    ///< SectionKind; unknown kinds are an error in format 0
  uint32_t variant; ///< Variant, for code and for the programs, PTX and cubins of GPUs
  uint64_t offset;  ///< from the start of the file, multiple of sectionAlignment
  uint64_t bytes;
  Hash128 hash;
};

struct Header {
  char magic[8];
  uint16_t version, draft;
  uint32_t sectionCount;
  uint64_t fileBytes;
  Hash128 tableHash; ///< of sections[0 .. sectionCount)
  Section sections[maxSections];
};
static_assert(sizeof(Section) == 40 && sizeof(Header) == 40 + 40 * maxSections);

} // namespace lathe::artifact
