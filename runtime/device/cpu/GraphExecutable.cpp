//===- GraphExecutable.cpp ------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/GraphExecutable.h"
#include "runtime/device/Trees.h"
#include <algorithm>
#include <cstring>
#include <utility>

namespace lathe::runtime {
namespace {

/// A tensor of one call in MLIR's layout, and the memory behind it if it is ours.
struct Descriptor {
  std::vector<int64_t> words; ///< LatheTensorHead, sizes, strides
  void set(const void *data, const std::vector<int64_t> &dims) {
    words.assign(3 + 2 * dims.size(), 0);
    words[0] = words[1] = reinterpret_cast<int64_t>(data);
    int64_t stride = 1;
    for (size_t k = dims.size(); k-- > 0;) {
      words[3 + k] = dims[k];
      words[3 + dims.size() + k] = stride;
      stride *= dims[k];
    }
  }
};

/// What a present cached: the result's own memory, [.., length, ..].
struct Cache {
  Cache() = default;
  Cache(GraphMemory &m, void *d, uint64_t n) : memory(&m), data(d), bytes(n) {}
  Cache(Cache &&other) noexcept { *this = std::move(other); }
  Cache &operator=(Cache &&other) noexcept {
    std::swap(memory, other.memory);
    std::swap(data, other.data);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Cache() {
    if (data) memory->release(data);
  }
  GraphMemory *memory = nullptr;
  void *data = nullptr;
  uint64_t bytes = 0;
};

float toFloat(GraphType type, const uint8_t *data, int64_t i) {
  if (type == GraphType::f32) {
    float x;
    std::memcpy(&x, data + i * 4, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, data + i * 2, 2);
  uint32_t wide;
  if (type == GraphType::bf16) {
    wide = uint32_t(bits) << 16;
  } else {
    uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    if (exponent == 0) return (bits & 0x8000 ? -1.0f : 1.0f) * static_cast<float>(mantissa) * 0x1p-24f;
    wide = sign | (exponent == 31 ? 0xffu << 23 : (exponent + 112) << 23) | mantissa << 13;
  }
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

class GraphExecutable : public Executable {
public:
  GraphExecutable(std::shared_ptr<LoadedArtifact> loaded, std::unique_ptr<GraphMemory> m)
      : artifact(std::move(loaded)), program(artifact->program()), graph(*artifact->graph()), memory(std::move(m)), caches(graph.outputs.size()) {
    logitRows.resize(uint64_t(program.maxRows) * program.vocabulary);
    hiddenRow.resize(program.hiddenStride);
  }

  Result<Ticket> submit(EntryKind kind, const LatheStep &step) override {
    if (kind == EntryKind::embed) return Status(StatusCode::unsupported, "a general graph has no embedding entry");
    if (kind == EntryKind::headChoices) return makeError(StatusCode::unsupported, "the program has no entry '%s'", toString(kind));
    if (kind == EntryKind::head) {
      outRows.assign(step.outRow, step.outRow + step.outRows);
      for (int32_t row : outRows)
        if (lastOnly && row + 1 != static_cast<int32_t>(rows))
          return makeError(StatusCode::unsupported, "this graph gives logits of a step's last token only: expected row %u, found %d", rows - 1, row);
      return ++last;
    }
    if (Status status = run(step); !status.ok()) {
      drop();
      return status;
    }
    return ++last;
  }
  Status wait(Ticket) override { return artifact->mapping().check(); }
  const float *logits(uint32_t row) override {
    uint64_t at = lastOnly ? 0 : uint64_t(outRows[row]);
    return logitRows.data() + at * program.vocabulary;
  }
  const float *choice(uint32_t row) override { return logits(row); } // there is no such entry to submit
  const float *draftLogits(uint32_t, uint32_t) override { return logitRows.data(); } // there is no draft to submit
  Status setDraftInput(uint32_t row, std::span<const float> values) override { return checkDraftInput(program, row, values.size()); }
  const float *embedding(uint32_t) override { return hiddenRow.data(); }
  const float *hidden(uint32_t) override { return hiddenRow.data(); }
  const float *feature(uint32_t, uint32_t) override { return hiddenRow.data(); }
  const float *draftOwn(uint32_t) override { return hiddenRow.data(); }
  Status saveBlock(uint32_t, uint32_t, std::span<uint8_t>) override { return noBlocks(); }
  Status restoreBlock(uint32_t, uint32_t, std::span<const uint8_t>) override { return noBlocks(); }
  Status copyBlock(uint32_t, uint32_t, uint32_t) override { return noBlocks(); }
  Status copyEntry(uint32_t, uint32_t, uint32_t, uint32_t, uint32_t) override { return noBlocks(); }
  Status fillBlock(uint32_t, uint32_t, uint8_t) override { return noBlocks(); }
  // There are no launches to tell the times of.
  void setProfiling(bool) override {}
  std::vector<LaunchProfile> profile() const override { return {}; }
  unsigned threads() const override { return 1; }
  uint64_t memoryBytes() const override {
    uint64_t bytes = logitRows.size() * 4;
    for (const Cache &cache : caches)
      bytes += cache.bytes;
    return bytes;
  }

private:
  static Status noBlocks() { return Status(StatusCode::unsupported, "a general graph has one contiguous cache and no KV blocks"); }
  Status run(const LatheStep &step);
  Status truncate(uint32_t newLength);
  void drop() {
    for (Cache &cache : caches)
      cache = {};
    length = 0;
  }
  Status call(const LatheStep &step);
  Status take(GraphCall &call, const int64_t *results, int64_t tokens);
  Result<Cache> keep(GraphCall &call, void *allocated, const uint8_t *data, uint64_t bytes);

  std::shared_ptr<LoadedArtifact> artifact;
  const Program &program;
  const GraphSection &graph;
  std::unique_ptr<GraphMemory> memory; ///< may share the artifact's: goes before it
  std::vector<Cache> caches;           ///< by result, of presents
  uint32_t length = 0, rows = 0;
  int32_t owner = 0;
  std::vector<float> logitRows, hiddenRow;
  bool lastOnly = false; ///< the graph gives the logits of the last token only
  std::vector<int32_t> outRows;
  Ticket last = 0;
};

Status GraphExecutable::run(const LatheStep &step) {
  LATHE_RETURN_IF_ERROR(checkStep(program, step, true));
  if (step.rows == 0 || step.rows > program.maxRows) return makeError(StatusCode::invalidArgument, "expected 1 to %u rows in a step, found %u", program.maxRows, step.rows);
  uint32_t first = static_cast<uint32_t>(step.slot[0]);
  for (uint32_t r = 0; r < step.rows; ++r) {
    if (step.sequence[r] != step.sequence[0] || step.slot[r] != static_cast<int32_t>(first + r) || step.position[r] != step.slot[r])
      return Status(StatusCode::failedPrecondition, "this artifact holds a general graph: expected the next tokens of one sequence in a step, found several sequences or a gap");
  }
  if (first > length || (first && step.sequence[0] != owner))
    return makeError(StatusCode::failedPrecondition, "this artifact holds a general graph and serves one sequence at a time: expected a token at slot %u or before, or at 0, found slot %u",
                     step.sequence[0] == owner ? length : 0, first);
  owner = step.sequence[0];
  LATHE_RETURN_IF_ERROR(truncate(first));
  LATHE_RETURN_IF_ERROR(call(step));
  rows = step.rows;
  length = first + step.rows;
  return Status();
}

/// Keeps the first |newLength| entries of every cache.
Status GraphExecutable::truncate(uint32_t newLength) {
  if (newLength >= length) return Status();
  if (newLength == 0) {
    drop();
    return Status();
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    const GraphPort &p = graph.outputs[i];
    if (p.role != GraphRole::present) continue;
    uint64_t inner = p.elementBytes, outer = 1;
    for (size_t k = 0; k < p.dims.size(); ++k) {
      if (k < p.axis) outer *= uint64_t(p.dims[k]);
      if (k > p.axis) inner *= uint64_t(p.dims[k]);
    }
    Cache shorter(*memory, memory->allocate(outer * newLength * inner), outer * newLength * inner);
    if (!shorter.data) return Status(StatusCode::resourceExhausted, "not enough memory for the cache of the graph");
    for (uint64_t o = 0; o < outer; ++o)
      LATHE_RETURN_IF_ERROR(memory->copy(static_cast<uint8_t *>(shorter.data) + o * newLength * inner, static_cast<const uint8_t *>(caches[i].data) + o * length * inner, newLength * inner));
    caches[i] = std::move(shorter);
  }
  length = newLength;
  return Status();
}

Status GraphExecutable::call(const LatheStep &step) {
  int64_t n = step.rows, total = length + n;
  GraphCall call(*memory);
  LATHE_ASSIGN_OR_RETURN(const void *weights, memory->share(artifact->weights(), "weights"));
  std::vector<Descriptor> inputs(graph.inputs.size());
  std::vector<std::vector<uint8_t>> made(graph.inputs.size()); // what tokens, mask and positions point to
  std::vector<void *> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const GraphPort &p = graph.inputs[i];
    std::vector<int64_t> dims = p.dims;
    auto integers = [&](int64_t count, auto value) {
      made[i].resize(uint64_t(count) * p.elementBytes);
      for (int64_t k = 0; k < count; ++k) {
        int64_t x = value(k);
        std::memcpy(made[i].data() + k * p.elementBytes, &x, p.elementBytes); // little-endian: the low bytes of the number
      }
      for (size_t k = 0; k < 2; ++k) {
        int64_t wanted = k ? count : 1;
        if (dims[k] != -1 && dims[k] != wanted)
          return makeError(StatusCode::unsupported, "input '%s' has a fixed size %lld, expected one for %lld", p.name.c_str(), static_cast<long long>(dims[k]), static_cast<long long>(wanted));
        dims[k] = wanted;
      }
      LATHE_ASSIGN_OR_RETURN(const void *data, call.place(made[i]));
      inputs[i].set(data, dims);
      return Status();
    };
    switch (p.role) {
    case GraphRole::tokens:
      LATHE_RETURN_IF_ERROR(integers(n, [&](int64_t k) { return int64_t(step.token[k]); }));
      break;
    case GraphRole::positions:
      LATHE_RETURN_IF_ERROR(integers(n, [&](int64_t k) { return int64_t(step.position[k]); }));
      break;
    case GraphRole::mask:
      LATHE_RETURN_IF_ERROR(integers(total, [](int64_t) { return int64_t(1); }));
      break;
    case GraphRole::past:
      dims[p.axis] = length;
      inputs[i].set(caches[p.peer].data, dims);
      break;
    default: // weights
      inputs[i].set(static_cast<const uint8_t *>(weights) + p.offset, dims);
      break;
    }
  }
  for (Descriptor &d : inputs)
    pointers.push_back(d.words.data());
  size_t words = 0;
  for (const GraphPort &p : graph.outputs)
    words += 3 + 2 * p.dims.size();
  std::vector<int64_t> results(words);

  LATHE_RETURN_IF_ERROR(call.run(reinterpret_cast<LatheGraphFn>(reinterpret_cast<void *>(artifact->kernels()[0])), pointers.data(), results.data(), graph.checks));
  return take(call, results.data(), n);
}

/// Takes logits and caches out of the results of a call with |tokens| tokens.
Status GraphExecutable::take(GraphCall &call, const int64_t *at, int64_t tokens) {
  std::vector<Cache> kept; // by present
  std::vector<uint8_t> buffer;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphPort &p = graph.outputs[i];
    auto *data = reinterpret_cast<const uint8_t *>(at[1]) + at[2] * p.elementBytes;
    const int64_t allocated = at[0], *sizes = at + 3;
    at += 3 + 2 * p.dims.size();
    for (size_t k = 0; k < p.dims.size(); ++k)
      if (p.dims[k] != -1 && p.dims[k] != sizes[k])
        return makeError(StatusCode::invalidArgument, "result '%s': expected %lld in dimension %zu, found %lld", p.name.c_str(), static_cast<long long>(p.dims[k]), k, static_cast<long long>(sizes[k]));
    if (p.role == GraphRole::logits) {
      int64_t given = sizes[0] * sizes[1];
      if (given != 1 && given != tokens)
        return makeError(StatusCode::invalidArgument, "result '%s': expected logits of 1 or %lld tokens, found %lld", p.name.c_str(), static_cast<long long>(tokens), static_cast<long long>(given));
      lastOnly = given == 1;
      LATHE_ASSIGN_OR_RETURN(data, memory->view(data, uint64_t(given) * program.vocabulary * p.elementBytes, buffer));
      for (int64_t k = 0; k < given * int64_t(program.vocabulary); ++k)
        logitRows[uint64_t(k)] = toFloat(p.type, data, k);
    } else if (p.role == GraphRole::present) {
      // The next call passes it as a past of that length.
      if (int64_t total = int64_t(length) + tokens; sizes[p.axis] != total)
        return makeError(StatusCode::invalidArgument, "result '%s': expected a cache of %lld tokens, found %lld", p.name.c_str(), static_cast<long long>(total), static_cast<long long>(sizes[p.axis]));
      uint64_t bytes = p.elementBytes;
      for (size_t k = 0; k < p.dims.size(); ++k)
        bytes *= uint64_t(sizes[k]);
      LATHE_ASSIGN_OR_RETURN(Cache cache, keep(call, reinterpret_cast<void *>(allocated), data, bytes));
      kept.push_back(std::move(cache));
    }
  }
  // All at once: a result may be an input's memory, which is the cache that it replaces.
  for (size_t i = 0, next = 0; i < graph.outputs.size(); ++i)
    if (graph.outputs[i].role == GraphRole::present) caches[i] = std::move(kept[next++]);
  return Status();
}

/// Takes over the memory of a result, or copies one that lies in the memory of something else.
Result<Cache> GraphExecutable::keep(GraphCall &call, void *allocated, const uint8_t *data, uint64_t bytes) {
  if (data == allocated && call.take(allocated)) return Cache(*memory, allocated, bytes);
  Cache copy(*memory, memory->allocate(std::max<uint64_t>(bytes, 1)), bytes);
  if (!copy.data) return Status(StatusCode::resourceExhausted, "not enough memory for the cache of the graph");
  if (bytes) LATHE_RETURN_IF_ERROR(memory->copy(copy.data, data, bytes));
  return copy;
}

} // namespace

Result<std::unique_ptr<Executable>> makeGraphExecutable(std::shared_ptr<LoadedArtifact> artifact, std::unique_ptr<GraphMemory> memory) {
  return std::unique_ptr<Executable>(std::make_unique<GraphExecutable>(std::move(artifact), std::move(memory)));
}

} // namespace lathe::runtime
