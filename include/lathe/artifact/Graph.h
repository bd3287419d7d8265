//===- Graph.h - the call of a compiled general graph --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A graph that has no kernels of its own (docs/onnx-operators.md) is one function over tensors in memory. Elements lie in
// row-major order; bool and types below 8 bits take a byte each. This header is shared by compiler and runtime and is plain C++.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>

namespace lathe {

/// A tensor argument or result as MLIR lays it out: this head, then sizes[rank] and strides[rank] (int64 each).
struct LatheTensorHead {
  void *allocated;
  void *data; ///< element 0 is at data + offset elements
  int64_t offset;
};
/// Bytes of a tensor of |rank| dimensions in that layout.
constexpr uint64_t tensorHeadBytes(uint32_t rank) { return sizeof(LatheTensorHead) + uint64_t(rank) * 16; }

/// One call. Nothing in it is kept after the call.
struct LatheGraphCall {
  uint32_t size; ///< of this struct
  uint32_t reserved;
  void *context;
  /// Memory for tensors, aligned to 64 bytes. Must not return null: a call that has no memory leaves as |fail| does.
  void *(*allocate)(void *context, uint64_t bytes);
  void (*release)(void *context, void *memory);
  /// The graph found a tensor that it cannot work with; |check| is an index into the graph's texts. Must not return.
  void (*fail)(void *context, int64_t check);
  /// One tensor for each input and weight, in order.
  void *const *inputs;
  /// Where the result tensors go, back to back. Their memory comes from |allocate| and belongs to the caller, or is an input's.
  void *results;
  /// The rest is for code whose loops run on a GPU (docs/onnx-operators.md, "On a GPU"): all tensors are then in device memory, which |allocate|
  /// gives and the code only reaches through these. Null for other code. Each may leave as |fail| does.
  /// Runs kernel |kernel| for |items| items with |count| arguments of 64 bits each. If |checked|, the kernel may find what |fail| is told of.
  void (*launch)(void *context, int64_t kernel, int64_t checked, int64_t items, const int64_t *arguments, int64_t count);
  /// |bytes| (1 to 8) of device memory, as the low ones.
  int64_t (*read)(void *context, const void *device, int64_t bytes);
  void (*write)(void *context, void *device, int64_t bytes, int64_t value);
  void (*copy)(void *context, void *to, const void *from, int64_t bytes); ///< within device memory; ranges do not overlap
  /// Where a constant of the code is in device memory; the same for every call with |host|.
  void *(*constant)(void *context, const void *host, int64_t bytes);
};

/// Threads of a block of a general graph's kernels: one thread an item.
inline constexpr uint32_t graphBlockThreads = 128;

/// "lathe_graph" of a code section; of a GPU's, which holds what the host does. Not reentrant: one call at a time for each loaded code section.
using LatheGraphFn = void (*)(const LatheGraphCall *call);

/// "lathe_graph_interface" of a code section: int64 words that say what the function takes and gives, so that nothing else has to be
/// believed before it is entered: how many words follow, inputs, results, then for each tensor the bytes of an element, the rank
/// and the sizes (-1: any).
inline constexpr char graphInterfaceSymbol[] = "lathe_graph_interface";

} // namespace lathe
