//===- GpuGraphMemory.cpp ---------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/gpu/GpuGraphMemory.h"
#include <algorithm>
#include <cstring>
#include <map>

namespace lathe::runtime {
namespace {

class GpuGraphMemory : public GraphMemory {
public:
  explicit GpuGraphMemory(std::unique_ptr<GpuDriver> d) : driver(std::move(d)) {}
  ~GpuGraphMemory() override {
    if (status) driver->release(status);
  }
  Status create(std::string_view ptx, std::span<const uint8_t> cubin, const std::vector<std::string> &names) {
    kernels = names.size();
    LATHE_RETURN_IF_ERROR(driver->load(ptx, cubin, names, std::vector<uint32_t>(kernels, 0)));
    LATHE_ASSIGN_OR_RETURN(status, driver->allocate(8, "state of the graph's checks"));
    return driver->fill(status, 0, 8);
  }

  void *allocate(uint64_t bytes) override {
    auto address = driver->allocate(std::max<uint64_t>(bytes, 1), "tensors of the graph");
    return address.ok() ? reinterpret_cast<void *>(*address) : nullptr;
  }
  void release(void *address) override { driver->release(at(address)); }
  Status copy(void *to, const void *from, uint64_t bytes) override { return driver->copy(at(to), at(from), bytes); }
  Result<const uint8_t *> view(const void *address, uint64_t bytes, std::vector<uint8_t> &buffer) override {
    buffer.resize(bytes);
    if (bytes) LATHE_RETURN_IF_ERROR(driver->download(buffer, at(address)));
    return static_cast<const uint8_t *>(buffer.data());
  }
  Result<const void *> share(std::span<const uint8_t> bytes, const char *what) override {
    if (bytes.empty()) return static_cast<const void *>(nullptr);
    auto [it, made] = shared.try_emplace(bytes.data(), 0);
    if (made) {
      auto address = driver->share(bytes, what, {}); // one weight of many
      if (!address.ok()) {
        shared.erase(it);
        return address.status();
      }
      it->second = *address;
    }
    return reinterpret_cast<const void *>(it->second);
  }
  bool onHost() const override { return false; }
  Status upload(void *to, std::span<const uint8_t> bytes) override { return bytes.empty() ? Status() : driver->upload(at(to), bytes); }

  Result<int64_t> launch(int64_t kernel, bool checked, int64_t items, std::span<const int64_t> arguments) override {
    if (kernel < 0 || static_cast<uint64_t>(kernel) >= kernels)
      return makeError(StatusCode::dataLoss, "expected one of the graph's %zu kernels, found number %lld; compile the model again", kernels, static_cast<long long>(kernel));
    if (items <= 0) return -1;
    int64_t blocks = (items - 1) / graphBlockThreads + 1;
    if (blocks > 0x7fffffff)
      return makeError(StatusCode::resourceExhausted, "expected tensors of at most %lld elements in a graph, found %lld", static_cast<long long>(0x7fffffffLL * graphBlockThreads),
                       static_cast<long long>(items));
    words.assign(arguments.begin(), arguments.end());
    words.push_back(status);
    LATHE_RETURN_IF_ERROR(driver->launch(static_cast<uint32_t>(kernel), static_cast<uint32_t>(blocks), graphBlockThreads, 0, words, false));
    if (!checked) return -1;
    int64_t found = 0;
    LATHE_RETURN_IF_ERROR(read(reinterpret_cast<const void *>(status), 8, found));
    if (found) LATHE_RETURN_IF_ERROR(driver->fill(status, 0, 8));
    return found - 1;
  }
  Status read(const void *from, uint64_t bytes, int64_t &value) override { return driver->download({reinterpret_cast<uint8_t *>(&value), bytes}, at(from)); }

private:
  static uint64_t at(const void *address) { return reinterpret_cast<uint64_t>(address); }

  std::unique_ptr<GpuDriver> driver;
  size_t kernels = 0;
  uint64_t status = 0; ///< 0, or a failed check's number + 1
  std::map<const void *, uint64_t> shared;
  std::vector<uint64_t> words;
};

} // namespace

Result<std::unique_ptr<GraphMemory>> makeGpuGraphMemory(std::unique_ptr<GpuDriver> driver, std::string_view ptx, std::span<const uint8_t> cubin,
                                                        const std::vector<std::string> &kernels) {
  auto memory = std::make_unique<GpuGraphMemory>(std::move(driver));
  LATHE_RETURN_IF_ERROR(memory->create(ptx, cubin, kernels));
  return std::unique_ptr<GraphMemory>(std::move(memory));
}

} // namespace lathe::runtime
