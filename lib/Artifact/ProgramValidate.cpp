//===- ProgramValidate.cpp - what the runtime may rely on ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/Megakernel.h"
#include "lathe/artifact/ProgramCodec.h"
#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <utility>

namespace lathe {
namespace {

// Far above any real model; low enough that no product below overflows 64 bits.
constexpr uint64_t maxRowCount = 1 << 16, maxPositions = 1 << 26, maxArena = uint64_t(1) << 40,
                   maxScratch = uint64_t(1) << 32, maxItems = uint64_t(1) << 20, maxArgs = 1 << 10,
                   maxBlock = uint64_t(1) << 34, maxGroups = 64, maxMegakernelBytes = uint64_t(1) << 28;

template <typename... Args>
Status wrong(const char *format, Args... args) {
  if constexpr (sizeof...(Args) == 0)
    return makeError(StatusCode::dataLoss, "%s", format);
  else
    return makeError(StatusCode::dataLoss, format, args...);
}

Status range(const char *what, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return Status();
  return wrong("program: expected %s in %" PRIu64 "..%" PRIu64 ", found %" PRIu64, what, low, high, value);
}

bool isSymbol(const std::string &name) {
  if (name.empty() || name.size() > 255 || (name[0] >= '0' && name[0] <= '9')) return false;
  for (char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '$'))
      return false;
  return true;
}

/// A float32 [rows][stride] result in the arena.
Status resultBuffer(const char *what, uint64_t offset, uint64_t stride, uint64_t width, uint64_t rows, uint64_t arena) {
  if (stride < width)
    return wrong("program: expected the %s stride to be at least %" PRIu64 ", found %" PRIu64, what, width, stride);
  if (offset % 64 || offset > arena || stride * rows * 4 > arena - offset)
    return wrong("program: %s at offset %" PRIu64 " with %" PRIu64 " bytes does not fit the arena of %" PRIu64 " bytes",
                 what, offset, stride * rows * 4, arena);
  return Status();
}

Status checkArg(const Program &p, size_t index, uint64_t weightBytes) {
  const Arg &arg = p.args[index];
  uint64_t limit = 0;
  const char *where = "";
  switch (arg.kind) {
  case ArgKind::arena: limit = p.arenaBytes; where = "arena"; break;
  case ArgKind::weight: limit = weightBytes; where = "weights"; break;
  case ArgKind::kv:
    if (arg.group >= p.kvGroups.size())
      return wrong("program: argument %zu: expected a KV group below %zu, found %u", index, p.kvGroups.size(), arg.group);
    limit = p.kvGroups[arg.group].blockBytes;
    where = "KV block";
    break;
  }
  if (arg.offset >= limit)
    return wrong("program: argument %zu: offset %" PRIu64 " is outside the %s of %" PRIu64 " bytes", index, arg.offset,
                 where, limit);
  return Status();
}

Status checkLaunch(const Program &p, size_t index) {
  const Launch &l = p.launches[index];
  if (l.kernel >= p.kernels.size())
    return wrong("program: launch %zu: expected a kernel below %zu, found %u", index, p.kernels.size(), l.kernel);
  if (l.name >= p.names.size())
    return wrong("program: launch %zu: expected a name below %zu, found %u", index, p.names.size(), l.name);
  if (l.argCount > maxArgs || l.firstArg > p.args.size() || l.argCount > p.args.size() - l.firstArg)
    return wrong("program: launch %zu: arguments %u..+%u are outside the list of %zu", index, l.firstArg, l.argCount,
                 p.args.size());
  bool divides = l.itemKind == ItemKind::perRowBlock || l.itemKind == ItemKind::perRowChunk;
  if (divides && (l.itemRows == 0 || l.itemRows > maxPositions))
    return wrong("program: launch %zu: expected itemRows in 1..%" PRIu64 ", found %u", index, maxPositions, l.itemRows);
  if (l.items > maxItems)
    return wrong("program: launch %zu: expected at most %" PRIu64 " items, found %" PRIu64, index, maxItems, l.items);
  return Status();
}

/// A group of the draft program is used by the entry "draft" alone, which uses such groups or the step's, not both: the runtime gives
/// each entry the block tables of one kind. Heads over rows of the step use none: the runtime gives them no blocks; what goes on from its own rows uses its own.
Status checkDraftGroups(const Program &p) {
  if (!p.kvGroups.empty() && p.kvGroups[0].draft) return wrong("program: expected a KV group of the step first, found one of the draft program");
  bool used[2] = {};
  for (const Entry &entry : p.entries)
    for (const Bucket &bucket : entry.buckets)
      for (uint32_t i = bucket.firstLaunch; i < bucket.firstLaunch + bucket.launchCount; ++i)
        for (uint32_t a = p.launches[i].firstArg; a < p.launches[i].firstArg + p.launches[i].argCount; ++a) {
          const Arg &arg = p.args[a];
          if (arg.kind != ArgKind::kv) continue;
          if (p.draftInputStride && !goesOnFromItself(p.draftMethod) && entry.name.starts_with("draft"))
            return wrong("program: entry '%s': launch %u uses KV group %u, expected none of a draft that takes rows", entry.name.c_str(), i, arg.group);
          uint32_t draft = p.kvGroups[arg.group].draft;
          if (entry.name == "draft")
            used[draft] = true;
          else if (draft)
            return wrong("program: entry '%s': launch %u uses KV group %u, which is the draft program's", entry.name.c_str(), i, arg.group);
        }
  if (used[0] && goesOnFromItself(p.draftMethod)) return wrong("program: entry 'draft': expected KV groups of its own of a draft that goes on from its own rows, found the step's");
  if (used[0] && used[1]) return wrong("program: entry 'draft': expected KV groups of its own or those of the step, found both");
  return Status();
}

Status checkEntry(const Program &p, const Entry &entry, const char *rowsName, uint32_t rows) {
  if (entry.buckets.empty()) return wrong("program: entry '%s' has no bucket", entry.name.c_str());
  uint32_t previous = 0;
  for (const Bucket &bucket : entry.buckets) {
    if (bucket.maxRows <= previous)
      return wrong("program: entry '%s': expected buckets in ascending order, found %u after %u", entry.name.c_str(),
                   bucket.maxRows, previous);
    if (bucket.firstLaunch > p.launches.size() || bucket.launchCount > p.launches.size() - bucket.firstLaunch)
      return wrong("program: entry '%s': launches %u..+%u are outside the list of %zu", entry.name.c_str(),
                   bucket.firstLaunch, bucket.launchCount, p.launches.size());
    previous = bucket.maxRows;
  }
  if (previous < rows)
    return wrong("program: entry '%s': the widest bucket has %u rows, expected %s = %u", entry.name.c_str(), previous,
                 rowsName, rows);
  return Status();
}

/// Buckets may share launches, so a small file could ask for any amount of tables, which the runtime writes for each megakernel: they are bounded together.
Status checkMegakernels(const Program &p) {
  const Megakernel *before = nullptr;
  uint64_t tableBytes = 0;
  std::vector<size_t> bodyOf(p.kernels.size(), p.megakernels.size()); // the last megakernel that has the kernel as a body
  for (size_t i = 0; i < p.megakernels.size(); ++i) {
    const Megakernel &m = p.megakernels[i];
    if (p.blocks.empty()) return wrong("program: expected megakernels in a GPU's program only, found %zu in another", p.megakernels.size());
    if (m.kernel >= p.kernels.size()) return wrong("program: megakernel %zu: expected a kernel below %zu, found %u", i, p.kernels.size(), m.kernel);
    if (m.entry >= p.entries.size() || m.bucket >= p.entries[m.entry].buckets.size())
      return wrong("program: megakernel %zu: no bucket %u of entry %u", i, m.bucket, m.entry);
    if (before && std::pair(before->entry, before->bucket) >= std::pair(m.entry, m.bucket))
      return wrong("program: megakernel %zu: expected ascending entries and buckets, found %u, %u after %u, %u", i, m.entry, m.bucket, before->entry, before->bucket);
    before = &m;
    LATHE_RETURN_IF_ERROR(range("arguments of a megakernel's launch", m.maxArgs, 0, maxArgs));
    for (uint32_t body : m.bodies) {
      if (body >= p.kernels.size()) return wrong("program: megakernel %zu: expected bodies of kernels below %zu, found %u", i, p.kernels.size(), body);
      if (std::exchange(bodyOf[body], i) == i) return wrong("program: megakernel %zu: expected every body once, found kernel %u twice", i, body);
    }
    const Bucket &bucket = p.entries[m.entry].buckets[m.bucket];
    tableBytes += bucket.launchCount * megakernelRecordBytes(m.maxArgs);
    if (tableBytes > maxMegakernelBytes)
      return wrong("program: megakernel %zu: expected tables of at most %" PRIu64 " bytes of all, found %" PRIu64, i, maxMegakernelBytes, tableBytes);
    for (uint32_t l = bucket.firstLaunch; l < bucket.firstLaunch + bucket.launchCount; ++l)
      if (p.launches[l].argCount > m.maxArgs && bodyOf[p.launches[l].kernel] == i)
        return wrong("program: megakernel %zu: expected launches of at most %u arguments, found %u in launch %u", i, m.maxArgs, p.launches[l].argCount, l);
  }
  return Status();
}

} // namespace

Status validateProgram(const Program &p, uint64_t weightBytes) {
  LATHE_RETURN_IF_ERROR(range("maxRows", p.maxRows, 1, maxRowCount));
  LATHE_RETURN_IF_ERROR(range("maxOutRows", p.maxOutRows, 1, maxRowCount));
  LATHE_RETURN_IF_ERROR(range("maxSeq", p.maxSeq, 1, maxPositions));
  LATHE_RETURN_IF_ERROR(range("vocabulary", p.vocabulary, 1, 1u << 24));
  LATHE_RETURN_IF_ERROR(range("hiddenSize", p.hiddenSize, 1, 1u << 20));
  LATHE_RETURN_IF_ERROR(range("arenaBytes", p.arenaBytes, 1, maxArena));
  LATHE_RETURN_IF_ERROR(range("scratchBytes", p.scratchBytes, 0, maxScratch));
  LATHE_RETURN_IF_ERROR(range("syntheticWeightBytes", p.syntheticWeightBytes, 0, maxArena));
  if (p.syntheticWeightBytes) {
    if (weightBytes)
      return wrong("program: expected no WEIGHTS beside synthetic weights, found %" PRIu64 " bytes", weightBytes);
    weightBytes = p.syntheticWeightBytes;
  }
  LATHE_RETURN_IF_ERROR(
      resultBuffer("logits", p.logitsOffset, p.logitsStride, p.vocabulary, p.maxOutRows, p.arenaBytes));
  LATHE_RETURN_IF_ERROR(resultBuffer("hidden", p.hiddenOffset, p.hiddenStride, p.hiddenSize, p.maxRows, p.arenaBytes));
  if (p.embeddingStride)
    LATHE_RETURN_IF_ERROR(
        resultBuffer("embedding", p.embeddingOffset, p.embeddingStride, p.hiddenSize, p.maxOutRows, p.arenaBytes));

  if (p.choicesStride) LATHE_RETURN_IF_ERROR(resultBuffer("choices", p.choicesOffset, p.choicesStride, 2, p.maxOutRows, p.arenaBytes));

  LATHE_RETURN_IF_ERROR(range("draftMaxSeq", p.draftMaxSeq, 0, p.maxSeq));
  if (p.draftMaxSeq)
    LATHE_RETURN_IF_ERROR(
        resultBuffer("draft logits", p.draftLogitsOffset, p.draftLogitsStride, p.draftVocabulary(), p.maxOutRows, p.arenaBytes));

  bool goesOn = goesOnFromItself(p.draftMethod);
  LATHE_RETURN_IF_ERROR(range("rows of the step that the draft takes", p.draftFeatures.size(), 0, goesOn ? 8 : 0));
  LATHE_RETURN_IF_ERROR(range("tokens of the draft", p.draftTokens.size(), 0, goesOn ? p.vocabulary : 0));
  if (goesOn) {
    LATHE_RETURN_IF_ERROR(resultBuffer("draft's own rows", p.draftOwnOffset, p.hiddenStride, p.hiddenSize, p.maxRows, p.arenaBytes));
    for (uint64_t offset : p.draftFeatures) LATHE_RETURN_IF_ERROR(resultBuffer("rows for the draft", offset, p.hiddenStride, p.hiddenSize, p.maxRows, p.arenaBytes));
    for (uint32_t token : p.draftTokens) LATHE_RETURN_IF_ERROR(range("token of the draft", token, 0, p.vocabulary - 1));
  }
  if (p.draftInputStride) {
    uint64_t rowSize = p.hiddenSize * (goesOn ? 1 + std::max<uint64_t>(1, p.draftFeatures.size()) : 1);
    LATHE_RETURN_IF_ERROR(range("draftMaxSeq of a draft that takes rows", p.draftMaxSeq, 1, p.maxSeq));
    LATHE_RETURN_IF_ERROR(range("size of the draft's rows", p.draftInputSize, rowSize, rowSize));
    LATHE_RETURN_IF_ERROR(resultBuffer("draft input", p.draftInputOffset, p.draftInputStride, p.draftInputSize, p.maxRows, p.arenaBytes));
  }
  bool takesRows = p.draftMaxSeq && p.draftInputStride;
  if ((p.draftMethod != DraftMethod::program) != takesRows)
    return wrong("program: expected a draft method %s rows, found %u", takesRows ? "that takes" : "without", static_cast<uint32_t>(p.draftMethod));
  LATHE_RETURN_IF_ERROR(range("further heads of the draft", p.draftMoreLogits.size(), 0, takesRows && !goesOn ? maxDraftTokens - 1 : 0));
  for (uint64_t offset : p.draftMoreLogits)
    LATHE_RETURN_IF_ERROR(resultBuffer("draft logits", offset, p.draftLogitsStride, p.vocabulary, p.maxOutRows, p.arenaBytes));

  LATHE_RETURN_IF_ERROR(range("number of KV groups", p.kvGroups.size(), 0, maxGroups));
  for (size_t g = 0; g < p.kvGroups.size(); ++g) {
    const KVGroup &group = p.kvGroups[g];
    LATHE_RETURN_IF_ERROR(range("KV group kind", group.kind, 0, 1));
    LATHE_RETURN_IF_ERROR(range("KV window", group.window, group.kind, maxPositions));
    LATHE_RETURN_IF_ERROR(range("pageTokens", group.pageTokens, 1, 1 << 16));
    LATHE_RETURN_IF_ERROR(range("KV layers", group.layers, 1, 1 << 16));
    LATHE_RETURN_IF_ERROR(range("blockBytes", group.blockBytes, 1, maxBlock));
    LATHE_RETURN_IF_ERROR(range("draft mark of a KV group", group.draft, g && p.kvGroups[g - 1].draft, p.draftMaxSeq ? 1 : 0));
  }
  for (size_t i = 0; i < p.kvPlanes.size(); ++i) {
    const KVPlane &plane = p.kvPlanes[i];
    if (plane.group >= p.kvGroups.size()) return wrong("program: KV plane %zu: expected a group below %zu, found %u", i, p.kvGroups.size(), plane.group);
    const KVGroup &group = p.kvGroups[plane.group];
    for (uint64_t size : {plane.offset, plane.headStride, plane.groupBytes, uint64_t(plane.pieceStride), uint64_t(plane.bytes)})
      LATHE_RETURN_IF_ERROR(range("size of a KV plane", size, 0, group.blockBytes));
    LATHE_RETURN_IF_ERROR(range("heads of a KV plane", plane.heads, 1, 1 << 16));
    LATHE_RETURN_IF_ERROR(range("pieces of a KV plane", plane.pieces, 1, 1 << 16));
    uint64_t end = plane.offset + (plane.heads - 1) * plane.headStride + (group.pageTokens - 1) / 16 * plane.groupBytes +
                   uint64_t(plane.pieces - 1) * plane.pieceStride + std::min(16ull, 0ull + group.pageTokens) * plane.bytes;
    if (end > group.blockBytes)
      return wrong("program: KV plane %zu: expected it to end within a block of %" PRIu64 " bytes, found %" PRIu64, i, group.blockBytes, end);
  }
  for (const std::string &kernel : p.kernels)
    if (!isSymbol(kernel)) return wrong("program: '%s' is not the name of a kernel", kernel.c_str());
  if (!p.blocks.empty() && p.blocks.size() != p.kernels.size())
    return wrong("program: expected a block shape for each of %zu kernels, found %zu", p.kernels.size(), p.blocks.size());
  for (const BlockShape &b : p.blocks) {
    if (b.threads % 32) return wrong("program: expected a block of whole warps of 32 threads, found %u threads", b.threads);
    LATHE_RETURN_IF_ERROR(range("threads of a block", b.threads, 32, 1024));
    LATHE_RETURN_IF_ERROR(range("shared memory of a block", b.sharedBytes, 0, 232448));
  }
  for (size_t i = 0; i < p.args.size(); ++i) LATHE_RETURN_IF_ERROR(checkArg(p, i, weightBytes));
  for (size_t i = 0; i < p.launches.size(); ++i) LATHE_RETURN_IF_ERROR(checkLaunch(p, i));

  static const char *const names[] = {"step", "head", "embed", "draft", "draft_head", "head_choices"};
  bool there[std::size(names)] = {};
  for (const Entry &entry : p.entries) {
    size_t kind = static_cast<size_t>(std::find(std::begin(names), std::end(names), entry.name) - std::begin(names));
    if (kind == std::size(names))
      return wrong("program: unknown entry '%s', expected 'step', 'head', 'embed', 'draft', 'draft_head' or 'head_choices'", entry.name.c_str());
    if (std::exchange(there[kind], true)) return wrong("program: entry '%s' is there twice", entry.name.c_str());
    bool rows = kind == 0 || kind == 3;
    LATHE_RETURN_IF_ERROR(checkEntry(p, entry, rows ? "maxRows" : "maxOutRows", rows ? p.maxRows : p.maxOutRows));
  }
  auto [step, head, embed, draft, draftHead, choices] = there;
  if (!step || !head) return wrong("program: entry '%s' is missing", step ? "head" : "step");
  if (embed != (p.embeddingStride != 0))
    return wrong("program: expected an entry 'embed' and an embedding stride, or neither, found stride %u",
                 p.embeddingStride);
  if (choices != (p.choicesStride != 0))
    return wrong("program: expected an entry 'head_choices' and a stride of choices, or neither, found stride %u", p.choicesStride);
  if (draft != (p.draftMaxSeq != 0) || draftHead != draft)
    return wrong("program: expected the entries 'draft' and 'draft_head' and draftMaxSeq, or none of them, found draftMaxSeq %u",
                 p.draftMaxSeq);
  LATHE_RETURN_IF_ERROR(checkMegakernels(p));
  return checkDraftGroups(p);
}

} // namespace lathe
