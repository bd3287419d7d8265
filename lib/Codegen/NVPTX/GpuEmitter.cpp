//===- GpuEmitter.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/GpuEmitter.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace lathe::codegen::nvptx {

GpuEmitter::GpuEmitter(ModuleOp module, StringRef symbol, const Chip &chip, int64_t threads, ArrayRef<Use> uses, std::optional<Ahead> ahead)
    : Emitter(module, symbol), chip(chip), threads(threads), module(module), name(symbol.str()) {
  MLIRContext *context = module.getContext();
  context->loadDialect<NVVM::NVVMDialect>();
  ptr = LLVM::LLVMPointerType::get(context, 1);
  const bool body = isForBodies(module);
  const unsigned pointers = uses.size() + 1;
  SmallVector<Type> types(pointers, ptr);
  if (body) types.append({i32, i32, i32, LLVM::LLVMPointerType::get(context, 3)});
  b.setInsertionPointToEnd(module.getBody());
  function = LLVM::LLVMFuncOp::create(b, loc, symbol, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), types));
  if (body) {
    function.setLinkage(LLVM::Linkage::Internal);
    function.setAlwaysInline(true);
    function->setAttr(bodyThreads, b.getI64IntegerAttr(threads));
    function->setAttr(bodyShared, b.getI64IntegerAttr(0));
    if (ahead) function->setAttr(bodyAhead, b.getDenseI64ArrayAttr({ahead->arg, ahead->units, ahead->unitBytes, ahead->total, ahead->share}));
  } else {
    function->setAttr("nvvm.kernel", b.getUnitAttr());
    function->setAttr("nvvm.reqntid", b.getDenseI32ArrayAttr({int32_t(threads)}));
    // Without it ptxas aims at an occupancy of its own choice, and spills a register or two to get there.
    function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(1));
  }
  for (unsigned i = 0; i < pointers; ++i) {
    // What a megakernel reads it may have written before.
    bool constant = i == uses.size() || uses[i] == Use::constant || (uses[i] == Use::in && !body && !chip.has(Feature::pdl));
    if (!constant) continue;
    function.setArgAttr(i, "llvm.noalias", b.getUnitAttr());
    function.setArgAttr(i, "llvm.readonly", b.getUnitAttr());
  }
  Block *entry = function.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  for (unsigned i = 0; i < uses.size(); ++i)
    params.push_back(entry->getArgument(i));
  step = entry->getArgument(uses.size());
  auto place = [&](Value v) { return zext(i64, v); };
  Value t = body ? Value(entry->getArgument(pointers + 1)) : NVVM::ThreadIdXOp::create(b, loc, i32);
  lane32 = andc(t, 31);
  tid = place(t), lane = place(lane32), warp = place(shru(t, 5));
  block = place(body ? Value(entry->getArgument(pointers)) : NVVM::BlockIdXOp::create(b, loc, i32));
  if (body) bodyBarrier = entry->getArgument(pointers + 2), bodyMemory = entry->getArgument(pointers + 3);
  else startInTurn(ahead);
}

void GpuEmitter::startInTurn(const std::optional<Ahead> &ahead) {
  if (!chip.has(Feature::pdl)) return;
  // Assembly that says it touches memory: LLVM takes the intrinsics for instructions that do not, and would move loads across them.
  ptx("griddepcontrol.launch_dependents;", TypeRange(), ValueRange(), "");
  if (ahead) {
    // Parts of a run that several blocks take end where the run does, but for less than 16 bytes a block.
    Value index = remc(divc(block, ahead->share), ahead->units), run = at(arg(int(ahead->arg)), index, ahead->unitBytes), bytes = aheadSize(*ahead, index);
    if (ahead->share > 1) {
      bytes = andc(divc(bytes, ahead->share), -16);
      run = gep(run, mul(remc(block, ahead->share), bytes));
    }
    prefetchRun(run, bytes);
  }
  ptx("griddepcontrol.wait;", TypeRange(), ValueRange(), "");
}

Value GpuEmitter::aheadSize(const Ahead &a, Value unit) {
  const int64_t most = std::min(a.unitBytes, aheadBytes * a.share);
  if (a.total >= (a.units - 1) * a.unitBytes + most) return c(most);
  return mins(c(most), sub(c(a.total), mulc(unit, a.unitBytes)));
}

void GpuEmitter::prefetchRun(Value p, Value bytes) {
  if (chip.has(Feature::tma)) {
    when(eq(tid, 0), [&] { ptx("cp.async.bulk.prefetch.L2.global [$0], $1;", TypeRange(), {p, trunc(i32, bytes)}, "l,r"); });
    return;
  }
  constexpr int64_t line = 128;
  loop(shl(tid, 7), bytes, line * threads, [&](Value i) { ptx("prefetch.global.L2 [$0];", TypeRange(), {gep(p, i)}, "l"); });
}

Value GpuEmitter::sharedMemory(int64_t bytes, int64_t align) {
  if (bodyMemory) {
    Value mine = gepc(bodyMemory, int64_t(llvm::alignTo(uint64_t(bodyBytes), uint64_t(align))));
    bodyBytes = int64_t(llvm::alignTo(uint64_t(bodyBytes), uint64_t(align))) + bytes;
    function->setAttr(bodyShared, b.getI64IntegerAttr(bodyBytes));
    return mine;
  }
  std::string symbol = name + "_shared" + std::to_string(sharedCount++);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    auto g = LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(i8, bytes), /*isConstant=*/false, LLVM::Linkage::Internal, symbol,
                                    Attribute(), align, /*addrSpace=*/3);
    (void)g;
  }
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), symbol);
}

Value GpuEmitter::dynamicSharedMemory(int64_t align) {
  assert(!bodyMemory && "a body has no dynamic shared memory: no kernel that has any is made into one");
  std::string symbol = name + "_dynamic";
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    // Of no size and defined elsewhere: PTX's ".extern .shared".
    LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(i8, 0), /*isConstant=*/false, LLVM::Linkage::External, symbol, Attribute(), align, /*addrSpace=*/3);
  }
  // LLVM would conclude that nothing in an object of no bytes overlaps with anything, so the pointer comes from where it cannot look.
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), 3);
  Value address = LLVM::PtrToIntOp::create(b, loc, i64, LLVM::AddressOfOp::create(b, loc, pointer, symbol));
  return LLVM::IntToPtrOp::create(b, loc, pointer, ptx("mov.b64 $0, $1;", {i64}, {address}, "=l,l")[0]);
}

void GpuEmitter::setCluster(int64_t n) {
  auto f = cast<LLVM::LLVMFuncOp>(b.getInsertionBlock()->getParentOp());
  f->setAttr("nvvm.cluster_dim", b.getDenseI32ArrayAttr({int32_t(n), 1, 1}));
}

void GpuEmitter::barrier() {
  if (bodyBarrier) syncThreads(bodyBarrier, threads);
  else NVVM::Barrier0Op::create(b, loc);
}

void GpuEmitter::syncThreads(Value barrier, int64_t count) {
  NVVM::BarrierOp::create(b, loc, Type(), barrier, ci(i32, count), NVVM::BarrierReductionAttr(), Value());
}

void GpuEmitter::syncWarp() { NVVM::SyncWarpOp::create(b, loc, ci(i32, -1)); }

Value GpuEmitter::shuffleXor(Value v, int64_t mask) {
  return NVVM::ShflOp::create(b, loc, v.getType(), ci(i32, -1), v, ci(i32, mask), ci(i32, 31), NVVM::ShflKind::bfly, UnitAttr());
}
Value GpuEmitter::broadcastLane(Value v, int64_t from) {
  return NVVM::ShflOp::create(b, loc, v.getType(), ci(i32, -1), v, ci(i32, from), ci(i32, 31), NVVM::ShflKind::idx, UnitAttr());
}
Value GpuEmitter::butterfly(Value v, int64_t from, llvm::function_ref<Value(Value, Value)> op) {
  for (int64_t d = from; d; d /= 2) v = op(v, shuffleXor(v, d));
  return v;
}

Values GpuEmitter::mma(StringRef shape, ValueRange a, ValueRange bs, ValueRange c) {
  SmallVector<Value> operands(a);
  operands.append(bs.begin(), bs.end());
  operands.append(c.begin(), c.end());
  SmallVector<Type> results(4, c.front().getType());
  Type type = LLVM::LLVMStructType::getLiteral(b.getContext(), results);
  Value d = intrinsic(("llvm.nvvm.mma." + shape).str(), type, operands);
  Values out;
  for (int64_t i = 0; i < 4; ++i) out.push_back(LLVM::ExtractValueOp::create(b, loc, d, i));
  return out;
}

Values GpuEmitter::ptx(const Twine &text, TypeRange results, ValueRange operands, const Twine &constraints) {
  Type type;
  if (results.size() == 1) type = results.front();
  if (results.size() > 1) type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(results));
  std::string all = constraints.str();
  all += all.empty() ? "~{memory}" : ",~{memory}";
  auto op = LLVM::InlineAsmOp::create(b, loc, type ? TypeRange(type) : TypeRange(), operands, text.str(), all, /*has_side_effects=*/true, /*is_align_stack=*/false,
                                      LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  if (results.size() < 2) return Values(op->getResults());
  Values out;
  for (int64_t i = 0; i < int64_t(results.size()); ++i) out.push_back(LLVM::ExtractValueOp::create(b, loc, op->getResult(0), i));
  return out;
}

Value GpuEmitter::bitcastPair(Type to, Value v) {
  VectorType one = vec(1, i32);
  if (to == i32) return Emitter::lane(vector::BitCastOp::create(b, loc, one, v), 0);
  return vector::BitCastOp::create(b, loc, cast<VectorType>(to), vector::BroadcastOp::create(b, loc, one, v));
}

Value GpuEmitter::ldfGuarded(Value p, Value index, int64_t n) {
  return ifElse(
      lt(index, n), f32, [&] { return Values{ldf(p, index)}; }, [&] { return Values{cf(0)}; })[0];
}

void GpuEmitter::storeGroup(Value buffer, const ActLayout &l, ActFormat format, Value row, Value g, Value x) {
  Value base = at(buffer, shru(row, 3), l.blockBytes), r = andc(row, 7);
  Value index = add(shl(g, 3), r); // of a (group, row) pair
  Value place = lane;
  if (format == ActFormat::bf16 && wgmmaOrder()) {
    Value t = andc(shru(lane, 2), 3), i = xori(andc(lane, 3), t), piece = add(shl(shru(lane, 4), 1), shru(i, 1));
    place = add(add(shl(xori(piece, andc(shru(r, 1), 3)), 3), shl(t, 1)), andc(i, 1));
  }
  if (format == ActFormat::e4m3 && wgmmaOrder()) place = xori(lane, shl(shru(r, 2), 4));
  Value element = gep(base, mulc(add(shl(index, 5), place), l.elementBytes));
  Value first = eq(lane32, 0);
  auto plane = [&](int64_t offset, int64_t sums, int64_t h) { // address of the h-th sum
    Value i = sums == 1 ? index : add(mulc(addc(mulc(g, sums), h), 8), r);
    return gepc(gep(base, shl(i, 2)), offset);
  };
  auto sumsOf = [&](Value v, llvm::function_ref<Value(Value, Value)> op) { // whole, first, second half
    Value half = butterfly(v, 8, op), other = shuffleXor(half, 16);
    return Values{op(half, other), half, other}; // lane 0 holds the first half
  };
  if (format == ActFormat::e4m3) {
    Value amax = warpMax(fabs(x)), some = fcmp(arith::CmpFPredicate::OGE, amax, cf(1e-30f));
    storeElement(fmul(x, select(some, fdiv(cf(448), amax), cf(0))), element, KVFormat::e4m3);
    return when(first, [&] { st(fmul(amax, cf(1.0f / 448)), plane(l.scale, 1, 0), 0, 4); });
  }
  if (!isInt8(format)) {
    if (format == ActFormat::f32) return st(x, element, 0, 4);
    Value rounded = roundBf16(x);
    st(bf16Bits(x), element, 0, 2);
    Values sums = sumsOf(rounded, [&](Value a, Value c) { return fadd(a, c); });
    when(first, [&] {
      for (int64_t h = 0; h < l.sums; ++h) st(sums[h], plane(l.fsum, l.sums, h), 0, 4);
    });
    return;
  }
  Value scale, offset, q;
  if (format == ActFormat::int8) {
    Value amax = warpMax(fabs(x));
    scale = fmul(amax, cf(1.0f / 127));
    Value some = fcmp(arith::CmpFPredicate::OGE, amax, cf(1e-30f));
    q = roundToInt(fmul(x, select(some, fdiv(cf(127), amax), cf(0))));
  } else {
    Value lo = warpMin(x), hi = warpMax(x);
    offset = fadd(roundBf16(fmul(fadd(hi, lo), cf(0.5f))), cf(0));
    scale = fmax(fmul(fsub(hi, lo), cf(1.0f / 254)), cf(1e-30f));
    Value v = fmul(fsub(x, offset), fdiv(cf(1), scale));
    q = roundToInt(fmin(fmax(v, cf(-127)), cf(127)));
  }
  st(trunc(i8, q), element, 0, 1);
  Values sums = sumsOf(q, [&](Value a, Value c) { return add(a, c); });
  when(first, [&] {
    st(scale, plane(l.scale, 1, 0), 0, 4);
    if (offset) st(offset, plane(l.offset, 1, 0), 0, 4);
    for (int64_t h = 0; h < l.sums; ++h) {
      st(sub(ci(i32, 0), sums[h]), plane(l.isum, l.sums, h), 0, 4);
      Value f = i2f(sums[h]);
      f = offset ? fma(scale, f, fmul(cf(h == 0 ? 32 : 16), offset)) : fmul(scale, f);
      st(f, plane(l.fsum, l.sums, h), 0, 4);
    }
  });
}

Value GpuEmitter::loadElement(Value p, KVFormat f, Value scale) {
  switch (f) {
  case KVFormat::f32: return ld(f32, p, 0, 4);
  case KVFormat::f16: return ext(ld(f16, p, 0, 2));
  case KVFormat::bf16: return fromBf16Bits(ld(i16, p, 0, 2));
  case KVFormat::e4m3: return fmul(ext(elementOf(e4m3ToHalf(zext(i16, ld(i8, p, 0, 1))), 0)), scale);
  case KVFormat::int8: break;
  }
  return fmul(i2f(sext(i32, ld(i8, p, 0, 1))), scale);
}

void GpuEmitter::storeElement(Value x, Value p, KVFormat f) {
  // The instruction converts two values, the second one into the low byte.
  Value v = f == KVFormat::e4m3 && chip.has(Feature::fp8) ? trunc(i8, intrinsic("llvm.nvvm.ff.to.e4m3x2.rn", i16, {cf(0), x})) : toStored(*this, x, f);
  st(v, p, 0, unsigned(elementBytes(f)));
}

Value GpuEmitter::e4m3ToBf16(Value w) {
  // Sign, exponent and fraction, 4 bits further right, are a bf16 of 2^-120 of the value.
  Value bits = ori(andc(w, int32_t(0x80008000)), andc(shru(w, 4), 0x07f007f0));
  VectorType pair = vec(2, bf16);
  auto constant = [&](uint32_t half) { return bitcastPair(pair, ci(i32, int32_t(half | half << 16))); };
  return bitcastPair(i32, fma(bitcastPair(pair, bits), constant(0x7b80), constant(0x8000))); // 2^120, -0
}

LogicalResult checkRowSize(ModuleOp module, StringRef symbol, int64_t k, int64_t stride) {
  if (k < 1 || stride < k)
    return refuse(module, symbol, "expected 1 <= k <= inStride, found k = " + Twine(k) + ", inStride = " + Twine(stride));
  return success();
}

} // namespace lathe::codegen::nvptx
