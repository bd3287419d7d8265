//===- GraphCall.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// longjmp leaves a callback from a frame without destructors: what has any is in the functions that it calls.
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/GraphCall.h"
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace lathe::runtime {

namespace {

class HostGraphMemory : public GraphMemory {
public:
  void *allocate(uint64_t bytes) override { return bytes > (uint64_t(1) << 40) ? nullptr : std::aligned_alloc(64, (bytes + 127) / 64 * 64); }
  void release(void *address) override { std::free(address); }
  Status copy(void *to, const void *from, uint64_t bytes) override {
    std::memcpy(to, from, bytes);
    return Status();
  }
  Result<const uint8_t *> view(const void *address, uint64_t, std::vector<uint8_t> &) override { return static_cast<const uint8_t *>(address); }
  Result<const void *> share(std::span<const uint8_t> bytes, const char *) override { return static_cast<const void *>(bytes.data()); }
  Status upload(void *to, std::span<const uint8_t> bytes) override { return copy(to, bytes.data(), bytes.size()); }
};

} // namespace

Result<int64_t> GraphMemory::launch(int64_t, bool, int64_t, std::span<const int64_t>) { return Status(StatusCode::internal, "a graph for the CPU launches no kernels"); }
Status GraphMemory::read(const void *, uint64_t, int64_t &) { return Status(StatusCode::internal, "a graph for the CPU reads its memory itself"); }

std::unique_ptr<GraphMemory> makeHostGraphMemory() { return std::make_unique<HostGraphMemory>(); }

bool GraphCall::good(Status status) {
  if (status.ok()) return true;
  error = std::move(status);
  return false;
}

void GraphCall::freeAll() {
  for (void *p : owned)
    memory.release(p);
  owned.clear();
}

void *GraphCall::allocate(void *context, uint64_t bytes) {
  auto *self = static_cast<GraphCall *>(context);
  void *p = self->memory.allocate(bytes);
  if (!p) {
    self->good(Status(StatusCode::resourceExhausted, "not enough memory for a step of the graph"));
    longjmp(self->leave, 1);
  }
  self->owned.insert(p);
  return p;
}
void GraphCall::release(void *context, void *p) {
  auto *self = static_cast<GraphCall *>(context);
  if (self->take(p)) self->memory.release(p);
}
void GraphCall::fail(void *context, int64_t number) {
  auto *self = static_cast<GraphCall *>(context);
  self->check = number;
  longjmp(self->leave, 1);
}
void GraphCall::launch(void *context, int64_t kernel, int64_t checked, int64_t items, const int64_t *arguments, int64_t count) {
  auto *self = static_cast<GraphCall *>(context);
  auto run = [&] {
    auto found = self->memory.launch(kernel, checked != 0, items, {arguments, static_cast<size_t>(count)});
    if (found.ok()) self->check = *found;
    return self->good(found.status()) && self->check < 0;
  };
  if (!run()) longjmp(self->leave, 1);
}
int64_t GraphCall::read(void *context, const void *device, int64_t bytes) {
  auto *self = static_cast<GraphCall *>(context);
  int64_t value = 0;
  if (!self->good(self->memory.read(device, static_cast<uint64_t>(bytes), value))) longjmp(self->leave, 1);
  return value;
}
void GraphCall::write(void *context, void *device, int64_t bytes, int64_t value) {
  auto *self = static_cast<GraphCall *>(context);
  // Little-endian: the low bytes are the first.
  if (!self->good(self->memory.upload(device, {reinterpret_cast<const uint8_t *>(&value), static_cast<size_t>(bytes)}))) longjmp(self->leave, 1);
}
void GraphCall::copy(void *context, void *to, const void *from, int64_t bytes) {
  auto *self = static_cast<GraphCall *>(context);
  if (bytes && !self->good(self->memory.copy(to, from, static_cast<uint64_t>(bytes)))) longjmp(self->leave, 1);
}
void *GraphCall::constant(void *context, const void *host, int64_t bytes) {
  auto *self = static_cast<GraphCall *>(context);
  const void *address = nullptr;
  auto run = [&] {
    auto shared = self->memory.share({static_cast<const uint8_t *>(host), static_cast<size_t>(bytes)}, "a constant");
    if (shared.ok()) address = *shared;
    return self->good(shared.status());
  };
  if (!run()) longjmp(self->leave, 1);
  return const_cast<void *>(address);
}

/// False: a callback left it.
bool GraphCall::enter(LatheGraphFn function, const LatheGraphCall &call) {
  // The code keeps the call in a global of its own: one call at a time, whichever engine makes it.
  static std::mutex oneCall;
  std::lock_guard<std::mutex> lock(oneCall);
  // The frames between here and the callbacks are compiled code without destructors.
  if (setjmp(leave)) return false;
  function(&call);
  return true;
}

Status GraphCall::run(LatheGraphFn function, void *const *inputs, void *results, const std::vector<std::string> &checks) {
  check = -1;
  error = Status();
  LatheGraphCall call{sizeof call, 0, this, allocate, release, fail, inputs, results, nullptr, nullptr, nullptr, nullptr, nullptr};
  if (!memory.onHost()) call.launch = launch, call.read = read, call.write = write, call.copy = copy, call.constant = constant;
  if (enter(function, call)) return Status();
  freeAll();
  if (!error.ok()) return error;
  auto number = static_cast<uint64_t>(check);
  return Status(StatusCode::invalidArgument, number < checks.size() ? checks[number] : "the graph failed a check that it does not name");
}

Result<const void *> GraphCall::place(std::span<const uint8_t> bytes) {
  if (memory.onHost()) return static_cast<const void *>(bytes.data());
  void *p = memory.allocate(bytes.size());
  if (!p) return Status(StatusCode::resourceExhausted, "not enough memory for a step of the graph");
  owned.insert(p);
  LATHE_RETURN_IF_ERROR(memory.upload(p, bytes));
  return static_cast<const void *>(p);
}

} // namespace lathe::runtime
