//===- ProgramCodec.cpp ---------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One function describes the order of the fields; writing and reading are its two instances, so
// they cannot drift apart.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/ProgramCodec.h"
#include <cinttypes>
#include <cstring>
#include <type_traits>

namespace lathe {
namespace {

class Encoder {
public:
  std::vector<uint8_t> bytes;

  template <typename T> void scalar(T value) {
    static_assert(std::is_integral_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  template <typename E> void enumeration(E value, uint32_t) { scalar(static_cast<uint32_t>(value)); }
  void string(const std::string &text) {
    scalar(static_cast<uint32_t>(text.size()));
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  /// Whether an optional last list follows.
  bool more(bool there) const { return there; }
  template <typename T, typename F> void list(const std::vector<T> &items, size_t, F each) {
    scalar(static_cast<uint32_t>(items.size()));
    for (const T &item : items)
      each(*this, item);
  }
};

class Decoder {
public:
  explicit Decoder(std::span<const uint8_t> input) : bytes(input) {}
  Status status;
  size_t at = 0;
  std::span<const uint8_t> bytes;

  bool more(bool) const { return status.ok() && at < bytes.size(); }
  bool need(size_t n) {
    if (!status.ok()) return false;
    if (bytes.size() - at >= n) return true;
    status = makeError(StatusCode::dataLoss, "program: expected %zu bytes at offset %zu, the section ends at %zu", n,
                       at, bytes.size());
    return false;
  }
  template <typename T> void scalar(T &value) {
    if (!need(sizeof(T))) return;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      sum |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
    value = static_cast<T>(sum);
    at += sizeof(T);
  }
  template <typename E> void enumeration(E &value, uint32_t last) {
    uint32_t number = 0;
    scalar(number);
    if (status.ok() && number > last)
      status = makeError(StatusCode::dataLoss, "program: expected a kind of at most %u at offset %zu, found %u", last,
                         at - 4, number);
    if (status.ok()) value = static_cast<E>(number);
  }
  void string(std::string &text) {
    uint32_t size = 0;
    scalar(size);
    if (!need(size)) return;
    text.assign(reinterpret_cast<const char *>(bytes.data()) + at, size);
    at += size;
  }
  template <typename T, typename F> void list(std::vector<T> &items, size_t leastBytes, F each) {
    uint32_t count = 0;
    scalar(count);
    if (!need(static_cast<size_t>(count) * leastBytes)) return; // before any memory is reserved for it
    items.resize(count);
    for (T &item : items) {
      each(*this, item);
      if (!status.ok()) return;
    }
  }
};

template <typename Coder, typename P> void fields(Coder &coder, P &program) {
  coder.scalar(program.maxRows);
  coder.scalar(program.maxOutRows);
  coder.scalar(program.maxSeq);
  coder.scalar(program.vocabulary);
  coder.scalar(program.hiddenSize);
  coder.scalar(program.arenaBytes);
  coder.scalar(program.scratchBytes);
  coder.scalar(program.logitsOffset);
  coder.scalar(program.logitsStride);
  coder.scalar(program.hiddenOffset);
  coder.scalar(program.hiddenStride);
  coder.scalar(program.embeddingOffset);
  coder.scalar(program.embeddingStride);
  coder.scalar(program.draftMaxSeq);
  coder.scalar(program.draftLogitsOffset);
  coder.scalar(program.draftLogitsStride);
  coder.scalar(program.syntheticWeightBytes);
  coder.scalar(program.syntheticSeed);
  auto string = [](auto &c, auto &text) { c.string(text); };
  coder.list(program.kernels, 4, string);
  coder.list(program.names, 4, string);
  coder.list(program.args, 16, [](auto &c, auto &arg) {
    c.enumeration(arg.kind, static_cast<uint32_t>(ArgKind::kv));
    c.scalar(arg.group);
    c.scalar(arg.offset);
  });
  coder.list(program.launches, 84, [](auto &c, auto &launch) {
    c.scalar(launch.kernel);
    c.scalar(launch.firstArg);
    c.scalar(launch.argCount);
    c.enumeration(launch.itemKind, static_cast<uint32_t>(ItemKind::perRowChunk));
    c.enumeration(launch.shareKind, static_cast<uint32_t>(ShareKind::interleaved));
    c.scalar(launch.itemRows);
    c.scalar(launch.items);
    c.scalar(launch.barrier);
    c.scalar(launch.name);
    c.scalar(launch.weightBytes);
    c.scalar(launch.macsPerRow);
    c.scalar(launch.bytesPerRow);
    c.scalar(launch.bytesPerEntry);
    c.scalar(launch.macsPerEntry);
    c.enumeration(launch.arithmetic, static_cast<uint32_t>(Arithmetic::f32));
  });
  coder.list(program.entries, 8, [](auto &c, auto &entry) {
    c.string(entry.name);
    c.list(entry.buckets, 12, [](auto &inner, auto &bucket) {
      inner.scalar(bucket.maxRows);
      inner.scalar(bucket.firstLaunch);
      inner.scalar(bucket.launchCount);
    });
  });
  coder.list(program.kvGroups, 28, [](auto &c, auto &group) {
    c.scalar(group.kind);
    c.scalar(group.window);
    c.scalar(group.pageTokens);
    c.scalar(group.layers);
    c.scalar(group.blockBytes);
    c.scalar(group.draft);
  });
  bool heads = program.draftInputStride != 0;
  bool mega = !program.megakernels.empty();
  bool choices = program.choicesStride != 0 || mega;
  if (!coder.more(!program.blocks.empty() || !program.kvPlanes.empty() || heads || choices)) return; // a CPU's that knows no trees
  coder.list(program.blocks, 8, [](auto &c, auto &block) {
    c.scalar(block.threads);
    c.scalar(block.sharedBytes);
  });
  if (!coder.more(!program.kvPlanes.empty() || heads || choices)) return;
  coder.list(program.kvPlanes, 44, [](auto &c, auto &plane) {
    c.scalar(plane.group);
    c.scalar(plane.heads);
    c.scalar(plane.offset);
    c.scalar(plane.headStride);
    c.scalar(plane.groupBytes);
    c.scalar(plane.pieces);
    c.scalar(plane.pieceStride);
    c.scalar(plane.bytes);
  });
  if (!coder.more(heads || choices)) return; // no draft program that takes rows
  coder.enumeration(program.draftMethod, static_cast<uint32_t>(DraftMethod::eagle3));
  coder.scalar(program.draftInputOffset);
  coder.scalar(program.draftInputStride);
  coder.scalar(program.draftInputSize);
  auto scalar = [](auto &c, auto &value) { c.scalar(value); };
  coder.list(program.draftMoreLogits, 8, scalar);
  if (goesOnFromItself(program.draftMethod)) {
    coder.scalar(program.draftOwnOffset);
    coder.list(program.draftFeatures, 8, scalar);
    coder.list(program.draftTokens, 4, scalar);
  }
  if (!coder.more(choices)) return; // one form of the head
  coder.scalar(program.choicesOffset);
  coder.scalar(program.choicesStride);
  if (!coder.more(mega)) return; // launches one by one
  coder.list(program.megakernels, 20, [&](auto &c, auto &m) {
    c.scalar(m.kernel);
    c.scalar(m.entry);
    c.scalar(m.bucket);
    c.scalar(m.maxArgs);
    c.list(m.bodies, 4, scalar);
  });
}

} // namespace

std::vector<uint8_t> encodeProgram(const Program &program) {
  Encoder encoder;
  fields(encoder, program);
  return std::move(encoder.bytes);
}

Result<Program> decodeProgram(std::span<const uint8_t> bytes) {
  Decoder decoder(bytes);
  Program program;
  fields(decoder, program);
  LATHE_RETURN_IF_ERROR(decoder.status);
  if (decoder.at != bytes.size())
    return makeError(StatusCode::dataLoss, "program: expected the section to end at offset %zu, it ends at %zu",
                     decoder.at, bytes.size());
  return program;
}

} // namespace lathe
