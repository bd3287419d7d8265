//===- Package.cpp - plan to artifact ----------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Code is emitted kernel by kernel, weights are packed tile by tile straight into the file: memory does not
// grow with the model.
//===----------------------------------------------------------------------===//
#include "Package.h"
#include "X86/Compile.h"
#include "WeightExpressions.h"
#include "dialects/Kernel/Kernel.h"
#include "dialects/Plan/Plan.h"
#include "lathe/Codegen/Loops.h"
#include "lathe/Driver/Driver.h"
#include "lathe/artifact/ProgramCodec.h"
#include "lathe/artifact/Writer.h"
#include "lathe/weights/Pack.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Parser/Parser.h"
#include <chrono>
#include <map>

using namespace mlir;

namespace lathe {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename P>
using Emit = LogicalResult (*)(ModuleOp, StringRef, const P &, codegen::X86Target);

template <typename P>
codegen::KernelUse useOf(const P &p) {
  codegen::KernelUse use;
  if constexpr (requires { p.act; }) use.bf16 |= p.act == codegen::ActFormat::bf16;
  if constexpr (requires { p.outAct; }) use.bf16 |= p.outAct == codegen::ActFormat::bf16;
  if constexpr (std::is_same_v<P, codegen::MatmulParams>) use.dots = codegen::isInt8(p.act);
  return use;
}

template <typename P>
Result<codegen::KernelJob> job(plan::KernelOp op, Emit<P> emit, uint64_t &scratch) {
  auto params = codegen::fromDictionary<P>(op.getParams());
  if (failed(params))
    return misfit(op);
  if constexpr (requires { codegen::scratchBytes(*params); }) scratch = std::max<uint64_t>(scratch, codegen::scratchBytes(*params));
  P p = *params;
  return codegen::KernelJob{op.getSymName().str(), [p, emit](ModuleOp m, StringRef s, codegen::X86Target t) { return emit(m, s, p, t); }, useOf(p)};
}

Result<codegen::KernelJob> loopsJob(plan::KernelOp op) {
  auto params = codegen::fromDictionary<codegen::LoopsParams>(op.getParams());
  if (failed(params)) return misfit(op);
  codegen::LoopsParams p = *params;
  if (op.getBody().empty())
    return codegen::KernelJob{op.getSymName().str(), [p](ModuleOp m, StringRef s, codegen::X86Target t) { return codegen::emitLoops(m, s, p, nullptr, t); }};
  std::string text = bodyText(op);
  return codegen::KernelJob{op.getSymName().str(), [p, text](ModuleOp m, StringRef s, codegen::X86Target t) -> LogicalResult {
                              auto source = parseBody(text, m.getContext());
                              if (!source) return failure();
                              auto op = *source->getOps<plan::KernelOp>().begin();
                              return codegen::emitLoops(m, s, p, &op.getBody(), t);
                            }};
}

Result<codegen::KernelJob> makeJob(plan::KernelOp op, uint64_t &scratch) {
  using namespace codegen;
  StringRef f = op.getFamily();
  if (f == "matmul") return job<MatmulParams>(op, emitMatmul, scratch);
  if (f == "norm") return job<NormParams>(op, emitNorm, scratch);
  if (f == "quantize") return job<QuantizeParams>(op, emitQuantize, scratch);
  if (f == "activation") return job<ActivationParams>(op, emitActivation, scratch);
  if (f == "gather") return job<GatherParams>(op, emitGather, scratch);
  if (f == "angles") return job<AnglesParams>(op, emitAngles, scratch);
  if (f == "rope_append") return job<RopeAppendParams>(op, emitRopeAppend, scratch);
  if (f == "attention") return job<AttentionParams>(op, emitAttention, scratch);
  if (f == "argmax") return job<ArgmaxParams>(op, emitArgmax, scratch);
  if (f == "loops") return loopsJob(op);
  return unknownFamily(op);
}

} // namespace

Status misfit(plan::KernelOp op) {
  return makeError(StatusCode::invalidArgument, "kernel '%s': parameters do not fit the family '%s'", op.getSymName().str().c_str(), op.getFamily().str().c_str());
}
Status unknownFamily(plan::KernelOp op) {
  return makeError(StatusCode::unsupported,
                   "kernel '%s': unknown family '%s', expected matmul, norm, quantize, activation, gather, angles, rope_append, attention, argmax or loops",
                   op.getSymName().str().c_str(), op.getFamily().str().c_str());
}

std::string bodyText(plan::KernelOp op) {
  std::string text;
  llvm::raw_string_ostream(text) << "module {\n" << *op.getOperation() << "\n}";
  return text;
}
OwningOpRef<ModuleOp> parseBody(StringRef text, MLIRContext *context) {
  context->loadDialect<plan::PlanDialect, kernel::KernelDialect, arith::ArithDialect, math::MathDialect>();
  return parseSourceString<ModuleOp>(text, context);
}

Program buildProgram(plan::ProgramOp op, uint64_t scratch) {
  Program p;
  p.maxRows = op.getMaxRows(), p.maxOutRows = op.getMaxOutRows(), p.maxSeq = op.getMaxSeq(), p.vocabulary = op.getVocabulary();
  p.hiddenSize = op.getHidden(), p.arenaBytes = op.getArenaBytes(), p.scratchBytes = llvm::alignTo(scratch, 64);
  p.logitsOffset = op.getLogitsOffset(), p.logitsStride = op.getLogitsStride();
  p.hiddenOffset = op.getHiddenOffset(), p.hiddenStride = op.getHiddenStride();
  p.embeddingOffset = op.getEmbeddingOffset().value_or(0), p.embeddingStride = op.getEmbeddingStride().value_or(0);
  p.draftMaxSeq = op.getDraftMaxSeq().value_or(0);
  p.draftLogitsOffset = op.getDraftLogitsOffset().value_or(0), p.draftLogitsStride = op.getDraftLogitsStride().value_or(0);
  p.draftMethod = DraftMethod(op.getDraftMethod().value_or(0));
  p.draftInputOffset = op.getDraftInputOffset().value_or(0), p.draftInputStride = op.getDraftInputStride().value_or(0);
  p.draftInputSize = op.getDraftInputSize().value_or(0);
  for (int64_t offset : op.getDraftMoreLogits().value_or(llvm::ArrayRef<int64_t>()))
    p.draftMoreLogits.push_back(uint64_t(offset));
  p.choicesOffset = op.getChoicesOffset().value_or(0), p.choicesStride = op.getChoicesStride().value_or(0);
  p.draftOwnOffset = op.getDraftOwnOffset().value_or(0);
  for (int64_t offset : op.getDraftFeatures().value_or(llvm::ArrayRef<int64_t>()))
    p.draftFeatures.push_back(uint64_t(offset));
  if (auto tokens = op.getDraftTokensAttr())
    for (const llvm::APInt &token : tokens.getValues<llvm::APInt>())
      p.draftTokens.push_back(uint32_t(token.getZExtValue()));
  llvm::StringMap<uint32_t> kernels, groups, names;
  SymbolTable symbols(op);
  for (auto k : op.getOps<plan::KernelOp>())
    kernels[k.getSymName()] = p.kernels.size(), p.kernels.push_back(k.getSymName().str());
  for (auto k : op.getOps<plan::KernelOp>())
    if (auto threads = k->getAttrOfType<IntegerAttr>("threads"), shared = k->getAttrOfType<IntegerAttr>("shared_bytes"); threads && shared)
      p.blocks.push_back({uint32_t(threads.getValue().getZExtValue()), uint32_t(shared.getValue().getZExtValue())});
  for (auto g : op.getOps<plan::KVGroupOp>()) {
    groups[g.getSymName()] = p.kvGroups.size();
    p.kvGroups.push_back({uint32_t(g.getKind()), uint32_t(g.getWindow()), uint32_t(g.getPage()), uint32_t(g.getLayers()), uint64_t(g.getBlockBytes()), g.getDraft()});
    llvm::ArrayRef<int64_t> planes = g.getPlanes().value_or(llvm::ArrayRef<int64_t>());
    for (; planes.size() >= kernel::kvPlaneNumbers; planes = planes.drop_front(kernel::kvPlaneNumbers))
      p.kvPlanes.push_back({groups[g.getSymName()], uint32_t(planes[0]), uint64_t(planes[1]), uint64_t(planes[2]), uint64_t(planes[3]), uint32_t(planes[4]),
                            uint32_t(planes[5]), uint32_t(planes[6])});
  }
  for (auto e : op.getOps<plan::EntryOp>()) {
    Entry entry;
    entry.name = e.getEntry().str();
    for (auto bucketOp : e.getBody().front().getOps<plan::BucketOp>()) {
      Bucket bucket{uint32_t(bucketOp.getRows()), uint32_t(p.launches.size()), 0};
      for (auto l : bucketOp.getBody().front().getOps<plan::LaunchOp>()) {
        Launch launch;
        launch.kernel = kernels[l.getKernel()];
        launch.firstArg = p.args.size(), launch.argCount = l.getArgs().size();
        for (auto [attr, offset] : llvm::zip(l.getArgs(), l.getOffsets())) {
          StringRef name = cast<FlatSymbolRefAttr>(attr).getValue();
          Operation *target = symbols.lookup(name);
          Arg arg;
          arg.offset = offset;
          if (auto buffer = dyn_cast<plan::BufferOp>(target)) arg.offset += buffer.getOffset();
          if (auto weight = dyn_cast<plan::WeightOp>(target)) arg.kind = ArgKind::weight, arg.offset += weight.getOffset();
          if (isa<plan::KVGroupOp>(target)) arg.kind = ArgKind::kv, arg.group = groups[name];
          p.args.push_back(arg);
        }
        launch.itemKind = ItemKind(l.getItemKind()), launch.shareKind = ShareKind(l.getShare());
        launch.itemRows = l.getItemRows(), launch.items = l.getItems(), launch.barrier = l.getBarrier();
        auto [it, inserted] = names.try_emplace(l.getLabel(), p.names.size());
        if (inserted) p.names.push_back(l.getLabel().str());
        launch.name = it->second;
        launch.weightBytes = l.getWeightBytes(), launch.macsPerRow = l.getMacsPerRow(), launch.bytesPerRow = l.getBytesPerRow();
        auto extra = [&](StringRef name) {
          auto attr = l->getAttrOfType<IntegerAttr>(name);
          return attr ? uint64_t(attr.getInt()) : 0;
        };
        launch.bytesPerEntry = extra("bytes_per_entry"), launch.macsPerEntry = extra("macs_per_entry");
        launch.arithmetic = Arithmetic(std::min<uint64_t>(extra("arithmetic"), uint64_t(Arithmetic::f32)));
        p.launches.push_back(launch);
        ++bucket.launchCount;
      }
      entry.buckets.push_back(bucket);
    }
    p.entries.push_back(std::move(entry));
  }
  return p;
}

namespace {

Result<WeightRows> packedRows(ArrayAttr params, int64_t interleave, SymbolTable &symbols, FileCache &files) {
  std::vector<WeightRows> parts;
  for (Attribute name : params) {
    auto param = symbols.lookup<llm::ParamOp>(cast<FlatSymbolRefAttr>(name).getValue());
    if (!param) return makeError(StatusCode::invalidArgument, "expected a param named '%s'", cast<FlatSymbolRefAttr>(name).getValue().str().c_str());
    LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(param.getValue(), files));
    parts.push_back(std::move(rows));
  }
  if (interleave) {
    if (parts.size() != 2) return makeError(StatusCode::invalidArgument, "expected two params to interleave, found %zu", parts.size());
    return WeightRows::interleave(parts[0], parts[1], interleave);
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return WeightRows::concat(parts);
}

/// Rows of float32, each padded to 16.
Status writeVector(const WeightRows &rows, artifact::ArtifactWriter &writer) {
  std::vector<float> values;
  if (rows.isVector()) {
    LATHE_ASSIGN_OR_RETURN(values, rows.readAll());
    values.resize(codegen::rowStride(values.size()));
    return writer.append({reinterpret_cast<const uint8_t *>(values.data()), values.size() * 4});
  }
  values.resize(codegen::rowStride(rows.columns()));
  for (int64_t r = 0; r < rows.rows(); ++r) {
    LATHE_RETURN_IF_ERROR(rows.readRow(r, std::span(values.data(), rows.columns())));
    LATHE_RETURN_IF_ERROR(writer.append({reinterpret_cast<const uint8_t *>(values.data()), values.size() * 4}));
  }
  return Status();
}

/// A weight of the file and the module that says what it is made of.
struct FileWeight {
  ModuleOp module;
  plan::WeightOp op;
};

/// Gives every weight of |programs| its place in the WEIGHTS section: equal ones share it. Returns them in the order of the file, and its size.
std::vector<FileWeight> placeWeights(ArrayRef<ModuleOp> modules, uint64_t &bytes) {
  std::vector<FileWeight> all;
  std::map<std::string, uint64_t> places;
  bytes = 0;
  for (ModuleOp module : modules) {
    SymbolTable symbols(module);
    for (auto w : (*module.getOps<plan::ProgramOp>().begin()).getOps<plan::WeightOp>()) {
      Operation *source = symbols.lookup(w.getSource());
      std::string key;
      llvm::raw_string_ostream os(key);
      if (source)
        for (NamedAttribute attr : source->getAttrs())
          if (attr.getName() != SymbolTable::getSymbolAttrName()) os << attr.getName() << attr.getValue();
      os << w.getBytes() << (source ? source->getName().getStringRef() : "");
      auto [it, inserted] = places.try_emplace(key, llvm::alignTo(bytes, 64));
      w.setOffset(it->second);
      if (!inserted) continue;
      bytes = it->second + w.getBytes();
      all.push_back({module, w});
    }
  }
  return all;
}

/// Packs |weights| to their places.
Status packWeights(ArrayRef<FileWeight> weights, uint64_t weightBytes, int threads, artifact::ArtifactWriter &writer,
                   const std::function<void(uint64_t, uint64_t)> &progress) {
  LATHE_RETURN_IF_ERROR(writer.beginWeights());
  FileCache files;
  for (auto [module, w] : weights) {
    SymbolTable symbols(module);
    LATHE_RETURN_IF_ERROR(writer.pad(64));
    std::string where = "weight '" + w.getSource().str() + "'";
    if (writer.weightBytes() != w.getOffset())
      return makeError(StatusCode::internal, "%s: planned at offset %llu, written at %llu", where.c_str(), (unsigned long long)w.getOffset(), (unsigned long long)writer.weightBytes());
    Operation *source = symbols.lookup(w.getSource());
    Status status;
    if (auto packed = dyn_cast_if_present<kernel::PackedOp>(source)) {
      auto rows = packedRows(packed.getParams(), packed.getInterleave(), symbols, files);
      if (!rows.ok()) return rows.status().at(where);
      PackOptions packOptions;
      packOptions.threads = threads;
      status = packWeight(*rows, packOptions, [&](std::span<const uint8_t> bytes) { return writer.append(bytes); });
      rows->drop();
    } else if (auto vector = dyn_cast_if_present<kernel::VectorOp>(source)) {
      auto rows = packedRows(vector.getParams(), 0, symbols, files);
      if (!rows.ok()) return rows.status().at(where);
      status = writeVector(*rows, writer);
    } else {
      status = makeError(StatusCode::invalidArgument, "expected a kernel.packed or kernel.vector");
    }
    if (!status.ok()) return std::move(status).at(where);
    if (writer.weightBytes() != w.getOffset() + w.getBytes())
      return makeError(StatusCode::internal, "%s: planned %llu bytes, wrote %llu", where.c_str(), (unsigned long long)w.getBytes(), (unsigned long long)(writer.weightBytes() - w.getOffset()));
    if (progress) progress(writer.weightBytes(), weightBytes);
  }
  return Status();
}

} // namespace

Result<PackageReport> packageArtifact(ModuleOp module, ModuleOp gpu, const ModelText &text, const CompileOptions &options, const std::string &path,
                                      const std::function<void(uint64_t, uint64_t)> &progress) {
  using artifact::SectionKind;
  PackageReport report;
  SmallVector<ModuleOp> modules;
  for (ModuleOp m : {module, gpu}) {
    if (!m) continue;
    if (m.getOps<plan::ProgramOp>().empty()) return makeError(StatusCode::failedPrecondition, "expected a module with a plan.program");
    modules.push_back(m);
  }
  uint64_t weightBytes = 0;
  std::vector<FileWeight> weights = placeWeights(modules, weightBytes);
  LATHE_ASSIGN_OR_RETURN(auto seed, syntheticSeed(options));

  double start = now();
  LATHE_ASSIGN_OR_RETURN(auto writer, artifact::ArtifactWriter::create(path));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::metadata, text.metadata));
  auto addProgram = [&](plan::ProgramOp op, artifact::Variant variant, uint64_t scratch, const GpuCode &code = {}) {
    Program laidOut = buildProgram(op, scratch);
    addMegakernels(laidOut, code);
    if (seed) laidOut.syntheticWeightBytes = weightBytes, laidOut.syntheticSeed = *seed;
    return writer.addSection(SectionKind::program, variant, encodeProgram(laidOut));
  };
  if (module) {
    plan::ProgramOp program = *module.getOps<plan::ProgramOp>().begin();
    std::vector<codegen::KernelJob> jobs;
    uint64_t scratch = 0;
    for (auto k : program.getOps<plan::KernelOp>()) {
      LATHE_ASSIGN_OR_RETURN(auto made, makeJob(k, scratch));
      jobs.push_back(std::move(made));
    }
    report.kernels += jobs.size();
    LATHE_RETURN_IF_ERROR(addProgram(program, artifact::Variant::none, scratch));
    codegen::VariantBuilder builder(std::move(jobs), options.threads);
    for (artifact::Variant variant : options.variants) {
      if (artifact::isGpu(variant)) continue;
      LATHE_ASSIGN_OR_RETURN(std::string code, builder.build(variant));
      report.codeBytes += code.size();
      LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::code, variant, {reinterpret_cast<const uint8_t *>(code.data()), code.size()}));
    }
  }
  for (artifact::Variant variant : options.variants) {
    if (!artifact::isGpu(variant)) continue;
    LATHE_ASSIGN_OR_RETURN(auto planned, planForChip(*gpu.getOps<plan::ProgramOp>().begin(), variant, options.megakernel));
    plan::ProgramOp program = *planned;
    LATHE_ASSIGN_OR_RETURN(GpuCode code, buildGpuCode(program, variant, options.megakernel, options.threads));
    report.kernels += code.kernels;
    report.complaints.insert(report.complaints.end(), code.complaints.begin(), code.complaints.end());
    report.codeBytes += code.ptx.size() + code.cubin.size();
    LATHE_RETURN_IF_ERROR(addProgram(program, variant, 0, code));
    if (options.megakernel && code.megakernels.empty()) report.withoutMegakernels.push_back(code.chip);
    for (const BucketMegakernel &m : code.megakernels)
      if (m.entry == 0 && m.bucket == 0) report.megakernels.push_back({code.chip, m.launches, m.pieces});
    auto bytes = [](const std::string &s) { return std::span(reinterpret_cast<const uint8_t *>(s.data()), s.size()); };
    LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::ptx, variant, bytes(code.ptx)));
    if (!code.cubin.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::cubin, variant, bytes(code.cubin)));
  }
  report.codeSeconds = now() - start;
  if (!text.tokenizer.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::tokenizer, artifact::Variant::none, text.tokenizer));
  if (!text.chatTemplate.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::chatTemplate, text.chatTemplate));
  if (!text.generation.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::generation, text.generation));

  start = now();
  if (!seed) LATHE_RETURN_IF_ERROR(packWeights(weights, weightBytes, options.threads, writer, progress));
  report.weightBytes = weightBytes;
  report.packSeconds = now() - start;
  LATHE_RETURN_IF_ERROR(writer.finish());
  report.fileBytes = writer.fileBytes();
  return report;
}

} // namespace lathe
