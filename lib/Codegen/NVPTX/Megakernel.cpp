//===- Megakernel.cpp - many launches in one kernel ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A block of 256 threads is one place for blocks of 256 threads, or two for blocks of 128, and so on: each place has threads, a barrier and a part of the
// shared memory of its own. Blocks of a launch are dealt to the places of the grid in turn, so the map is fixed and no block asks for work.
//===----------------------------------------------------------------------===//
#include "NVPTX/Megakernel.h"
#include "NVPTX/GpuEmitter.h"
#include "lathe/artifact/Megakernel.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

namespace lathe::codegen::nvptx {
namespace {

/// Shared memory of the megakernel itself: what the grid's barrier waits for next, then words that threads keep while a body runs, [word][thread].
constexpr int64_t keptAt = 128, ownBytes = keptAt + 3 * 4 * megakernelThreads;

struct Body {
  LLVM::LLVMFuncOp function;
  int64_t threads = 0, sharedBytes = 0; ///< of a place
  int64_t places = 0;
  std::string layers;
  int64_t args = 0;
  std::optional<Ahead> ahead;
};

struct Mega : GpuEmitter {
  ArrayRef<Body> bodies;
  const int64_t recordBytes;
  Value memory; ///< the block's shared memory

  Mega(ModuleOp m, StringRef symbol, const Chip &chip, ArrayRef<Body> bodies, int64_t maxArgs)
      : GpuEmitter(m, symbol, chip, megakernelThreads, {Use::inout, Use::inout}), bodies(bodies), recordBytes(int64_t(megakernelRecordBytes(uint64_t(maxArgs)))) {
    memory = dynamicSharedMemory(128);
  }

  /// The value as LLVM cannot know it: what a body makes of it stays in the body. Else all that does not change from launch to launch would be
  /// computed before the first one and kept in registers.
  Value hidden(Value v) {
    if (v.getType() == i32) return ptx("mov.b32 $0, $1;", {i32}, {v}, "=r,r")[0];
    Value address = LLVM::PtrToIntOp::create(b, loc, i64, v);
    return LLVM::IntToPtrOp::create(b, loc, v.getType(), ptx("mov.b64 $0, $1;", {i64}, {address}, "=l,l")[0]);
  }
  enum Kept { theLaunch, theBlock, theCount };
  Value place(Kept k) { return gepc(gep(memory, zext(i64, shl(hidden(trunc(i32, tid)), 2))), keptAt + 4 * megakernelThreads * k); }
  /// Keeps an i32 for this thread in memory, and reads it back: attention leaves no register for it. Volatile, so that LLVM does not keep it all the same.
  void keep(Kept k, Value v) { stVolatile(v, place(k), 0, 4); }
  Value kept(Kept k) { return LLVM::LoadOp::create(b, loc, i32, place(k), 4, /*isVolatile=*/true); }
  Value gridBlocks() { return NVVM::GridDimXOp::create(b, loc, i32); }
  Value lt32(Value x, Value y) { return cmp(arith::CmpIPredicate::ult, x, y); }

  //===-- the grid's barrier -------------------------------------------------------------------------===//
  Value counter() { return arg(1); }
  /// The count at which the first barrier of this launch is complete. Until this block arrives it cannot be, so that the count is less than a grid above
  /// where the last launch left it.
  void openBarrier() {
    when(eq(tid, 0), [&] {
      Value grid = zext(i64, gridBlocks());
      Value now = ptx("ld.relaxed.gpu.global.u64 $0, [$1];", {i64}, {counter()}, "=l,l")[0];
      st(mul(addc(divu(now, grid), 1), grid), memory, 0, 8);
    });
  }
  /// All that blocks wrote before it is seen by all after it: thread 0 arrives for the block, behind a barrier of the block. While the others come, weights of launch |next|
  /// are on their way.
  void gridBarrier(Value next) {
    when(eq(tid, 0), [&] { ptx("red.release.gpu.global.add.u64 [$0], 1;", {}, {counter()}, "l"); });
    prefetch(next);
    when(eq(tid, 0), [&] {
      Value target = ld(i64, memory, 0, 8);
      ptx("{\n\t.reg .pred p;\n\t.reg .b64 v;\nAGAIN:\n\tld.acquire.gpu.global.u64 v, [$0];\n\tsetp.ge.u64 p, v, $1;\n\t@p bra DONE;\n\tnanosleep.u32 20;\n\tbra AGAIN;\nDONE:\n\t}", {},
          {counter(), target}, "l,l");
      st(add(target, zext(i64, gridBlocks())), memory, 0, 8);
    });
    barrier();
  }

  /// Asks for the weights of the first blocks of |launch| that this block does: whether it has two places or one, they are its own number and that a grid above.
  void prefetch(Value launch) {
    Value record = hidden(recordAt(launch)), kind = field(record, offsetof(MegakernelRecord, body));
    for (auto [i, body] : llvm::enumerate(bodies)) {
      if (!body.ahead) continue;
      const Ahead &a = *body.ahead;
      when(eq(kind, int64_t(i)), [&] {
        Value weights = ld(ptr, record, int64_t(sizeof(MegakernelRecord)) + 8 * a.arg, 8);
        loop(block, mins(c(a.units), add(block, shl(zext(i64, gridBlocks()), 1))), zext(i64, gridBlocks()), {},
             [&](Value unit, ValueRange) {
               prefetchRun(at(weights, unit, a.unitBytes), aheadSize(a, unit));
               return Values();
             });
      });
    }
  }

  //===-- launches -----------------------------------------------------------------------------------===//
  Value field(Value record, size_t offset) { return ld(i32, record, int64_t(offset), 4); }
  Value blocksOf(Value record) {
    Value kind = field(record, offsetof(MegakernelRecord, rows)), at = hidden(step);
    auto rowsOf = [&](size_t offset) { return ld(i32, at, int64_t(offset), 4); };
    Value rows = select(eq(kind, MegakernelRecord::ofStep), rowsOf(offsetof(LatheStep, rows)), rowsOf(offsetof(LatheStep, outRows)));
    rows = select(eq(kind, MegakernelRecord::one), ci(i32, 1), rows);
    Value per = field(record, offsetof(MegakernelRecord, rowsPerBlock));
    return mul(field(record, offsetof(MegakernelRecord, count)), divu(addc(add(rows, per), -1), per));
  }

  /// The launch that is kept.
  void run(const Body &body) {
    const int64_t log = llvm::Log2_64(uint64_t(body.threads));
    auto thread = [&] { return hidden(trunc(i32, tid)); };
    Value place = shru(thread(), log), grid = gridBlocks();
    auto work = [&] {
      // Neighbours go to different blocks of the grid.
      Value first = add(mul(place, grid), trunc(i32, block));
      keep(theCount, blocksOf(hidden(recordAt(kept(theLaunch)))));
      whileLoop(
          {first}, [&](ValueRange x) { return lt32(x[0], kept(theCount)); },
          [&](ValueRange x) {
            if (!body.layers.empty()) ptx("// lathe.layer: " + body.layers, TypeRange(), ValueRange(), ""); // an emulator's errors name it
            keep(theBlock, x[0]);
            // All is read again for each block.
            Value record = hidden(recordAt(kept(theLaunch))), t = thread(), place = shru(t, log), number = addc(place, 1);
            Values operands;
            for (int64_t i = 0; i < body.args; ++i) operands.push_back(ld(ptr, record, int64_t(sizeof(MegakernelRecord)) + 8 * i, 8));
            operands.append({hidden(step), x[0], andc(t, body.threads - 1), number, gepc(at(memory, zext(i64, place), body.sharedBytes), ownBytes)});
            LLVM::CallOp::create(b, loc, body.function, operands);
            if (body.sharedBytes) syncThreads(addc(shru(thread(), log), 1), body.threads); // the next block finds the memory free
            return Values{add(kept(theBlock), mulc(gridBlocks(), body.places))};
          });
    };
    body.places * body.threads == threads ? work() : when(lt32(place, ci(i32, body.places)), work);
  }

  Value recordAt(Value launch) { return gepc(at(arg(0), zext(i64, launch), recordBytes), sizeof(MegakernelTable)); }

  void all() {
    openBarrier();
    whileLoop(
        {ci(i32, 0)}, [&](ValueRange x) { return lt32(x[0], ld(i32, arg(0), offsetof(MegakernelTable, launches), 4)); },
        [&](ValueRange x) {
          keep(theLaunch, x[0]);
          Value kind = field(recordAt(x[0]), offsetof(MegakernelRecord, body));
          for (auto [i, body] : llvm::enumerate(bodies))
            when(eq(kind, int64_t(i)), [&] { run(body); });
          barrier(); // places of the next body have other threads and memory
          Value waits = field(recordAt(kept(theLaunch)), offsetof(MegakernelRecord, barrier));
          when(cmp(arith::CmpIPredicate::ne, waits, ci(i32, 0)), [&] { gridBarrier(addc(kept(theLaunch), 1)); });
          return Values{addc(kept(theLaunch), 1)};
        });
  }
};

} // namespace

bool canBeBody(StringRef family, int64_t threads) { return family == "argmax" || (threads <= megakernelThreads && llvm::isPowerOf2_64(uint64_t(threads))); }

LogicalResult emitMegakernel(ModuleOp module, StringRef symbol, ArrayRef<PtxJob> jobs, const Chip &chip, MegakernelShape &shape) {
  if (jobs.empty()) return refuse(module, symbol, "expected at least one body of a megakernel");
  module->setAttr(bodiesAttribute, UnitAttr::get(module.getContext()));
  for (const PtxJob &job : jobs)
    if (failed(job.emit(module, job.symbol, chip))) return failure();
  module->removeAttr(bodiesAttribute);
  SmallVector<Body> bodies;
  shape = MegakernelShape();
  shape.threads = megakernelThreads, shape.sharedBytes = ownBytes;
  for (const PtxJob &job : jobs) {
    Body body;
    // Names come from the model's file, and in assembly some characters mean something.
    body.layers = job.layers;
    std::replace_if(body.layers.begin(), body.layers.end(), [](unsigned char c) { return !llvm::isAlnum(c) && !StringRef("._+- ()").contains(char(c)); }, '?');
    body.function = module.lookupSymbol<LLVM::LLVMFuncOp>(job.symbol);
    auto number = [&](StringRef name) { return body.function->getAttrOfType<IntegerAttr>(name).getInt(); };
    body.threads = number(bodyThreads), body.sharedBytes = int64_t(llvm::alignTo(uint64_t(number(bodyShared)), 128));
    body.args = int64_t(body.function.getNumArguments()) - 5; // without step, block, thread, barrier, memory
    if (auto a = body.function->getAttrOfType<DenseI64ArrayAttr>(bodyAhead)) body.ahead = Ahead{a[0], a[1], a[2], a[3], a[4]}, body.function->removeAttr(bodyAhead);
    body.function->removeAttr(bodyThreads), body.function->removeAttr(bodyShared);
    const int64_t room = chip.sharedBytes - ownBytes;
    if (body.threads > megakernelThreads || !llvm::isPowerOf2_64(uint64_t(body.threads)) || body.sharedBytes > room)
      return refuse(module, job.symbol,
                    "expected a body of a power of two of up to " + Twine(megakernelThreads) + " threads and up to " + Twine(room) + " bytes of shared memory, found " + Twine(body.threads) + " and " + Twine(body.sharedBytes));
    body.places = std::min<int64_t>(megakernelThreads / body.threads, 8); // barriers 1 .. 8
    if (body.sharedBytes) body.places = std::min(body.places, room / body.sharedBytes);
    shape.sharedBytes = std::max(shape.sharedBytes, ownBytes + body.places * body.sharedBytes);
    shape.maxArgs = std::max(shape.maxArgs, body.args);
    bodies.push_back(body);
  }
  Mega e(module, symbol, chip, bodies, shape.maxArgs);
  e.all();
  e.finish();
  return success();
}

PtxJob megakernelJob(std::string symbol, std::vector<PtxJob> bodies, std::shared_ptr<MegakernelShape> shape) {
  return {std::move(symbol), [bodies = std::move(bodies), shape](ModuleOp m, StringRef s, const Chip &c) { return emitMegakernel(m, s, bodies, c, *shape); }};
}

} // namespace lathe::codegen::nvptx
