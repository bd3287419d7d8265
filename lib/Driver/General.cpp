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

/// What no step can be made of, whatever its operators: said before they are looked at, whose errors do not say it.
Status checkDecoder(func::FuncOp main) {
  bool logits = false, past = false;
  for (unsigned i = 0; i < main.getNumResults(); ++i)
    logits |= onnx::resultName(main, i) == "logits";
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    std::string name = onnx::inputName(main, i);
    onnx::StepInput input = onnx::stepInput(name, main.getArgument(i).getType());
    past |= input == onnx::StepInput::past;
    auto type = dyn_cast<RankedTensorType>(main.getArgument(i).getType());
    // One token a step is what --max-rows 1 gives.
    if (input == onnx::StepInput::tokens && type && type.getRank() == 2 && !type.isDynamicDim(1) && type.getDimSize(1) != 1)
      return makeError(StatusCode::unsupported, "input '%s' of %s: expected any number of tokens, found a fixed size: export the model with dynamic axes, for the step, the past and the mask", name.c_str(),
                       ops::typeText(type).c_str());
  }
  if (!logits && !past)
    return makeError(StatusCode::unsupported, "expected a decoder, with a result 'logits' and inputs 'past_key_values.*', found neither: an encoder such as BERT makes no tokens");
  return Status();
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

/// How many positions a model was trained for, by the files beside its graph; 0: they do not say. A family that Lathe does not know says it as well.
int64_t positionsOf(ModuleOp module) {
  auto number = [](const llvm::json::Object *object, StringRef key) -> int64_t {
    auto n = object ? object->getInteger(key) : std::nullopt;
    return n && *n > 0 && *n <= (int64_t(1) << 24) ? *n : 0;
  };
  auto parsed = [&](StringRef attribute) -> llvm::json::Value {
    auto value = llvm::json::parse(text(module->getAttr(attribute)));
    if (value) return std::move(*value);
    llvm::consumeError(value.takeError());
    return nullptr;
  };
  llvm::json::Value config = parsed("onnx.config"), genai = parsed("onnx.genai_config");
  llvm::json::Object *top = config.getAsObject(), *inner = top ? top->getObject("text_config") : nullptr;
  for (const llvm::json::Object *object : {inner, top})
    for (const char *key : {"max_position_embeddings", "n_positions"})
      if (int64_t n = number(object, key)) return n;
  return number(genai.getAsObject() ? genai.getAsObject()->getObject("model") : nullptr, "context_length");
}

/// The type of the cache.
std::string cacheType(const GraphSection &section) {
  auto cache = llvm::find_if(section.inputs, [](const GraphPort &port) { return port.role == GraphRole::past; });
  GraphType type = cache == section.inputs.end() ? GraphType::other : cache->type;
  return type == GraphType::f32 ? "f32" : type == GraphType::f16 ? "f16" : type == GraphType::bf16 ? "bf16" : "graph";
}

/// Options that were given and do nothing here.
void warnOfOptions(const CompileOptions &options, const std::string &cache, std::vector<std::string> &warnings) {
  const CompileOptions plain;
  auto warn = [&](const std::string &option, const char *instead) { warnings.push_back(option + ": without effect, because general code " + instead); };
  if (options.quantize != plain.quantize) warn("--quantize '" + options.quantize + "'", "keeps the weights as the graph has them");
  if (options.kv != plain.kv && options.kv != cache) warn("--kv '" + options.kv + "'", "keeps the cache in the graph's own type");
  if (options.activations != plain.activations && options.activations != "f32") warn("--activations '" + options.activations + "'", "computes in float32");
  if (options.page != plain.page) warn("--page '" + std::to_string(options.page) + "'", "has a cache without pages");
  if (options.weights != plain.weights) warn("--weights '" + options.weights + "'", "keeps the weights as the graph has them");
  if (!options.disabled.empty()) warn("--disable '" + options.disabled[0] + "'", "has no fusion passes");
}

/// A step without launches: the runtime calls the graph. Its KV group says what a token of the cache takes and counts tokens; there are no blocks.
Program programFor(const GraphSection &section, const CompileOptions &options, int64_t positions) {
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
  p.maxSeq = uint32_t(options.maxSeq ? options.maxSeq : positions);
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

/// What of |metadata| is otherwise in general code: there is no model, and options say what is, not what was asked for.
std::string metadataWith(const std::string &metadata, const GraphSection &section, const Program &program, int64_t positions) {
  auto parsed = llvm::json::parse(metadata);
  llvm::json::Object object;
  if (parsed && parsed->getAsObject()) object = *parsed->getAsObject();
  if (!parsed) llvm::consumeError(parsed.takeError());
  if (llvm::json::Object *model = object.getObject("model")) {
    (*model)["vocabulary"] = program.vocabulary;
    (*model)["max_sequence"] = program.maxSeq;
    if (positions) (*model)["model_positions"] = positions;
  }
  if (llvm::json::Object *options = object.getObject("options")) {
    (*options)["kv"] = cacheType(section);
    (*options)["quantize"] = "none";
    (*options)["activations"] = "f32";
    options->erase("page");
  }
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
    for (std::string &line : codegen::nvptx::complaints(assembled, *codegen::nvptx::findChip(variant))) report.complaints.push_back(std::move(line));
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
                                          llvm::function_ref<Status(int64_t)> checkTokens, std::vector<std::string> &warnings,
                                          const std::function<void(uint64_t, uint64_t)> &progress) {
  using artifact::SectionKind;
  using artifact::Variant;
  PackageReport report;
  double start = now();
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main || main.isExternal()) return Status(StatusCode::invalidArgument, "@main: expected a function with a body, found " + std::string(main ? "a declaration" : "none"));
  LATHE_RETURN_IF_ERROR(checkDecoder(main));
  const int64_t positions = positionsOf(module);
  if (!positions && !options.maxSeq)
    warnings.push_back("neither config.json nor genai_config.json beside the model says how many positions it was trained for: " + std::to_string(defaultPositions) +
                       " are assumed; put a config.json beside it, or give --max-seq");
  {
    std::string complaints;
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
      if (d.getSeverity() == DiagnosticSeverity::Error) complaints += (complaints.empty() ? "" : "; ") + d.str();
      return success();
    });
    onnx::fixChoices(main);
    PassManager pm(module.getContext());
    pm.addPass(createONNXToLinalgPass());
    if (failed(pm.run(module))) return Status(StatusCode::unsupported, complaints);
  }
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  GraphSection section;
  std::vector<unsigned> weights;
  LATHE_RETURN_IF_ERROR(describe(graph, section, weights));
  Program program = programFor(section, options, positions ? positions : defaultPositions);
  LATHE_RETURN_IF_ERROR(checkTokens(program.vocabulary));
  warnOfOptions(options, cacheType(section), warnings);
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
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::metadata, metadataWith(modelText.metadata, section, program, positions)));
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
