//===- PackageGpu.cpp - a plan's kernels as PTX and cubin ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/Kernels.h"
#include "NVPTX/Lower.h"
#include "Package.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace lathe {
namespace {
using codegen::nvptx::Chip;
using codegen::nvptx::PtxJob;

template <typename P>
Result<PtxJob> job(plan::KernelOp op, LogicalResult (*emit)(ModuleOp, StringRef, const P &, const Chip &)) {
  auto params = codegen::fromDictionary<P>(op.getParams());
  if (failed(params)) return misfit(op);
  P p = *params;
  return PtxJob{op.getSymName().str(), [p, emit](ModuleOp m, StringRef s, const Chip &c) { return emit(m, s, p, c); }};
}

Result<PtxJob> loopsJob(plan::KernelOp op) {
  auto params = codegen::fromDictionary<codegen::LoopsParams>(op.getParams());
  if (failed(params)) return misfit(op);
  codegen::LoopsParams p = *params;
  if (op.getBody().empty())
    return PtxJob{op.getSymName().str(), [p](ModuleOp m, StringRef s, const Chip &c) { return codegen::nvptx::emitLoops(m, s, p, nullptr, c); }};
  std::string text = bodyText(op);
  return PtxJob{op.getSymName().str(), [p, text](ModuleOp m, StringRef s, const Chip &c) -> LogicalResult {
                  auto source = parseBody(text, m.getContext());
                  if (!source) return failure();
                  auto op = *source->getOps<plan::KernelOp>().begin();
                  return codegen::nvptx::emitLoops(m, s, p, &op.getBody(), c);
                }};
}

Result<PtxJob> makeJob(plan::KernelOp op) {
  using namespace codegen;
  StringRef f = op.getFamily();
  if (f == "matmul") return job<nvptx::MmaParams>(op, nvptx::emitMatmul);
  if (f == "norm") return job<NormParams>(op, nvptx::emitNorm);
  if (f == "quantize") return job<QuantizeParams>(op, nvptx::emitQuantize);
  if (f == "activation") return job<ActivationParams>(op, nvptx::emitActivation);
  if (f == "gather") return job<GatherParams>(op, nvptx::emitGather);
  if (f == "angles") return job<AnglesParams>(op, nvptx::emitAngles);
  if (f == "rope_append") return job<RopeAppendParams>(op, nvptx::emitRopeAppend);
  if (f == "attention") return job<AttentionParams>(op, nvptx::emitAttention);
  if (f == "argmax") return job<ArgmaxParams>(op, nvptx::emitArgmax);
  if (f == "mma_attention") return job<nvptx::MmaAttentionParams>(op, nvptx::emitMmaAttention);
  if (f == "loops") return loopsJob(op);
  return unknownFamily(op);
}

/// Kernel to the layers that launch it: "blk.0.q+blk.0.k+blk.0.v and 29 more".
llvm::StringMap<std::string> layersOf(plan::ProgramOp op) {
  llvm::StringMap<llvm::SetVector<StringRef>> labels;
  op.walk([&](plan::LaunchOp l) { labels[l.getKernel()].insert(l.getLabel()); });
  llvm::StringMap<std::string> out;
  for (auto &[kernel, names] : labels)
    out[kernel] = names.front().str() + (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "");
  return out;
}

} // namespace

Result<OwningOpRef<plan::ProgramOp>> planForChip(plan::ProgramOp op, artifact::Variant variant) {
  using namespace codegen;
  const Chip *chip = nvptx::findChip(variant);
  if (!chip) return makeError(StatusCode::internal, "no chip has the variant %u", unsigned(variant));
  OwningOpRef<plan::ProgramOp> own(op.clone());
  SymbolTable symbols(*own);
  OpBuilder b(op.getContext());
  SmallVector<plan::LaunchOp> launches;
  llvm::StringSet<> replaced;
  own->walk([&](plan::LaunchOp l) { launches.push_back(l); });
  for (plan::LaunchOp l : launches) {
    auto kernel = symbols.lookup<plan::KernelOp>(l.getKernel());
    if (kernel.getFamily() != "matmul") continue;
    auto params = fromDictionary<nvptx::MmaParams>(kernel.getParams());
    if (failed(params)) return misfit(kernel);
    int64_t rows = cast<plan::BucketOp>(l->getParentOp()).getRows();
    nvptx::MmaParams mine = nvptx::onChip(*params, *chip, rows);
    if (!mine.wgmma || params->wgmma) continue;
    nvptx::LaunchShape shape = nvptx::launchShape(mine);
    // One kernel for each tile that a bucket of the planner's kernel has here.
    std::string name = (kernel.getSymName() + "_wgmma" + Twine(mine.rowTile)).str();
    if (!symbols.lookup(name)) {
      b.setInsertionPoint(kernel);
      auto k = plan::KernelOp::create(b, kernel.getLoc(), name, "matmul", toDictionary(op.getContext(), mine));
      k->setAttr("threads", b.getI64IntegerAttr(shape.threads));
      k->setAttr("shared_bytes", b.getI64IntegerAttr(shape.sharedBytes));
      symbols.insert(k);
    }
    replaced.insert(kernel.getSymName());
    l.setKernel(name);
    l.setItemKind(uint64_t(shape.items)), l.setItems(shape.count), l.setItemRows(shape.itemRows);
  }
  // A kernel that another has replaced everywhere is left out; what no launch ever named is refused or built like the rest.
  for (plan::LaunchOp l : launches) replaced.erase(l.getKernel());
  for (auto k : llvm::make_early_inc_range(own->getOps<plan::KernelOp>()))
    if (replaced.contains(k.getSymName())) k.erase();
  return own;
}

Result<GpuCode> buildGpuCode(plan::ProgramOp op, artifact::Variant variant, unsigned threads) {
  const Chip *chip = codegen::nvptx::findChip(variant);
  if (!chip) return makeError(StatusCode::internal, "no chip has the variant %u", unsigned(variant));
  std::vector<PtxJob> jobs;
  llvm::StringMap<std::string> layers = layersOf(op);
  for (auto k : op.getOps<plan::KernelOp>()) {
    LATHE_ASSIGN_OR_RETURN(auto made, makeJob(k));
    made.layers = layers.lookup(made.symbol);
    jobs.push_back(std::move(made));
  }
  GpuCode code;
  code.kernels = int(jobs.size());
  LATHE_ASSIGN_OR_RETURN(code.ptx, codegen::nvptx::buildPtx(jobs, *chip, threads));
  if (std::string ptxas = codegen::nvptx::findPtxas(); !ptxas.empty()) {
    LATHE_ASSIGN_OR_RETURN(auto report, codegen::nvptx::runPtxas(ptxas, code.ptx, *chip));
    code.cubin = std::move(report.cubin);
  }
  return code;
}

} // namespace lathe
