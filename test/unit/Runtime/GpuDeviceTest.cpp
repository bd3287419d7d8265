//===- GpuDeviceTest.cpp - a GPU's launch plan on a driver made of host memory ---===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Device memory is separate host memory, a launch calls the toy's x86 kernel for all blocks at once: what is tested is the step
// state, the arguments, the block counts and the copies.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "lathe/artifact/ProgramCodec.h"
#include "runtime/device/cuda/CudaApi.h"
#include "runtime/device/gpu/GpuExecutable.h"
#include "runtime/engine/Engine.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <map>

using namespace lathe;
using namespace lathe::artifact;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

/// What happened on a HostDriver; outlives it.
struct Record {
  std::map<std::string, uint64_t> blocks; ///< by kernel
  int live = 0;                           ///< allocations
  uint64_t failLaunch = UINT64_MAX, launches = 0, downloads = 0;
  bool failDownload = false;
};

class HostDriver : public GpuDriver {
public:
  HostDriver(Variant variant, Record &record) : variant(variant), record(record) {}
  ~HostDriver() override {
    if (library) dlclose(library);
  }
  const char *name() const override { return "host"; }
  bool runs(Variant v) const override { return v == variant; }
  Result<uint64_t> allocate(uint64_t bytes, const char *) override {
    auto memory = std::make_unique<uint8_t[]>(bytes + 64);
    std::memset(memory.get(), 0xff, bytes + 64); // undefined content
    uint64_t address = (reinterpret_cast<uint64_t>(memory.get()) + 63) & ~uint64_t(63);
    all[address] = std::move(memory);
    ++record.live;
    return address;
  }
  void release(uint64_t address) override { record.live -= int(all.erase(address)); }
  Result<uint64_t> share(std::span<const uint8_t> bytes, const char *what, const UploadProgress &told) override {
    LATHE_ASSIGN_OR_RETURN(uint64_t to, allocate(bytes.size(), what));
    shared.push_back(to);
    --record.live;
    LATHE_RETURN_IF_ERROR(upload(to, bytes));
    if (told) told(bytes.size(), bytes.size());
    return to;
  }
  Status upload(uint64_t to, std::span<const uint8_t> bytes) override { return copy(to, reinterpret_cast<uint64_t>(bytes.data()), bytes.size()); }
  Status download(std::span<uint8_t> to, uint64_t from) override {
    ++record.downloads;
    if (record.failDownload) return Status(StatusCode::internal, "the device stopped");
    return copy(reinterpret_cast<uint64_t>(to.data()), from, to.size());
  }
  Status copy(uint64_t to, uint64_t from, uint64_t bytes) override {
    if (bytes) std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
    return Status();
  }
  Status fill(uint64_t to, uint8_t value, uint64_t bytes) override {
    std::memset(reinterpret_cast<void *>(to), value, bytes);
    return Status();
  }
  Status load(std::string_view ptx, std::span<const uint8_t> cubin, const std::vector<std::string> &kernels, const std::vector<uint32_t> &sharedBytes) override {
    EXPECT_EQ(ptx, "toy ptx");
    EXPECT_EQ(cubin.size(), 3u);
    EXPECT_EQ(sharedBytes, std::vector<uint32_t>(kernels.size(), 16));
    std::vector<uint8_t> code = toyCode();
    std::ofstream("gpu-device-test.so", std::ios::binary).write(reinterpret_cast<const char *>(code.data()), std::streamsize(code.size()));
    library = dlopen("./gpu-device-test.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return Status(StatusCode::dataLoss, dlerror());
    std::remove("gpu-device-test.so"); // it is mapped
    names = kernels;
    for (const std::string &k : kernels) functions.push_back(reinterpret_cast<LatheKernelFn>(dlsym(library, k.c_str())));
    return Status();
  }
  Status launch(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args, bool overlaps) override {
    EXPECT_FALSE(overlaps); // the code does not wait
    if (record.launches++ == record.failLaunch) return Status(StatusCode::internal, "the device stopped");
    EXPECT_EQ(threads, 32u * (kernel + 1));
    EXPECT_EQ(sharedBytes, 16u);
    record.blocks[names[kernel]] += blocks;
    std::vector<uint8_t *> pointers;
    for (uint64_t a : args.first(args.size() - 1)) pointers.push_back(reinterpret_cast<uint8_t *>(a));
    alignas(64) uint8_t scratch[4096];
    functions[kernel](pointers.data(), reinterpret_cast<const LatheStep *>(args.back()), 0, blocks, 1, scratch);
    return Status();
  }
  Status synchronize() override { return Status(); }

private:
  Variant variant;
  Record &record;
  std::map<uint64_t, std::unique_ptr<uint8_t[]>> all;
  std::vector<uint64_t> shared;
  void *library = nullptr;
  std::vector<std::string> names;
  std::vector<LatheKernelFn> functions;
};

class HostDevice : public Device {
public:
  HostDevice(Variant variant, Record &record) : variant(variant), record(record) {}
  const char *name() const override { return "host"; }
  std::string gpuCode() const override { return artifact::toString(variant); }
  Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact, const ExecutableOptions &options) override {
    return prepareOnGpu(std::make_unique<HostDriver>(variant, record), std::move(artifact), options);
  }

private:
  Variant variant;
  Record &record;
};

const std::string path = "gpu-device-test.lathe";

Program gpuProgram(const ToyOptions &options) {
  Program p = toyProgram(options);
  for (size_t i = 0; i < p.kernels.size(); ++i) p.blocks.push_back({uint32_t(32 * (i + 1)), 16});
  return p;
}

void writeArtifact(const ToyOptions &options = {}, bool ptx = true) {
  auto writer = ArtifactWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (Variant v : {Variant::sm_80, Variant::sm_90a}) {
    ASSERT_TRUE(writer->addSection(SectionKind::program, v, encodeProgram(gpuProgram(options))).ok());
    std::string text = "toy ptx";
    std::vector<uint8_t> cubin{1, 2, 3};
    if (ptx) ASSERT_TRUE(writer->addSection(SectionKind::ptx, v, {reinterpret_cast<const uint8_t *>(text.data()), text.size()}).ok());
    ASSERT_TRUE(writer->addSection(SectionKind::cubin, v, cubin).ok());
  }
  ASSERT_TRUE(addToySections(*writer, options, toyProgram(options)).ok());
  ASSERT_TRUE(writer->finish().ok());
}

std::string message(const Status &s) { return s.message(); }

} // namespace

TEST(GpuDevice, RunsALaunchPlanLikeTheCpu) {
  writeArtifact();
  Record record;
  {
    HostDevice device(Variant::sm_90a, record);
    auto loaded = LoadedArtifact::load(path, {.variant = {}, .gpu = device.gpuCode()});
    ASSERT_TRUE(loaded.ok()) << message(loaded.status());
    EXPECT_EQ((*loaded)->variant(), Variant::sm_90a);
    EXPECT_TRUE((*loaded)->kernels().empty());
    std::vector<int32_t> tokens;
    for (int i = 0; i < 150; ++i) tokens.push_back((i * i + 7) % toyVocabulary);
    auto expected = toyLogits({}, tokens);
    EngineOptions options{.chunkRows = 13, .poisonFreeBlocks = true};
    options.shuffleBlocks = 5;
    options.maxSequences = 2;
    auto engine = Engine::create(*loaded, options, &device);
    ASSERT_TRUE(engine.ok()) << message(engine.status());
    EXPECT_GT((*engine)->executable().memoryBytes(), 1000u);
    (*engine)->executable().setProfiling(true);
    auto a = (*engine)->open(), b = (*engine)->open();
    size_t seen = 0;
    Work work[] = {{*a, tokens, OutputRows::all}, {*b, std::span(tokens).first(40), OutputRows::all}};
    Status status = (*engine)->forward(work, [&](size_t, size_t token, std::span<const float> row) {
      ++seen;
      EXPECT_EQ(std::memcmp(row.data(), expected[token].data(), row.size_bytes()), 0) << token;
      return Status();
    });
    EXPECT_TRUE(status.ok()) << message(status);
    EXPECT_EQ(seen, 190u);
    EXPECT_EQ(record.blocks.at((*engine)->program().kernels[0]), 190u); // a block a row
    EXPECT_FALSE((*engine)->executable().profile().empty());
  }
  EXPECT_EQ(record.live, 0);
}

TEST(GpuDevice, SendsOnlyTheSequencesOfTheStep) {
  writeArtifact();
  Record record;
  HostDevice device(Variant::sm_90a, record);
  auto loaded = LoadedArtifact::load(path, {.variant = {}, .gpu = device.gpuCode()});
  ASSERT_TRUE(loaded.ok()) << message(loaded.status());
  EngineOptions options;
  options.maxSequences = 300; // more than a step has rows
  options.kvTokens = 4096;
  auto engine = Engine::create(*loaded, options, &device);
  ASSERT_TRUE(engine.ok()) << message(engine.status());
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < options.maxSequences; ++i) ids.push_back(*(*engine)->open());
  std::vector<int32_t> tokens{3, 1, 4, 1, 5};
  auto expected = toyLogits({}, tokens);
  Work work[] = {{ids[299], tokens, OutputRows::all}, {ids[7], tokens, OutputRows::all}, {ids[150], tokens, OutputRows::all}};
  size_t seen = 0;
  Status status = (*engine)->forward(work, [&](size_t, size_t token, std::span<const float> row) {
    ++seen;
    EXPECT_EQ(std::memcmp(row.data(), expected[token].data(), row.size_bytes()), 0) << token;
    return Status();
  });
  EXPECT_TRUE(status.ok()) << message(status);
  EXPECT_EQ(seen, 15u);
}

TEST(GpuDevice, TheChoicesOfAStepAreOneDownload) {
  writeArtifact();
  Record record;
  HostDevice device(Variant::sm_90a, record);
  auto loaded = LoadedArtifact::load(path, {.variant = {}, .gpu = device.gpuCode()});
  ASSERT_TRUE(loaded.ok()) << message(loaded.status());
  EngineOptions options;
  options.maxSequences = 2;
  auto engine = Engine::create(*loaded, options, &device);
  ASSERT_TRUE(engine.ok()) << message(engine.status());
  std::vector<int32_t> tokens{3, 1, 4, 1, 5};
  auto expected = toyLogits({}, tokens);
  auto a = (*engine)->open(), b = (*engine)->open();
  Work work[] = {{*a, tokens, OutputRows::all}, {*b, std::span(tokens).first(3), OutputRows::all}};
  uint64_t before = record.downloads, seen = 0;
  Status status = (*engine)->forward(work, nullptr, nullptr, [&](size_t, size_t token, std::span<const float> choice) {
    ++seen;
    auto largest = std::max_element(expected[token].begin(), expected[token].end());
    EXPECT_EQ(choice[0], float(largest - expected[token].begin())) << token;
    EXPECT_EQ(choice[1], *largest);
    return Status();
  });
  EXPECT_TRUE(status.ok()) << message(status);
  EXPECT_EQ(seen, 8u);
  EXPECT_EQ(record.downloads, before + 1);
  record.failDownload = true; // no row of the step before is shown for one that did not come
  Work more[] = {{*b, std::span(tokens).last(2), OutputRows::all}};
  status = (*engine)->forward(more, nullptr, nullptr, [&](size_t, size_t, std::span<const float> choice) {
    EXPECT_TRUE(std::isnan(choice[0]));
    return Status();
  });
  EXPECT_TRUE(status.ok()) << message(status);
}

TEST(GpuDevice, CopiesAndFillsBlocks) {
  writeArtifact();
  Record record;
  HostDevice device(Variant::sm_80, record);
  auto loaded = LoadedArtifact::load(path, {.variant = {}, .gpu = "any"});
  ASSERT_TRUE(loaded.ok()) << message(loaded.status());
  EXPECT_EQ((*loaded)->variant(), Variant::sm_80); // the first of the file
  ExecutableOptions options{1, false, {4, 2}};
  uint64_t told = 0;
  options.uploading = [&](uint64_t done, uint64_t all) { told += done == all && all == (*loaded)->weights().size(); };
  auto e = device.prepare(*loaded, options);
  EXPECT_EQ(told, 1u);
  ASSERT_TRUE(e.ok()) << message(e.status());
  uint64_t bytes = (*loaded)->program().kvGroups[0].blockBytes;
  std::vector<uint8_t> in(bytes), out(bytes);
  for (size_t i = 0; i < bytes; ++i) in[i] = uint8_t(i * 7);
  ASSERT_TRUE((*e)->restoreBlock(0, 1, in).ok());
  ASSERT_TRUE((*e)->copyBlock(0, 1, 3).ok());
  ASSERT_TRUE((*e)->fillBlock(0, 1, 0x11).ok());
  ASSERT_TRUE((*e)->saveBlock(0, 3, out).ok());
  EXPECT_EQ(in, out);
  ASSERT_TRUE((*e)->saveBlock(0, 1, out).ok());
  EXPECT_EQ(out, std::vector<uint8_t>(bytes, 0x11));
  EXPECT_EQ((*e)->saveBlock(0, 4, out).code(), StatusCode::invalidArgument);
  EXPECT_EQ((*e)->fillBlock(9, 0, 0).code(), StatusCode::invalidArgument);
  EXPECT_EQ((*e)->copyBlock(0, 0, 4).code(), StatusCode::invalidArgument);
  LatheStep step{};
  EXPECT_NE(message((*e)->submit(EntryKind::step, step).status()).find("expected 1 to 64 rows in entry 'step', found 0"), std::string::npos);
}

TEST(GpuDevice, SaysWhatItCannotRun) {
  writeArtifact();
  Record record;
  auto cpu = LoadedArtifact::load(path);
  ASSERT_TRUE(cpu.ok()) << message(cpu.status());
  HostDevice host(Variant::sm_80, record);
  EXPECT_NE(message(host.prepare(*cpu, {1, false, {4, 2}}).status()).find("expected a GPU's code"), std::string::npos);
  auto other = LoadedArtifact::load(path, {.variant = {}, .gpu = "sm_100a,sm_90a"});
  ASSERT_TRUE(other.ok());
  EXPECT_NE(message(host.prepare(*other, {1, false, {4, 2}}).status()).find("device 'host' does not run code for sm_90a"), std::string::npos);
  EXPECT_NE(message(LoadedArtifact::load(path, {.variant = {}, .gpu = "sm_120a"}).status()).find("the artifact has no code for sm_120a, it has: sm_80, sm_90a"), std::string::npos);
  auto good = LoadedArtifact::load(path, {.variant = {}, .gpu = "sm_80"});
  EXPECT_NE(message(host.prepare(*good, {1, false, {4}}).status()).find("expected block counts of 2 KV groups, found 1"), std::string::npos);
  record.failLaunch = record.launches;
  auto e = host.prepare(*good, {1, false, {4, 2}});
  ASSERT_TRUE(e.ok());
  LatheStep step{};
  int32_t zero = 0;
  const int32_t *tables[] = {&zero, &zero};
  uint32_t strides[] = {1, 1};
  step.rows = step.sequences = 1;
  step.token = step.position = step.slot = step.sequence = &zero;
  step.blockTable = tables, step.tableStride = strides;
  EXPECT_NE(message((*e)->submit(EntryKind::step, step).status()).find("launch '"), std::string::npos);
  writeArtifact({}, false);
  auto noPtx = LoadedArtifact::load(path, {.variant = {}, .gpu = "sm_80"});
  EXPECT_NE(message(host.prepare(*noPtx, {1, false, {4, 2}}).status()).find("section 'ptx' for sm_80 is missing"), std::string::npos);
}

TEST(CudaDevice, SaysWhatIsMissing) {
  auto none = cuda::Api::load("libno-such-driver.so.1");
  EXPECT_EQ(none.status().code(), StatusCode::failedPrecondition);
  EXPECT_NE(message(none.status()).find("device 'cuda' needs NVIDIA's driver library, which cannot be loaded"), std::string::npos);
  EXPECT_NE(message(none.status()).find("'--device cpu' works without it"), std::string::npos);
  auto notCuda = cuda::Api::load("libc.so.6");
  EXPECT_NE(message(notCuda.status()).find("has no function 'cuInit'"), std::string::npos);
}
