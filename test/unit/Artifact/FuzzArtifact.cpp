//===- FuzzArtifact.cpp - the reader on bytes nobody vouches for --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "SampleProgram.h"
#include "lathe/artifact/GraphSection.h"
#include "lathe/artifact/ProgramCodec.h"
#include "lathe/artifact/Reader.h"
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace lathe;
  using namespace lathe::artifact;
  std::span<const uint8_t> bytes(data, size);
  // The program codec on the input itself, then, as a file, behind a header that is repaired enough
  // for the mutations to get past the magic.
  if (auto program = decodeProgram(bytes); program.ok()) (void)validateProgram(*program, 4096).ok();
  (void)decodeGraphSection(bytes, 4096, 50).ok();
  if (size < sizeof(Header)) return 0;
  std::vector<uint8_t> file(bytes.begin(), bytes.end());
  Header header;
  std::memcpy(&header, file.data(), sizeof header);
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = formatVersion;
  header.draft = formatDraft;
  header.fileBytes = size;
  header.sectionCount %= maxSections + 2;
  for (Section &s : header.sections) s.kind = s.kind % 12, s.offset = s.offset % (size + 1) / sectionAlignment * sectionAlignment;
  std::memcpy(file.data(), &header, sizeof header);
  auto view = ArtifactView::parse(file, /*checkHashes=*/false);
  if (!view.ok()) return 0;
  (void)view->verifyWeights().ok();
  if (auto section = view->find(SectionKind::program))
    if (auto program = decodeProgram(*section); program.ok())
      (void)validateProgram(*program, view->weights().size()).ok();
  return 0;
}
