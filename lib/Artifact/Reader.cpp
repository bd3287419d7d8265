//===- Reader.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/Reader.h"
#include "lathe/artifact/Hash.h"
#include <cinttypes>
#include <cstring>

namespace lathe::artifact {

const char *toString(SectionKind kind) {
  switch (kind) {
  case SectionKind::metadata: return "metadata";
  case SectionKind::program: return "program";
  case SectionKind::code: return "code";
  case SectionKind::tokenizer: return "tokenizer";
  case SectionKind::chatTemplate: return "chat template";
  case SectionKind::generation: return "generation";
  case SectionKind::weights: return "weights";
  case SectionKind::ptx: return "ptx";
  case SectionKind::cubin: return "cubin";
  case SectionKind::graph: return "graph";
  }
  return "unknown";
}

const char *toString(Variant variant) {
  switch (variant) {
  case Variant::none: return "none";
  case Variant::avx2: return "avx2";
  case Variant::avx512vnni: return "avx512vnni";
  case Variant::avx512bf16: return "avx512bf16";
  case Variant::amx: return "amx";
  case Variant::sm_80: return "sm_80";
  case Variant::sm_89: return "sm_89";
  case Variant::sm_90a: return "sm_90a";
  case Variant::sm_100a: return "sm_100a";
  case Variant::sm_120a: return "sm_120a";
  }
  return "unknown";
}

namespace {

Status checkSection(const Section &s, unsigned index, uint64_t fileBytes, uint64_t previousEnd, bool last) {
  auto damaged = [&](const char *what) {
    return makeError(StatusCode::dataLoss, "section %u (kind %u, variant %u): %s", index, s.kind, s.variant, what);
  };
  if (s.kind < static_cast<uint32_t>(SectionKind::metadata) || s.kind > static_cast<uint32_t>(SectionKind::graph))
    return damaged("unknown kind");
  auto kind = static_cast<SectionKind>(s.kind);
  auto variant = static_cast<Variant>(s.variant);
  bool known = variant == Variant::none || std::strcmp(toString(variant), "unknown") != 0, gpu = isGpu(variant);
  bool fits = variant == Variant::none;
  if (kind == SectionKind::code) fits = variant != Variant::none;
  if (kind == SectionKind::ptx || kind == SectionKind::cubin) fits = gpu;
  if (kind == SectionKind::program) fits |= gpu;
  if (!known || !fits) return damaged("unknown variant");
  if (s.offset % sectionAlignment)
    return makeError(StatusCode::dataLoss, "section %u: expected an offset that is a multiple of %u, found %" PRIu64,
                     index, sectionAlignment, s.offset);
  if (s.offset > fileBytes || s.bytes > fileBytes - s.offset)
    return makeError(StatusCode::dataLoss,
                     "section %u: expected %" PRIu64 " bytes at offset %" PRIu64 ", file ends at %" PRIu64, index,
                     s.bytes, s.offset, fileBytes);
  if (s.offset < previousEnd)
    return makeError(StatusCode::dataLoss,
                     "section %u: starts at offset %" PRIu64 ", inside what ends at %" PRIu64, index, s.offset,
                     previousEnd);
  if (s.kind == static_cast<uint32_t>(SectionKind::weights) && !last) return damaged("WEIGHTS is not the last section");
  return Status();
}

Status checkHash(std::span<const uint8_t> file, const Section &s) {
  Hash128 found = hashBytes(file.subspan(s.offset, s.bytes));
  if (found == s.hash) return Status();
  return makeError(StatusCode::dataLoss,
                   "section '%s' (%" PRIu64 " bytes at offset %" PRIu64 "): expected hash %s, found %s; the file is damaged",
                   toString(static_cast<SectionKind>(s.kind)), s.bytes, s.offset, toHex(s.hash).c_str(),
                   toHex(found).c_str());
}

} // namespace

Result<ArtifactView> ArtifactView::parse(std::span<const uint8_t> file, bool checkHashes) {
  Header header;
  size_t prefix = offsetof(Header, sections);
  if (file.size() < sizeof magic || std::memcmp(file.data(), magic, sizeof magic) != 0) {
    bool gguf = file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
    return makeError(StatusCode::invalidArgument, "not a Lathe artifact: expected the file to begin with 'LATHE'%s",
                     gguf ? ", found a GGUF model; compile it with 'lathe compile MODEL -o FILE.lathe'" : "");
  }
  if (file.size() < 12)
    return makeError(StatusCode::dataLoss, "expected a header of %zu bytes, file ends at %zu", sizeof header,
                     file.size());
  std::memcpy(&header, file.data(), 12);
  if (header.version != formatVersion || header.draft != formatDraft)
    return makeError(StatusCode::failedPrecondition,
                     "this runtime reads artifact format %u (draft %u), the file has format %u (draft %u); compile the "
                     "model again with this version of lathe",
                     formatVersion, formatDraft, header.version, header.draft);
  if (file.size() < sizeof header)
    return makeError(StatusCode::dataLoss, "expected a header of %zu bytes, file ends at %zu", sizeof header,
                     file.size());
  std::memcpy(&header, file.data(), sizeof header);
  if (header.sectionCount > maxSections)
    return makeError(StatusCode::dataLoss, "expected at most %u sections, found %u", maxSections, header.sectionCount);
  if (header.fileBytes != file.size())
    return makeError(StatusCode::dataLoss, "expected a file of %" PRIu64 " bytes, found %zu; the file is incomplete",
                     header.fileBytes, file.size());
  if (checkHashes &&
      !(hashBytes(file.subspan(prefix, header.sectionCount * sizeof(Section))) == header.tableHash))
    return makeError(StatusCode::dataLoss, "the hash of the section table does not match; the file is damaged");

  ArtifactView view;
  view.all = file;
  view.tableHash = header.tableHash;
  view.table.assign(header.sections, header.sections + header.sectionCount);
  uint64_t end = sizeof(Header);
  for (unsigned i = 0; i < header.sectionCount; ++i) {
    const Section &s = view.table[i];
    LATHE_RETURN_IF_ERROR(checkSection(s, i, file.size(), end, i + 1 == header.sectionCount));
    for (unsigned j = 0; j < i; ++j)
      if (view.table[j].kind == s.kind && view.table[j].variant == s.variant)
        return makeError(StatusCode::dataLoss, "sections %u and %u are both '%s'", j, i,
                         toString(static_cast<SectionKind>(s.kind)));
    end = s.offset + s.bytes;
    if (checkHashes && s.kind != static_cast<uint32_t>(SectionKind::weights)) LATHE_RETURN_IF_ERROR(checkHash(file, s));
  }
  return view;
}

std::optional<std::span<const uint8_t>> ArtifactView::find(SectionKind kind, Variant variant) const {
  for (const Section &s : table)
    if (s.kind == static_cast<uint32_t>(kind) && s.variant == static_cast<uint32_t>(variant))
      return all.subspan(s.offset, s.bytes);
  return std::nullopt;
}

std::string_view ArtifactView::text(SectionKind kind) const {
  auto bytes = find(kind);
  return bytes ? std::string_view(reinterpret_cast<const char *>(bytes->data()), bytes->size()) : std::string_view();
}

Status ArtifactView::verifyWeights() const {
  for (const Section &s : table)
    if (s.kind == static_cast<uint32_t>(SectionKind::weights)) return checkHash(all, s);
  return Status();
}

} // namespace lathe::artifact
