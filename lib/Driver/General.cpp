//===- General.cpp - artifacts of general graphs ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General.h"
#include "ONNXOps/Node.h"
#include "ONNXOps/Weights.h"
#include "NVPTX/Lower.h"
#include "X86/Compile.h"
#include "dialects/ONNX/ONNX.h"
#include "lathe/Codegen/General.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/ONNX/Inputs.h"
#include "lathe/artifact/Graph.h"
#include "lathe/artifact/GraphSection.h"
#include "lathe/artifact/ProgramCodec.h"
#include "lathe/artifact/Writer.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/JSON.h"
#include <chrono>
#include <map>
#include <numeric>

using namespace mlir;

namespace lathe {

const char generalWarning[] = "the graph was not recognised and runs as general code: slowly, one sequence at a time with a contiguous cache, and "
                              "without the promise of exact tokens";

namespace {

constexpr int64_t defaultPositions = 4096;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string text(Attribute attribute) {
  auto s = dyn_cast_if_present<StringAttr>(attribute);
  return s ? s.str() : "";
}

GraphPort portOf(Type type, const std::string &name) {
  auto tensor = cast<RankedTensorType>(type);
  GraphPort p;
  p.name = name;
  onnx::DataType t = onnx::dataType(tensor.getElementType());
  p.elementBytes = uint32_t(ops::elementBytes(t));
  p.type = t == onnx::DataType::float32   ? GraphType::f32
           : t == onnx::DataType::float16 ? GraphType::f16
           : t == onnx::DataType::bfloat16 ? GraphType::bf16
           : t == onnx::DataType::int64   ? GraphType::i64
           : t == onnx::DataType::int32   ? GraphType::i32
                                          : GraphType::other;
  for (int64_t n : tensor.getShape())
    p.dims.push_back(ShapedType::isDynamic(n) ? -1 : n);
  return p;
}

Status describe(func::FuncOp graph, GraphSection &section, std::vector<unsigned> &weights) {
  std::map<std::string, uint32_t> results;
  for (unsigned i = 0; i < graph.getNumResults(); ++i) {
    std::string name = onnx::resultName(graph, i);
    section.outputs.push_back(portOf(cast<TypeAttr>(graph.getResultAttr(i, "lathe.type")).getValue(), name));
    if (name == "logits") section.outputs.back().role = GraphRole::logits;
    results[name] = i;
  }
  for (unsigned i = 0; i < graph.getNumArguments(); ++i) {
    Type type = graph.getArgAttrOfType<TypeAttr>(i, "lathe.type").getValue();
    if (graph.getArgAttr(i, "lathe.weight")) {
      section.inputs.push_back(portOf(type, text(graph.getArgAttr(i, "lathe.weight"))));
      section.inputs.back().role = GraphRole::weight;
      weights.push_back(i);
      continue;
    }
    std::string name = onnx::inputName(graph, i);
    GraphPort p = portOf(type, name);
    onnx::StepInput input = onnx::stepInput(name, type);
    if (input == onnx::StepInput::tokens) p.role = GraphRole::tokens;
    else if (input == onnx::StepInput::mask && (p.type == GraphType::i64 || p.type == GraphType::i32)) p.role = GraphRole::mask;
    else if (input == onnx::StepInput::positions) p.role = GraphRole::positions;
    else if (auto result = results.find(onnx::presentName(name)); input == onnx::StepInput::past && result != results.end()) {
      GraphPort &present = section.outputs[result->second];
      p.role = GraphRole::past;
      p.peer = result->second;
      if (p.dims.empty()) return makeError(StatusCode::unsupported, "input '%s': expected a cache with a sequence axis, found a scalar", name.c_str());
      size_t batch = p.dims.size() == 5; // behind keys and values in one tensor
      if (p.dims[batch] == -1) p.dims[batch] = 1;
      auto axis = llvm::find(p.dims, -1);
      if (axis == p.dims.end() || llvm::count(p.dims, -1) != 1)
        return makeError(StatusCode::unsupported, "input '%s': expected a cache of which batch and sequence alone have unknown sizes", name.c_str());
      p.axis = uint32_t(axis - p.dims.begin());
      if (present.dims.size() != p.dims.size() || present.type != p.type || present.elementBytes != p.elementBytes)
        return makeError(StatusCode::unsupported, "result '%s': expected the type of input '%s'", present.name.c_str(), name.c_str());
      std::string own = present.name;
      present = p;
      present.name = own;
      present.role = GraphRole::present;
    } else {
      return makeError(StatusCode::unsupported,
                       "input '%s' of %s: a graph that was not recognised takes input_ids, attention_mask and position_ids of integers [batch, tokens], past_key_values.* with results "
                       "present.*, and nothing else", name.c_str(), ops::typeText(type).c_str());
    }
    section.inputs.push_back(std::move(p));
  }
  auto count = [](const std::vector<GraphPort> &ports, GraphRole role) { return llvm::count_if(ports, [&](const GraphPort &p) { return p.role == role; }); };
  if (count(section.inputs, GraphRole::tokens) != 1) return makeError(StatusCode::unsupported, "expected an input 'input_ids' of [batch, sequence] integers");
  if (count(section.outputs, GraphRole::logits) != 1) return makeError(StatusCode::unsupported, "expected a result 'logits'");
  if (!count(section.inputs, GraphRole::past))
    return makeError(StatusCode::unsupported, "expected inputs 'past_key_values.*' with results 'present.*', found none: without a cache each step would forget what came before; "
                                              "export the model with its cache");
  for (const GraphPort &p : section.outputs)
    if (p.role == GraphRole::logits && (p.dims.size() != 3 || p.dims[2] < 1 || p.type == GraphType::other || p.type == GraphType::i64 || p.type == GraphType::i32))
      return makeError(StatusCode::unsupported, "result 'logits': expected float [batch, sequence, vocabulary] with a known vocabulary");
  return Status();
}

/// A step without launches: the runtime calls the graph. Its KV group says what a token of the cache takes and counts tokens; there are no blocks.
Program programFor(const GraphSection &section, const CompileOptions &options) {
  constexpr uint32_t pageTokens = 16;
  uint32_t vocabulary = 0, caches = 0;
  uint64_t bytes = 0; // a token of the cache
  for (const GraphPort &port : section.outputs) {
    if (port.role == GraphRole::logits) vocabulary = uint32_t(port.dims[2]);
    if (port.role != GraphRole::present) continue;
    ++caches;
    bytes += std::accumulate(port.dims.begin(), port.dims.end(), uint64_t(port.elementBytes), [](uint64_t n, int64_t d) { return d == -1 ? n : n * uint64_t(d); });
  }
  Program p;
  p.kvGroups = {{0, 0, pageTokens, (caches + 1) / 2, bytes * pageTokens}};
  p.maxRows = p.maxOutRows = uint32_t(options.maxRows);
  p.maxSeq = uint32_t(options.maxSeq ? options.maxSeq : defaultPositions);
  p.vocabulary = p.logitsStride = vocabulary;
  p.hiddenSize = 1;
  p.hiddenStride = 16;
  p.hiddenOffset = (uint64_t(p.maxRows) * vocabulary * 4 + 63) / 64 * 64;
  p.arenaBytes = p.hiddenOffset + uint64_t(p.maxRows) * p.hiddenStride * 4;
  p.kernels = {"lathe_graph"};
  for (const char *name : {"step", "head"})
    p.entries.push_back({name, {{p.maxRows, 0, 0}}});
  return p;
}

std::string metadataWith(const std::string &metadata) {
  auto parsed = llvm::json::parse(metadata);
  llvm::json::Object object;
  if (parsed && parsed->getAsObject()) object = *parsed->getAsObject();
  if (!parsed) llvm::consumeError(parsed.takeError());
  object["general_graph"] = llvm::json::Object{{"sequences", 1}, {"cache", "contiguous"}, {"exact_tokens", false}};
  std::string out;
  llvm::raw_string_ostream(out) << llvm::json::Value(std::move(object));
  return out;
}

std::span<const uint8_t> bytesOf(const std::string &s) { return {reinterpret_cast<const uint8_t *>(s.data()), s.size()}; }

/// The program, the kernels and the host's code for a GPU. |module| is consumed.
Status addGpu(ModuleOp module, artifact::Variant variant, Program program, artifact::ArtifactWriter &writer, PackageReport &report) {
  using artifact::SectionKind;
  OwningOpRef<ModuleOp> owner(module);
  LATHE_ASSIGN_OR_RETURN(codegen::GpuGraph graph, codegen::compileGraphForGpu(module, variant));
  LATHE_ASSIGN_OR_RETURN(std::string code, codegen::linkGraph(graph.object));
  std::string cubin;
  if (std::string ptxas = codegen::nvptx::findPtxas(); !ptxas.empty()) {
    LATHE_ASSIGN_OR_RETURN(auto assembled, codegen::nvptx::runPtxas(ptxas, graph.ptx, *codegen::nvptx::findChip(variant)));
    cubin = std::move(assembled.cubin);
  }
  program.kernels = graph.kernels;
  program.blocks.assign(graph.kernels.size(), {graphBlockThreads, 0});
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::program, variant, encodeProgram(program)));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::code, variant, bytesOf(code)));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::ptx, variant, bytesOf(graph.ptx)));
  if (!cubin.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::cubin, variant, bytesOf(cubin)));
  report.kernels += int(graph.kernels.size());
  report.codeBytes += code.size() + graph.ptx.size() + cubin.size();
  return Status();
}

} // namespace

Result<PackageReport> packageGeneralGraph(ModuleOp module, const ModelText &modelText, const CompileOptions &options, const std::string &path,
                                          const std::function<void(uint64_t, uint64_t)> &progress) {
  using artifact::SectionKind;
  using artifact::Variant;
  PackageReport report;
  double start = now();
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main || main.isExternal()) return Status(StatusCode::invalidArgument, "@main: expected a function with a body, found " + std::string(main ? "a declaration" : "none"));
  {
    std::string complaints;
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
      if (d.getSeverity() == DiagnosticSeverity::Error) complaints += (complaints.empty() ? "" : "; ") + d.str();
      return success();
    });
    onnx::chooseCacheBranch(main);
    PassManager pm(module.getContext());
    pm.addPass(createONNXToLinalgPass());
    if (failed(pm.run(module))) return Status(StatusCode::unsupported, complaints);
  }
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  GraphSection section;
  std::vector<unsigned> weights;
  LATHE_RETURN_IF_ERROR(describe(graph, section, weights));
  for (Attribute check : module->getAttrOfType<ArrayAttr>("lathe.checks"))
    section.checks.push_back(cast<StringAttr>(check).str());
  uint64_t offset = 0;
  for (unsigned i : weights) {
    GraphPort &p = section.inputs[i];
    p.offset = offset;
    uint64_t bytes = p.elementBytes;
    for (int64_t n : p.dims)
      bytes *= uint64_t(n);
    offset = (offset + bytes + 63) / 64 * 64;
  }
  LATHE_ASSIGN_OR_RETURN(auto writer, artifact::ArtifactWriter::create(path));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::metadata, metadataWith(modelText.metadata)));
  Program program = programFor(section, options);
  if (!llvm::all_of(options.variants, artifact::isGpu)) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::program, Variant::none, encodeProgram(program)));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::graph, encodeGraphSection(section)));
  report.kernels = llvm::any_of(options.variants, [](Variant v) { return !artifact::isGpu(v); });
  std::map<Variant, std::string> built; // variants may share code
  for (Variant variant : options.variants) {
    if (artifact::isGpu(variant)) {
      LATHE_RETURN_IF_ERROR(addGpu(module.clone(), variant, program, writer, report));
      continue;
    }
    Variant emitted = codegen::emittedVariant(variant);
    if (!built.count(emitted)) {
      OwningOpRef<ModuleOp> copy = module.clone();
      LATHE_ASSIGN_OR_RETURN(std::string object, codegen::compileGraph(*copy, codegen::X86Target{emitted}));
      LATHE_ASSIGN_OR_RETURN(built[emitted], codegen::linkGraph(object));
    }
    const std::string &code = built[emitted];
    report.codeBytes += code.size();
    LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::code, variant, bytesOf(code)));
  }
  report.codeSeconds = now() - start;
  if (!modelText.tokenizer.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::tokenizer, Variant::none, modelText.tokenizer));
  if (!modelText.chatTemplate.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::chatTemplate, modelText.chatTemplate));
  if (!modelText.generation.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::generation, modelText.generation));

  start = now();
  LATHE_RETURN_IF_ERROR(writer.beginWeights());
  for (unsigned i : weights) {
    LATHE_RETURN_IF_ERROR(writer.pad(64));
    auto tensor = ops::readWeight(graph.getArgAttrOfType<TypeAttr>(i, "lathe.type").getValue(), graph.getArgAttr(i, "lathe.value"));
    if (!tensor.ok()) return tensor.status().at("weight '" + section.inputs[i].name + "'");
    LATHE_RETURN_IF_ERROR(writer.append(tensor->data));
    if (progress) progress(writer.weightBytes(), offset);
  }
  report.weightBytes = writer.weightBytes();
  report.packSeconds = now() - start;
  LATHE_RETURN_IF_ERROR(writer.finish());
  report.fileBytes = writer.fileBytes();
  return report;
}

} // namespace lathe
