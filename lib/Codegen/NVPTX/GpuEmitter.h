//===- GpuEmitter.h - Emitter for one thread of a block -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Emitter's scalar layer (the arithmetic is the same code as on x86) plus what a thread needs: its place, shared
// memory, barriers, shuffles, mma. Pointers are global (address space 1); sharedMemory() gives address space 3.
//===----------------------------------------------------------------------===//
#pragma once
#include "Common/KernelTools.h"
#include "NVPTX/Capabilities.h"
#include "NVPTX/Layout.h"
#include <optional>

namespace lathe::codegen::nvptx {

/// How a kernel uses a pointer argument. |constant|, |in|: read only, and nothing else that the kernel writes overlaps it. |constant|: nor does any
/// other kernel write it. It is loaded through the read-only path; |in| is where launches do not overlap, so that nothing writes it while
/// the kernel runs.
enum class Use { constant, in, inout };

/// Weights that a block reads whatever ran before, so that they may be on their way to the L2 while it waits: argument |arg| is |units| runs of |unitBytes|, the last of
/// which ends with |total|; blocks of |share| in a row take run after run, with equal parts of it. Multiples of 16.
struct Ahead {
  int64_t arg = 0, units = 0, unitBytes = 0, total = 0, share = 1;
};
/// Of a run, at most: all that is resident should fit into the L2.
inline constexpr int64_t aheadBytes = 64 << 10;

/// On a module: what is emitted into it are bodies of a megakernel (Megakernel.h) instead of kernels.
inline constexpr StringLiteral bodiesAttribute = "lathe.bodies";
/// On a body: threads of its blocks, the bytes of shared memory that a block has, and the numbers of its Ahead if it has one.
inline constexpr StringLiteral bodyThreads = "lathe.threads", bodyShared = "lathe.shared_bytes", bodyAhead = "lathe.ahead";
/// Threads of a megakernel's block, and so the most that a body's may have. Twice as many would leave a thread 128 registers, and attention takes more.
inline constexpr int64_t megakernelThreads = 256;

struct GpuEmitter : Emitter {
  const Chip &chip;
  int64_t threads; ///< of a block, a multiple of 32

  /// Opens a kernel: one pointer per entry of |uses|, then the step. Blocks are one-dimensional. On chips with programmatic dependent launch
  /// every kernel lets the one after it start and waits for those before it, before it touches anything but constants; those of |ahead| it asks for first.
  /// In a module of bodies: a function that does one block. After the step it takes the block's number, the thread's within the block and the block's
  /// barrier (i32), and its shared memory.
  GpuEmitter(ModuleOp module, StringRef symbol, const Chip &chip, int64_t threads, ArrayRef<Use> uses, std::optional<Ahead> ahead = {});
  void finish() { LLVM::ReturnOp::create(b, loc, ValueRange()); }

  Value arg(int i) { return params[i]; }
  //===-- place ----------------------------------------------------------------------------------===//
  Value tid, lane, warp, block; ///< i64
  Value lane32;                 ///< i32
  int64_t warps() const { return threads / 32; }
  /// |body|(i) for i = tid, tid + threads, ... below |n|. Threads diverge: no barrier and no shuffle inside.
  void eachThread(Value n, llvm::function_ref<void(Value i)> body) { loop(tid, n, threads, body); }
  /// |body|(i) for i = warp, warp + warps, ... below |n|: whole warps, so shuffles are fine, barriers are not.
  void eachWarp(Value n, llvm::function_ref<void(Value i)> body) { loop(warp, n, warps(), body); }

  //===-- shared memory and synchronisation ------------------------------------------------------===//
  /// |bytes| of shared memory of this kernel's block, as a pointer in address space 3: static, or a body's own part of the megakernel's.
  Value sharedMemory(int64_t bytes, int64_t align = 16);
  /// The block's dynamic shared memory (LaunchShape::sharedBytes).
  Value dynamicSharedMemory(int64_t align);
  /// Asks for |bytes| from |p| on (multiples of 16) to come to the L2: by thread 0, or, on chips without bulk copies, by all threads of a block of |threads|.
  void prefetchRun(Value p, Value bytes);
  /// Bytes of run |unit|, at most aheadBytes.
  Value aheadSize(const Ahead &a, Value unit);
  /// Blocks of |n| in a row are a cluster.
  void setCluster(int64_t n);
  void barrier();
  /// The barrier numbered |barrier| (i32) of |count| threads.
  void syncThreads(Value barrier, int64_t count);
  void syncWarp();
  /// |v| (i32 or f32) of lane (own lane xor |mask|).
  Value shuffleXor(Value v, int64_t mask);
  /// |v| of lane |from| (a constant).
  Value broadcastLane(Value v, int64_t from);
  /// Over all 32 lanes, in every lane: lanes at distance |from|, |from| / 2, ... 1 are combined (|from| 16: the warp; 8: each half).
  Value butterfly(Value v, int64_t from, llvm::function_ref<Value(Value, Value)> op);
  Value warpMax(Value v) { return butterfly(v, 16, [&](Value x, Value y) { return fmax(x, y); }); }
  Value warpMin(Value v) { return butterfly(v, 16, [&](Value x, Value y) { return fmin(x, y); }); }
  /// tree(v) of docs/exactness.md over lanes 0..15 and, separately, 16..31.
  Value halfTree(Value v) { return butterfly(v, 8, [&](Value x, Value y) { return fadd(x, y); }); }

  //===-- bytes and matrices ---------------------------------------------------------------------===//
  /// Bytes of the pair {y, x} (x low) chosen by the nibbles of |selector|.
  Value permute(Value x, Value y, int64_t selector) { return permute(x, y, ci(i32, selector)); }
  Value permute(Value x, Value y, Value selector) { return intrinsic("llvm.nvvm.prmt", i32, {x, y, selector}); }
  /// mma.sync of shape and types |name| ("m16n8k32.row.col.s8"); the four values of the accumulator fragment.
  Values mma(StringRef name, ValueRange a, ValueRange b, ValueRange c);
  /// Lane l's part of a fragment: rows l / 4 (and + 8), columns 2 (l % 4) (and + 1).
  Value fragmentRow() { return shru(lane, 2); }
  Value fragmentColumn() { return andc(lane, 3); }

  /// Element |i| of a vector (GpuEmitter::lane is the thread's).
  Value elementOf(Value v, int64_t i) { return Emitter::lane(v, i); }
  /// Whether bf16 activations lie as wgmma reads them (Layout.h). Then operands of mma.sync have k = 4t + (i xor t) of 16 as element i of lane (., t).
  bool wgmmaOrder() const { return chip.has(Feature::wgmma); }
  /// One or more PTX instructions that have no intrinsic or whose order matters; |results|: one type, several or none. Constraints as in LLVM's inline
  /// assembly, but for the clobber of memory, which is added. Lower.cpp looks every instruction up in the capability table.
  Values ptx(const Twine &text, TypeRange results, ValueRange operands, const Twine &constraints);

  /// Between i32 and a pair of 16-bit floats.
  Value bitcastPair(Type to, Value v);

  //===-- small pieces ---------------------------------------------------------------------------===//
  /// f32 at p + 4 * index.
  Value ldf(Value p, Value index) { return ld(f32, gep(p, shl(index, 2)), 0, 4); }
  void stf(Value v, Value p, Value index) { st(v, gep(p, shl(index, 2)), 0, 4); }
  Value lt(Value x, int64_t k) { return cmp(arith::CmpIPredicate::slt, x, constLikeI(x, k)); }
  /// |v| where |ok|, else +0.
  Value orZero(Value ok, Value v) { return select(ok, v, cf(0)); }
  /// The float at element |index| of |p| when |index| < n, else 0, without touching memory beyond.
  Value ldfGuarded(Value p, Value index, int64_t n);
  Values ifValues(Value cond, TypeRange types, llvm::function_ref<Values()> yes, llvm::function_ref<Values()> no) {
    return ifElse(cond, types, yes, no);
  }

  /// Writes group |g| of row |row|: every lane of the warp holds one value.
  void storeGroup(Value buffer, const ActLayout &l, ActFormat format, Value row, Value g, Value x);
  /// One stored KV element, widened. |p| is the element's address.
  Value loadElement(Value p, KVFormat f, Value scale);
  void storeElement(Value x, Value p, KVFormat f);
  /// The e4m3 values of the low and the high byte of an i16, as two f16.
  Value e4m3ToHalf(Value pair) { return intrinsic("llvm.nvvm.e4m3x2.to.f16x2.rn", vec(2, f16), {pair}); }
  /// The e4m3 numbers, not NaN, in the upper bytes of both halves of |w| (an i32) as two bf16, exactly, on every chip; the lower bytes are not looked at.
  Value e4m3ToBf16(Value w);

private:
  void startInTurn(const std::optional<Ahead> &ahead);

  ModuleOp module;
  std::string name;
  int sharedCount = 0;
  SmallVector<Value> params;
  LLVM::LLVMFuncOp function;
  Value bodyBarrier, bodyMemory; ///< of a body; null in a kernel
  int64_t bodyBytes = 0;
};

/// Whether |module| is for bodies of a megakernel.
inline bool isForBodies(ModuleOp module) { return module->hasAttr(bodiesAttribute); }

/// Checks that every kernel makes: what every family needs of its sizes.
LogicalResult checkRowSize(ModuleOp module, StringRef symbol, int64_t k, int64_t stride);

} // namespace lathe::codegen::nvptx
