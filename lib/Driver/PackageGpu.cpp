//===- PackageGpu.cpp - a plan's kernels as PTX and cubin ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/Kernels.h"
#include "NVPTX/Lower.h"
#include "NVPTX/Megakernel.h"
#include "Package.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <map>

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

Result<OwningOpRef<plan::ProgramOp>> planForChip(plan::ProgramOp op, artifact::Variant variant, bool megakernel) {
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
    // wgmma's clusters and rings do not fit into a block that goes from kernel to kernel, and one weight has one family of instructions.
    nvptx::MmaParams mine = megakernel ? nvptx::asBody(*params) : nvptx::onChip(*params, *chip, rows);
    if (mine.wgmma == params->wgmma && mine.kSegments == params->kSegments) continue;
    nvptx::LaunchShape shape = nvptx::launchShape(mine);
    // One kernel for each tile that a bucket of the planner's kernel has here.
    std::string name = (kernel.getSymName() + (mine.wgmma ? "_wgmma" : "_body") + Twine(mine.rowTile)).str();
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

/// The megakernels of |op|: one for each bucket of few rows, whose launches it takes but for those that cannot be bodies. With 32 rows and heads of 128 the attention that
/// is not split takes all registers that a thread can have, and beside other bodies spills.
static std::vector<BucketMegakernel> planMegakernels(plan::ProgramOp op) {
  constexpr int64_t mostRows = 16;
  std::vector<BucketMegakernel> all;
  std::map<std::vector<std::string>, std::string> known;
  SymbolTable symbols(op);
  for (auto [e, entry] : llvm::enumerate(op.getOps<plan::EntryOp>()))
    for (auto [b, bucket] : llvm::enumerate(entry.getBody().front().getOps<plan::BucketOp>())) {
      if (int64_t(bucket.getRows()) > mostRows) continue;
      BucketMegakernel m;
      m.entry = uint32_t(e), m.bucket = uint32_t(b);
      bool open = false; // whether the last piece is the megakernel's
      for (auto l : bucket.getBody().front().getOps<plan::LaunchOp>()) {
        auto kernel = symbols.lookup<plan::KernelOp>(l.getKernel());
        auto threads = kernel->getAttrOfType<IntegerAttr>("threads");
        bool fits = threads && codegen::nvptx::canBeBody(kernel.getFamily(), threads.getInt()) && ItemKind(l.getItemKind()) != ItemKind::perRowChunk;
        ++m.launches;
        m.pieces += !fits || !open;
        open = fits;
        if (fits && !llvm::is_contained(m.bodies, l.getKernel())) m.bodies.push_back(l.getKernel().str());
        if (fits) m.maxArgs = std::max(m.maxArgs, uint32_t(l.getArgs().size()));
      }
      if (m.pieces == m.launches) continue;
      auto [it, made] = known.try_emplace(m.bodies, ("megakernel_" + entry.getEntry() + "_" + Twine(bucket.getRows())).str());
      m.symbol = it->second;
      all.push_back(std::move(m));
    }
  return all;
}

Result<GpuCode> buildGpuCode(plan::ProgramOp op, artifact::Variant variant, bool megakernel, unsigned threads) {
  const Chip *chip = codegen::nvptx::findChip(variant);
  if (!chip) return makeError(StatusCode::internal, "no chip has the variant %u", unsigned(variant));
  std::vector<PtxJob> kernels, jobs;
  llvm::StringMap<std::string> layers = layersOf(op);
  llvm::StringMap<size_t> index;
  for (auto k : op.getOps<plan::KernelOp>()) {
    LATHE_ASSIGN_OR_RETURN(auto made, makeJob(k));
    made.layers = layers.lookup(made.symbol);
    index[made.symbol] = kernels.size();
    kernels.push_back(std::move(made));
  }
  GpuCode code;
  code.chip = chip->name;
  if (megakernel) code.megakernels = planMegakernels(op);
  // The largest jobs first.
  llvm::StringMap<std::shared_ptr<codegen::nvptx::MegakernelShape>> shapes;
  for (const BucketMegakernel &m : code.megakernels) {
    auto &shape = shapes[m.symbol];
    if (shape) continue;
    shape = std::make_shared<codegen::nvptx::MegakernelShape>();
    std::vector<PtxJob> bodies;
    for (const std::string &body : m.bodies) bodies.push_back(kernels[index[body]]);
    jobs.push_back(codegen::nvptx::megakernelJob(m.symbol, std::move(bodies), shape));
  }
  jobs.insert(jobs.end(), std::make_move_iterator(kernels.begin()), std::make_move_iterator(kernels.end()));
  code.kernels = int(jobs.size());
  LATHE_ASSIGN_OR_RETURN(code.ptx, codegen::nvptx::buildPtx(jobs, *chip, threads));
  for (BucketMegakernel &m : code.megakernels) {
    const auto &shape = *shapes[m.symbol];
    m.shape = {uint32_t(shape.threads), uint32_t(shape.sharedBytes)};
    m.maxArgs = uint32_t(shape.maxArgs);
  }
  if (std::string ptxas = codegen::nvptx::findPtxas(); !ptxas.empty()) {
    LATHE_ASSIGN_OR_RETURN(auto report, codegen::nvptx::runPtxas(ptxas, code.ptx, *chip));
    code.complaints = codegen::nvptx::complaints(report, *chip);
    code.cubin = std::move(report.cubin);
  }
  return code;
}

void addMegakernels(Program &program, const GpuCode &code) {
  auto indexOf = [&](const std::string &kernel) { return uint32_t(llvm::find(program.kernels, kernel) - program.kernels.begin()); };
  for (const BucketMegakernel &m : code.megakernels) {
    Megakernel out{indexOf(m.symbol), m.entry, m.bucket, m.maxArgs, {}};
    if (out.kernel == program.kernels.size()) program.kernels.push_back(m.symbol), program.blocks.push_back(m.shape);
    for (const std::string &body : m.bodies) out.bodies.push_back(indexOf(body));
    program.megakernels.push_back(std::move(out));
  }
}

} // namespace lathe
