//===- GraphCall.h - one call of a general graph's code ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// lathe_graph (lathe/artifact/Graph.h) asks for memory and leaves by callbacks; here is what stands behind them, for tensors in
// this process's memory and, by runtime/device/gpu/GpuGraphMemory.h, for tensors of a GPU.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Graph.h"
#include "lathe/base/Status.h"
#include <csetjmp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace lathe::runtime {

/// Where tensors are. Addresses are the device's. One thread at a time.
class GraphMemory {
public:
  virtual ~GraphMemory() = default;
  /// Null: there is no more.
  virtual void *allocate(uint64_t bytes) = 0;
  virtual void release(void *address) = 0;
  /// Ranges that do not overlap.
  virtual Status copy(void *to, const void *from, uint64_t bytes) = 0;
  /// |bytes| at |address| for the host to read: themselves, or a copy in |buffer|.
  virtual Result<const uint8_t *> view(const void *address, uint64_t bytes, std::vector<uint8_t> &buffer) = 0;
  /// Bytes of the host that code only reads, for as long as this lives: themselves, or a copy, which is made once for each address.
  virtual Result<const void *> share(std::span<const uint8_t> bytes, const char *what) = 0;
  /// Whether code reads the host's memory.
  virtual bool onHost() const { return true; }
  virtual Status upload(void *to, std::span<const uint8_t> bytes) = 0;

  // What code for a GPU asks for (LatheGraphCall). An error ends the call.
  /// A number that is not negative: of the check that failed.
  virtual Result<int64_t> launch(int64_t kernel, bool checked, int64_t items, std::span<const int64_t> arguments);
  virtual Status read(const void *from, uint64_t bytes, int64_t &value);
};

/// malloc's.
std::unique_ptr<GraphMemory> makeHostGraphMemory();

/// Calls a graph's function and owns what it allocates until it is taken.
class GraphCall {
public:
  explicit GraphCall(GraphMemory &m) : memory(m) {}
  ~GraphCall() { freeAll(); }
  GraphCall(const GraphCall &) = delete;
  GraphCall &operator=(const GraphCall &) = delete;

  /// Calls |function|; |checks| are the texts of its failures. After an error everything it allocated is freed. Errors: invalidArgument with
  /// a check's text, resourceExhausted, what the memory says. One call at a time, whichever thread makes it.
  Status run(LatheGraphFn function, void *const *inputs, void *results, const std::vector<std::string> &checks);
  /// Bytes of the host as a tensor's, until the end of the call.
  Result<const void *> place(std::span<const uint8_t> bytes);
  /// Whether |allocated| was the call's; it is the caller's now.
  bool take(void *allocated) { return owned.erase(allocated) != 0; }
  void freeAll();

private:
  static void *allocate(void *context, uint64_t bytes);
  static void release(void *context, void *p);
  static void fail(void *context, int64_t check);
  static void launch(void *context, int64_t kernel, int64_t checked, int64_t items, const int64_t *arguments, int64_t count);
  static int64_t read(void *context, const void *device, int64_t bytes);
  static void write(void *context, void *device, int64_t bytes, int64_t value);
  static void copy(void *context, void *to, const void *from, int64_t bytes);
  static void *constant(void *context, const void *host, int64_t bytes);
  bool enter(LatheGraphFn function, const LatheGraphCall &call);
  /// Whether the call may go on.
  bool good(Status status);

  GraphMemory &memory;
  // Not on the stack of who calls setjmp: a local that changes before longjmp has no value after it.
  jmp_buf leave;
  std::unordered_set<void *> owned;
  int64_t check = -1;
  Status error;
};

} // namespace lathe::runtime
