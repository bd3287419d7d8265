//===- GpuExecutable.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// All device memory is allocated at creation. A run sends one block of step state (LatheStep with device pointers and the
// arrays behind it), then starts the launches of its bucket in order.
//===----------------------------------------------------------------------===//
#include "runtime/device/gpu/GpuExecutable.h"
#include "runtime/device/Trees.h"
#include "runtime/device/cpu/GraphExecutable.h"
#include "lathe/artifact/Megakernel.h"
#include "runtime/device/gpu/GpuGraphMemory.h"
#include "runtime/device/gpu/Megakernels.h"
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <limits>

namespace lathe::runtime {

namespace {

class GpuExecutable : public Executable {
public:
  GpuExecutable(std::unique_ptr<GpuDriver> d, std::shared_ptr<LoadedArtifact> a)
      : artifact(std::move(a)), program(artifact->program()), driver(std::move(d)) {}
  ~GpuExecutable() override {
    for (uint64_t address : owned) driver->release(address);
  }
  Status create(const ExecutableOptions &options);

  Result<Ticket> submit(EntryKind kind, const LatheStep &step) override;
  Status wait(Ticket) override {
    LATHE_RETURN_IF_ERROR(driver->synchronize());
    return artifact->mapping().check();
  }
  const float *logits(uint32_t row) override {
    return fetch(logitsHost, row, program.logitsOffset, program.logitsStride, program.vocabulary, logitsReady);
  }
  const float *choice(uint32_t row) override {
    return fetchAll(choicesHost.data(), row, choiceRows, program.choicesOffset, program.choicesStride, choicesReady);
  }
  const float *draftLogits(uint32_t row, uint32_t head) override {
    return fetch(draftHost, row, draftLogitsAt(program, head), program.draftLogitsStride, program.draftVocabulary(), draftReady, head * program.maxOutRows);
  }
  Status setDraftInput(uint32_t row, std::span<const float> values) override {
    LATHE_RETURN_IF_ERROR(checkDraftInput(program, row, values.size()));
    return driver->upload(arena + draftInputAt(program, row), {reinterpret_cast<const uint8_t *>(values.data()), values.size_bytes()});
  }
  const float *hidden(uint32_t row) override {
    // A layer that drafts wants them all, heads that of each sequence: of steps that only decode, all as well.
    if (goesOnFromItself(program.draftMethod) || stepRows <= keptRows)
      return fetchAll(hiddenHost.data(), row, stepRows, program.hiddenOffset, program.hiddenStride, hiddenAll);
    return fetch(hiddenHost, row, program.hiddenOffset, program.hiddenStride, program.hiddenStride, hiddenReady);
  }
  const float *feature(uint32_t index, uint32_t row) override {
    return fetchAll(featureHost.data() + uint64_t(index) * program.maxRows * program.hiddenStride, row, stepRows, program.draftFeatures[index], program.hiddenStride, featureReady[index]);
  }
  const float *draftOwn(uint32_t row) override {
    return fetch(ownHost, row, program.draftOwnOffset, program.hiddenStride, program.hiddenSize, ownReady);
  }
  const float *embedding(uint32_t row) override {
    return fetch(embeddingHost, row, program.embeddingOffset, program.embeddingStride, program.hiddenSize, embeddingReady);
  }
  Status saveBlock(uint32_t group, uint32_t block, std::span<uint8_t> out) override {
    LATHE_ASSIGN_OR_RETURN(uint64_t at, blockAt(group, block, out.size()));
    return driver->download(out, at);
  }
  Status restoreBlock(uint32_t group, uint32_t block, std::span<const uint8_t> bytes) override {
    LATHE_ASSIGN_OR_RETURN(uint64_t at, blockAt(group, block, bytes.size()));
    return driver->upload(at, bytes);
  }
  Status copyBlock(uint32_t group, uint32_t from, uint32_t to) override {
    LATHE_ASSIGN_OR_RETURN(uint64_t bytes, blockBytes(group));
    LATHE_ASSIGN_OR_RETURN(uint64_t source, blockAt(group, from, bytes));
    LATHE_ASSIGN_OR_RETURN(uint64_t target, blockAt(group, to, bytes));
    return source == target ? Status() : driver->copy(target, source, bytes);
  }
  /// By way of host memory: the pieces of an entry are too small and too many to be copied one by one.
  Status copyEntry(uint32_t group, uint32_t from, uint32_t fromToken, uint32_t to, uint32_t toToken) override {
    LATHE_RETURN_IF_ERROR(checkEntry(program, group, fromToken, toToken));
    moved[0].resize(program.kvGroups[group].blockBytes);
    moved[1].resize(program.kvGroups[group].blockBytes);
    LATHE_RETURN_IF_ERROR(saveBlock(group, from, moved[0]));
    LATHE_RETURN_IF_ERROR(saveBlock(group, to, moved[1]));
    runtime::copyEntry(program, group, moved[1].data(), toToken, moved[0].data(), fromToken);
    return restoreBlock(group, to, moved[1]);
  }
  Status fillBlock(uint32_t group, uint32_t block, uint8_t value) override {
    LATHE_ASSIGN_OR_RETURN(uint64_t bytes, blockBytes(group));
    LATHE_ASSIGN_OR_RETURN(uint64_t at, blockAt(group, block, bytes));
    return driver->fill(at, value, bytes);
  }
  void setProfiling(bool on) override {
    profiling = on;
    for (size_t i = 0; i < profiles.size(); ++i) profiles[i] = {static_cast<uint32_t>(i), 0, 0, 0};
  }
  std::vector<LaunchProfile> profile() const override {
    std::vector<LaunchProfile> used;
    for (const LaunchProfile &p : profiles)
      if (p.calls) used.push_back(p);
    return used;
  }
  unsigned threads() const override { return 1; }
  uint64_t memoryBytes() const override { return allocated; }

private:
  Result<uint64_t> blockBytes(uint32_t group) const {
    if (group >= pools.size()) return makeError(StatusCode::invalidArgument, "no KV group %u", group);
    return program.kvGroups[group].blockBytes;
  }
  Result<uint64_t> blockAt(uint32_t group, uint32_t block, size_t bytes) const {
    if (group >= pools.size() || block >= blocks[group] || bytes != program.kvGroups[group].blockBytes)
      return makeError(StatusCode::invalidArgument, "no KV block %u of %zu bytes in group %u", block, bytes, group);
    return pools[group] + uint64_t(block) * program.kvGroups[group].blockBytes;
  }
  Result<uint64_t> own(uint64_t bytes, const char *what) {
    LATHE_ASSIGN_OR_RETURN(uint64_t address, driver->allocate(bytes, what));
    owned.push_back(address);
    allocated += bytes;
    return address;
  }
  /// |place|: of row 0 in |host| and |ready|.
  const float *fetch(std::vector<float> &host, uint32_t row, uint64_t offset, uint32_t stride, uint32_t width, std::vector<bool> &ready, uint32_t place = 0) {
    float *to = host.data() + uint64_t(place + row) * width;
    if (ready[place + row]) return to;
    Status s = driver->download({reinterpret_cast<uint8_t *>(to), uint64_t(width) * 4}, arena + offset + uint64_t(row) * stride * 4);
    if (!s.ok()) std::fill(to, to + width, std::numeric_limits<float>::quiet_NaN()); // which the sampler makes an error of the request
    ready[place + row] = true;
    return to;
  }
  /// The same where all |rows| rows will be wanted, in one copy: they are as far apart in |host|, which has room for them. |ready|: what this sets.
  template <typename Flag> const float *fetchAll(float *host, uint32_t row, uint32_t rows, uint64_t offset, uint32_t stride, Flag &&ready) {
    const float *wanted = host + uint64_t(row) * stride;
    if (ready) return wanted;
    const uint64_t count = uint64_t(rows) * stride;
    Status s = driver->download({reinterpret_cast<uint8_t *>(host), count * 4}, arena + offset);
    if (!s.ok()) std::fill_n(host, count, std::numeric_limits<float>::quiet_NaN());
    ready = true;
    return wanted;
  }
  Status sendStep(EntryKind kind, const LatheStep &step);
  Status openMegakernels();
  /// How |bucket| is done by a megakernel; null: its launches are started one by one, as they are when times of single launches are wanted.
  const MegakernelBucket *megakernelOf(const Bucket &bucket) const {
    auto found = std::find_if(together.begin(), together.end(), [&](const MegakernelBucket &b) { return b.bucket == &bucket; });
    return profiling || found == together.end() ? nullptr : &*found;
  }
  /// Starts the launches of |bucket| in order; |counted|: the rows that blocks are counted by.
  Status start(const Bucket &bucket, const LatheStep &counted);

  /// Steps of up to as many rows are kept by the driver, one sequence of launches for each entry and number of rows: those of decoding, whose kernels are
  /// so short that starting them one by one takes longer than running them.
  static constexpr uint32_t keptRows = 32;

  std::shared_ptr<LoadedArtifact> artifact;
  const Program &program;
  std::unique_ptr<GpuDriver> driver; ///< may share the artifact's memory: goes first
  uint64_t arena = 0, weights = 0, state = 0, stateCapacity = 0, allocated = 0;
  std::vector<uint64_t> owned, pools, args;
  std::vector<uint32_t> blocks;
  const Entry *entries[entryKinds] = {};
  std::vector<uint8_t> staging;
  std::vector<uint8_t> moved[2]; ///< blocks of copyEntry()
  std::vector<float> logitsHost, choicesHost, draftHost, hiddenHost, embeddingHost, featureHost, ownHost;
  std::vector<bool> logitsReady, draftReady, hiddenReady, embeddingReady, featureReady, ownReady; ///< featureReady: [feature], of all rows
  bool choicesReady = false, hiddenAll = false;
  uint32_t choiceRows = 0, stepRows = 0; ///< of the last runs of these entries
  std::vector<uint64_t> launchArgs;
  std::vector<MegakernelBucket> together; ///< of DevicePlan::megakernel
  std::vector<uint32_t> grids;            ///< blocks of each megakernel
  uint64_t launchTables = 0, counters = 0; ///< what megakernels read, and where their blocks meet: one for each
  // What sendStep works with; the capacity is there from the start but for |dense|, which has the sequences of the caller.
  std::vector<int32_t> dense, sequenceIds;
  std::vector<uint32_t> used, strides;
  std::vector<uint64_t> tables, embeddingRows;
  Ticket lastTicket = 0;
  bool profiling = false, waits = false, oneByOne = false;
  std::vector<LaunchProfile> profiles;
};

/// PTX of the chip that the artifact was loaded for, and its cubin or nothing.
struct GpuCode {
  std::string_view ptx;
  std::span<const uint8_t> cubin;
};
Result<GpuCode> codeFor(const LoadedArtifact &artifact, const GpuDriver &driver) {
  artifact::Variant variant = artifact.variant();
  if (!artifact::isGpu(variant) || artifact.program().blocks.empty())
    return makeError(StatusCode::failedPrecondition, "the artifact was loaded for '%s', expected a GPU's code", artifact::toString(variant));
  if (!driver.runs(variant))
    return makeError(StatusCode::failedPrecondition, "device '%s' does not run code for %s; compile with another '--target'", driver.name(), artifact::toString(variant));
  auto ptx = artifact.view().find(artifact::SectionKind::ptx, variant);
  if (!ptx) return makeError(StatusCode::dataLoss, "section 'ptx' for %s is missing", artifact::toString(variant));
  return GpuCode{{reinterpret_cast<const char *>(ptx->data()), ptx->size()}, artifact.view().find(artifact::SectionKind::cubin, variant).value_or(std::span<const uint8_t>())};
}

Status GpuExecutable::create(const ExecutableOptions &options) {
  const Program &p = program;
  LATHE_ASSIGN_OR_RETURN(GpuCode code, codeFor(*artifact, *driver));
  waits = code.ptx.find("griddepcontrol.wait") != code.ptx.npos; // the compiler lets all kernels of a chip wait, or none
  if (options.kvBlocks.size() != p.kvGroups.size())
    return makeError(StatusCode::invalidArgument, "expected block counts of %zu KV groups, found %zu", p.kvGroups.size(), options.kvBlocks.size());
  std::vector<uint32_t> shared;
  for (const BlockShape &b : p.blocks) shared.push_back(b.sharedBytes);
  LATHE_RETURN_IF_ERROR(driver->load(code.ptx, code.cubin, p.kernels, shared));
  LATHE_ASSIGN_OR_RETURN(weights, driver->share(artifact->weights(), "weights", options.uploading));
  LATHE_ASSIGN_OR_RETURN(arena, own(p.arenaBytes, "step arena"));
  blocks = options.kvBlocks;
  for (size_t g = 0; g < p.kvGroups.size(); ++g) {
    LATHE_ASSIGN_OR_RETURN(uint64_t pool, own(p.kvGroups[g].blockBytes * std::max<uint64_t>(1, blocks[g]), "KV cache"));
    pools.push_back(pool);
  }
  // Everything a step points to, at its largest: six arrays, embeddings, a block table a group.
  stateCapacity = sizeof(LatheStep) + 64 + uint64_t(p.maxRows) * (6 * 4 + 8 + 4ull * p.hiddenSize) + uint64_t(p.maxOutRows) * 4 + 16 * 64;
  for (const KVGroup &g : p.kvGroups) stateCapacity += 4ull * p.maxRows * ((p.maxSeq + g.pageTokens - 1) / g.pageTokens) + 12 + 64;
  LATHE_ASSIGN_OR_RETURN(state, own(stateCapacity, "step state"));
  staging.reserve(stateCapacity);
  for (const Arg &arg : p.args) {
    switch (arg.kind) {
    case ArgKind::arena: args.push_back(arena + arg.offset); break;
    case ArgKind::weight: args.push_back(weights + arg.offset); break;
    case ArgKind::kv: args.push_back(pools[arg.group] + arg.offset); break;
    }
  }
  for (const Entry &entry : p.entries) entries[static_cast<int>(entryKind(entry.name))] = &entry;
  logitsHost.resize(uint64_t(p.maxOutRows) * p.vocabulary);
  hiddenHost.resize(uint64_t(p.maxRows) * p.hiddenStride);
  logitsReady.resize(p.maxOutRows), hiddenReady.resize(p.maxRows);
  choicesHost.resize(uint64_t(p.maxOutRows) * p.choicesStride);
  const uint64_t draftRows = uint64_t(p.maxOutRows) * p.draftHeads();
  draftHost.resize(draftRows * p.draftVocabulary()), draftReady.resize(draftRows);
  featureReady.resize(p.draftFeatures.size()), featureHost.resize(featureReady.size() * p.maxRows * p.hiddenStride);
  if (goesOnFromItself(p.draftMethod)) ownReady.resize(p.maxRows), ownHost.resize(ownReady.size() * p.hiddenSize);
  if (entries[static_cast<int>(EntryKind::embed)]) embeddingHost.resize(uint64_t(p.maxOutRows) * p.hiddenSize), embeddingReady.resize(p.maxOutRows);
  oneByOne = options.plan == DevicePlan::launches;
  if (options.plan == DevicePlan::megakernel) LATHE_RETURN_IF_ERROR(openMegakernels());
  uint32_t most = 2;
  for (const Launch &l : p.launches) most = std::max(most, l.argCount);
  launchArgs.reserve(most + 1);
  profiles.resize(p.launches.size());
  sequenceIds.reserve(p.maxRows);
  used.reserve(p.maxRows);
  embeddingRows.reserve(p.maxRows);
  tables.resize(p.kvGroups.size());
  strides.resize(p.kvGroups.size());
  return Status();
}

Status GpuExecutable::openMegakernels() {
  const Program &p = program;
  if (p.megakernels.empty())
    return makeError(StatusCode::failedPrecondition, "the artifact has no megakernels for %s, found kernels to launch one by one; compile with '--megakernel', which warns where it makes none",
                     artifact::toString(artifact->variant()));
  std::vector<uint8_t> bytes;
  together = planMegakernels(p, args, bytes);
  LATHE_ASSIGN_OR_RETURN(launchTables, own(std::max<uint64_t>(bytes.size(), 1), "tables of megakernels"));
  if (!bytes.empty()) LATHE_RETURN_IF_ERROR(driver->upload(launchTables, bytes));
  LATHE_ASSIGN_OR_RETURN(counters, own(p.megakernels.size() * megakernelCounterBytes, "counters of megakernels"));
  LATHE_RETURN_IF_ERROR(driver->fill(counters, 0, p.megakernels.size() * megakernelCounterBytes));
  for (const Megakernel &m : p.megakernels) {
    const BlockShape &shape = p.blocks[m.kernel];
    LATHE_ASSIGN_OR_RETURN(uint32_t blocks, driver->residentBlocks(m.kernel, shape.threads, shape.sharedBytes));
    if (blocks == 0)
      return makeError(StatusCode::failedPrecondition, "expected a GPU that keeps a block of megakernel '%s' with %u threads and %u bytes of shared memory, found none", p.kernels[m.kernel].c_str(),
                       shape.threads, shape.sharedBytes);
    grids.push_back(blocks);
  }
  return driver->synchronize(); // the tables' bytes go
}

Status GpuExecutable::sendStep(EntryKind kind, const LatheStep &s) {
  const Program &p = program;
  staging.resize(sizeof(LatheStep));
  LatheStep device = s;
  device.size = sizeof(LatheStep);
  // Appends |bytes| and returns where they will be on the device.
  auto put = [&](const void *from, uint64_t bytes) -> uint64_t {
    size_t at = (staging.size() + 15) / 16 * 16;
    staging.resize(at + bytes);
    if (bytes) std::memcpy(staging.data() + at, from, bytes);
    return state + at;
  };
  auto array = [&](const int32_t *from, uint64_t n) { return reinterpret_cast<const int32_t *>(from ? put(from, 4 * n) : 0); };
  device.token = array(s.token, s.rows);
  device.position = array(s.position, s.rows);
  device.slot = array(s.slot, s.rows);
  // Only sequences that have rows in the step are sent, so that what is sent is bounded by the rows.
  dense.assign(s.sequences, -1);
  sequenceIds.clear();
  used.clear();
  for (uint32_t r = 0; s.sequence && r < s.rows; ++r) {
    int32_t &id = dense[static_cast<size_t>(s.sequence[r])];
    if (id < 0) {
      id = static_cast<int32_t>(used.size());
      used.push_back(static_cast<uint32_t>(s.sequence[r]));
    }
    sequenceIds.push_back(id);
  }
  device.sequence = array(sequenceIds.data(), sequenceIds.size());
  device.sequences = static_cast<uint32_t>(used.size());
  device.parent = array(s.parent, s.rows);
  device.adapter = device.chosenBy = nullptr; // checkStep()
  device.outRow = array(s.outRow, s.outRows);
  device.bitmask = nullptr; // sampling is the host's
  if (s.embedding) {
    embeddingRows.assign(s.rows, 0);
    for (uint32_t r = 0; r < s.rows; ++r)
      if (s.embedding[r]) embeddingRows[r] = put(s.embedding[r], 4ull * p.hiddenSize);
    device.embedding = reinterpret_cast<const float *const *>(put(embeddingRows.data(), 8ull * s.rows));
  }
  // Only a caller of the draft program has tables of its groups.
  size_t groups = kind == EntryKind::draft || kind == EntryKind::draftHead ? p.kvGroups.size() : p.stepGroups();
  for (size_t g = 0; g < groups && s.blockTable; ++g) {
    uint32_t most = (p.maxSeq + p.kvGroups[g].pageTokens - 1) / p.kvGroups[g].pageTokens;
    strides[g] = std::min(s.tableStride[g], most);
    tables[g] = put(nullptr, 0);
    for (uint32_t q : used) {
      const auto *row = reinterpret_cast<const uint8_t *>(s.blockTable[g] + uint64_t(q) * s.tableStride[g]);
      staging.insert(staging.end(), row, row + 4ull * strides[g]);
    }
  }
  device.blockTable = reinterpret_cast<const int32_t *const *>(put(tables.data(), 8 * tables.size()));
  device.tableStride = reinterpret_cast<const uint32_t *>(put(strides.data(), 4 * strides.size()));
  std::memcpy(staging.data(), &device, sizeof device);
  if (staging.size() > stateCapacity)
    return makeError(StatusCode::invalidArgument, "expected a step state of at most %" PRIu64 " bytes, found %zu", stateCapacity, staging.size());
  return driver->upload(state, staging);
}

Result<Ticket> GpuExecutable::submit(EntryKind kind, const LatheStep &step) {
  const Entry *found = entries[static_cast<int>(kind)];
  if (!found) return makeError(StatusCode::unsupported, "the program has no entry '%s'", toString(kind));
  const Entry &entry = *found;
  uint32_t rows = runsRows(kind) ? step.rows : step.outRows;
  auto wide = std::find_if(entry.buckets.begin(), entry.buckets.end(), [&](const Bucket &b) { return b.maxRows >= rows; });
  if (rows == 0 || wide == entry.buckets.end())
    return makeError(StatusCode::invalidArgument, "expected 1 to %u rows in entry '%s', found %u", entry.buckets.back().maxRows, entry.name.c_str(), rows);
  LATHE_RETURN_IF_ERROR(checkStep(program, step, runsRows(kind)));
  LATHE_RETURN_IF_ERROR(sendStep(kind, step));
  // The head's row blocks are blocks of output rows.
  LatheStep counted = step;
  if (!runsRows(kind)) counted.rows = step.outRows;
  // All that differs between two steps of as many rows is in the step's state, so their launches are the same.
  const MegakernelBucket *mega = megakernelOf(*wide);
  const bool single = mega && mega->pieces.size() == 1; // one launch needs no graph
  const bool keeps = !oneByOne && !profiling && !single && rows <= keptRows && std::all_of(&program.launches[wide->firstLaunch], &program.launches[wide->firstLaunch] + wide->launchCount, [&](const Launch &l) {
    return l.itemKind != ItemKind::perRowChunk && (l.itemKind != ItemKind::perOutRow || !runsRows(kind));
  });
  const uint64_t key = uint64_t(kind) << 32 | rows;
  bool done = false;
  if (keeps) {
    LATHE_ASSIGN_OR_RETURN(done, driver->replay(key));
    if (!done) LATHE_RETURN_IF_ERROR(driver->record());
  }
  if (!done) {
    Status started = start(*wide, counted);
    if (!started.ok()) {
      if (keeps) driver->forget();
      return started;
    }
    if (keeps) LATHE_RETURN_IF_ERROR(driver->keep(key));
  }
  std::fill(logitsReady.begin(), logitsReady.end(), false);
  choicesReady = false;
  if (kind == EntryKind::headChoices) choiceRows = rows;
  if (kind == EntryKind::step) stepRows = rows;
  std::fill(draftReady.begin(), draftReady.end(), false);
  std::fill(embeddingReady.begin(), embeddingReady.end(), false);
  if (runsRows(kind)) {
    hiddenAll = false;
    for (auto *ready : {&hiddenReady, &featureReady, &ownReady}) std::fill(ready->begin(), ready->end(), false);
  }
  return ++lastTicket;
}

Status GpuExecutable::start(const Bucket &bucket, const LatheStep &counted) {
  using Clock = std::chrono::steady_clock;
  bool overlaps = false; // the first launch comes after the step's state, which is a copy
  auto startOne = [&](uint32_t i) -> Status {
    const Launch &l = program.launches[i];
    uint64_t items = launchItems(l, counted);
    if (items == 0) return Status();
    if (items > 0x7fffffff) return makeError(StatusCode::invalidArgument, "launch '%s': expected at most 2147483647 blocks, found %" PRIu64, program.names[l.name].c_str(), items);
    launchArgs.assign(args.begin() + l.firstArg, args.begin() + l.firstArg + l.argCount);
    launchArgs.push_back(state);
    const BlockShape &shape = program.blocks[l.kernel];
    auto before = profiling ? Clock::now() : Clock::time_point();
    Status s = driver->launch(l.kernel, static_cast<uint32_t>(items), shape.threads, shape.sharedBytes, launchArgs, overlaps);
    if (!s.ok()) return std::move(s).at("launch '" + program.names[l.name] + "'");
    overlaps = waits && !profiling;
    if (!profiling) return Status();
    LATHE_RETURN_IF_ERROR(driver->synchronize());
    double seconds = std::chrono::duration<double>(Clock::now() - before).count();
    LaunchProfile &profile = profiles[i];
    profile.fastest = profile.calls ? std::min(profile.fastest, seconds) : seconds;
    profile.calls += 1;
    profile.seconds += seconds;
    return Status();
  };
  const MegakernelBucket *mega = megakernelOf(bucket);
  if (!mega) {
    for (uint32_t i = bucket.firstLaunch, end = i + bucket.launchCount; i < end; ++i) LATHE_RETURN_IF_ERROR(startOne(i));
    return Status();
  }
  const Megakernel &m = program.megakernels[mega->megakernel];
  const BlockShape &shape = program.blocks[m.kernel];
  const uint64_t counter = counters + mega->megakernel * megakernelCounterBytes;
  for (const LaunchPiece &piece : mega->pieces) {
    if (!piece.together) {
      LATHE_RETURN_IF_ERROR(startOne(piece.first));
      continue;
    }
    launchArgs.assign({launchTables + piece.table, counter, state});
    Status s = driver->launchTogether(m.kernel, grids[mega->megakernel], shape.threads, shape.sharedBytes, launchArgs);
    if (!s.ok()) {
      (void)driver->fill(counter, 0, megakernelCounterBytes); // some blocks may have arrived
      return std::move(s).at("megakernel '" + program.kernels[m.kernel] + "'");
    }
    overlaps = waits;
  }
  return Status();
}

} // namespace

Result<std::unique_ptr<Executable>> prepareOnGpu(std::unique_ptr<GpuDriver> driver, std::shared_ptr<LoadedArtifact> artifact, const ExecutableOptions &options) {
  if (artifact->graph()) {
    if (options.plan == DevicePlan::megakernel)
      return makeError(StatusCode::failedPrecondition, "expected a language model for a step by megakernels, found a graph that is not raised to one, whose kernels are launched one by one");
    LATHE_ASSIGN_OR_RETURN(GpuCode code, codeFor(*artifact, *driver));
    LATHE_ASSIGN_OR_RETURN(auto memory, makeGpuGraphMemory(std::move(driver), code.ptx, code.cubin, artifact->program().kernels));
    return makeGraphExecutable(std::move(artifact), std::move(memory));
  }
  auto e = std::make_unique<GpuExecutable>(std::move(driver), std::move(artifact));
  LATHE_RETURN_IF_ERROR(e->create(options));
  return std::unique_ptr<Executable>(std::move(e));
}

} // namespace lathe::runtime
