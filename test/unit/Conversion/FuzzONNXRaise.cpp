// libFuzzer target: damaged exports through import, raising, and lowering to general code. Each ends raised, as a graph with a warning, or as an error with
// a message. The readers' fuzz targets have bytes that are no models; here models stay protobufs, and sizes, types, attributes, operators, names and edges are damaged.
//
// An input is a byte, which of the exports below test/fixtures/onnx it was, whose external data lies beside it, and the protobuf. No seeds are needed: what
// is no model is replaced by an export. Limits on memory and time are libFuzzer's (scripts/test-sanitizers.sh).
#include "dialects/LLM/LLM.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "lathe/ONNX/Inputs.h"
#include "lathe/import/Import.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "onnx.pb.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

namespace fs = std::filesystem;
using namespace lathe;
using Random = std::minstd_rand;
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {

struct Export {
  fs::path source;    ///< the .onnx file below test/fixtures
  fs::path directory; ///< where its damaged copies are written, beside its other files; empty until they are needed
};

/// All exports, in an order that does not depend on the file system.
std::vector<Export> &exports() {
  static std::vector<Export> all = [] {
    std::vector<Export> out;
    for (const auto &entry : fs::recursive_directory_iterator(fs::path(LATHE_SOURCE_DIR) / "test/fixtures/onnx"))
      if (entry.path().extension() == ".onnx") out.push_back({entry.path(), {}});
    std::sort(out.begin(), out.end(), [](const Export &a, const Export &b) { return a.source < b.source; });
    return out;
  }();
  return all;
}

struct Scratch {
  fs::path path;
  Scratch() {
    char name[] = "/tmp/lathe-fuzz-XXXXXX";
    path = mkdtemp(name);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

/// Where a damaged copy of export |index| goes.
fs::path placeOf(size_t index) {
  static Scratch scratch;
  Export &e = exports()[index];
  if (e.directory.empty()) {
    e.directory = scratch.path / std::to_string(index);
    fs::create_directory(e.directory);
    for (const auto &file : fs::directory_iterator(e.source.parent_path()))
      if (file.is_regular_file() && file.path().extension() != ".onnx") fs::copy_file(file.path(), e.directory / file.path().filename());
  }
  return e.directory / "model.onnx";
}

const int64_t numbers[] = {0, -1, 1, 2, 3, 7, 63, 64, (int64_t(1) << 31) - 1, int64_t(1) << 31, int64_t(1) << 40, int64_t(1) << 62, INT64_MAX, INT64_MIN};
const int types[] = {1, 2, 3, 6, 7, 9, 10, 11, 16, 21, 22, 99};

template <typename List> auto &pick(List &list, Random &chance) { return list[chance() % std::size(list)]; }
template <typename T> T *pickMutable(google::protobuf::RepeatedPtrField<T> *list, Random &chance) {
  return list->empty() ? nullptr : list->Mutable(int(chance() % unsigned(list->size())));
}

std::string anyValue(const ::onnx::GraphProto &graph, Random &chance) {
  std::vector<const std::string *> names;
  for (const auto &node : graph.node())
    for (const auto &name : node.output()) names.push_back(&name);
  for (const auto &tensor : graph.initializer()) names.push_back(&tensor.name());
  for (const auto &input : graph.input()) names.push_back(&input.name());
  return names.empty() ? "" : *pick(names, chance);
}

/// One number of a node's attribute.
void damageAttribute(::onnx::NodeProto *node, Random &chance) {
  auto *attribute = pickMutable(node->mutable_attribute(), chance);
  if (!attribute) return;
  if (attribute->type() == ::onnx::AttributeProto::INT) attribute->set_i(pick(numbers, chance));
  else if (attribute->ints_size()) attribute->set_ints(int(chance() % unsigned(attribute->ints_size())), pick(numbers, chance));
  else if (attribute->type() == ::onnx::AttributeProto::FLOAT) attribute->set_f(float(pick(numbers, chance)));
}

/// One number of a small tensor of integers: an axis, a shape, an index.
void damageConstant(::onnx::GraphProto *graph, Random &chance) {
  std::vector<::onnx::TensorProto *> small;
  auto look = [&](::onnx::TensorProto *tensor) {
    if (tensor->data_type() == ::onnx::TensorProto::INT64 && tensor->raw_data().size() >= 8 && tensor->raw_data().size() <= 64) small.push_back(tensor);
  };
  for (auto &tensor : *graph->mutable_initializer()) look(&tensor);
  for (auto &node : *graph->mutable_node())
    for (auto &attribute : *node.mutable_attribute())
      if (attribute.has_t()) look(attribute.mutable_t());
  if (small.empty()) return;
  std::string *raw = pick(small, chance)->mutable_raw_data();
  int64_t value = pick(numbers, chance);
  memcpy(raw->data() + chance() % (raw->size() / 8) * 8, &value, 8);
}

void damage(::onnx::GraphProto *graph, Random &chance) {
  auto *node = pickMutable(graph->mutable_node(), chance);
  auto *tensor = pickMutable(graph->mutable_initializer(), chance);
  if (!node) return;
  for (auto &attribute : *node->mutable_attribute())
    if (attribute.has_g() && chance() % 2) return damage(attribute.mutable_g(), chance);
  switch (chance() % 12) {
  case 0:
    if (tensor && tensor->dims_size()) tensor->set_dims(int(chance() % unsigned(tensor->dims_size())), pick(numbers, chance));
    break;
  case 1: return damageConstant(graph, chance);
  case 2: return damageAttribute(node, chance);
  case 3: node->set_op_type(graph->node(int(chance() % unsigned(graph->node_size()))).op_type()); break;
  case 4: // another value in its place: of another shape, or from behind it
    if (node->input_size()) node->set_input(int(chance() % unsigned(node->input_size())), anyValue(*graph, chance));
    break;
  case 5: graph->mutable_node()->DeleteSubrange(int(chance() % unsigned(graph->node_size())), 1); break;
  case 6: {
    auto *values = chance() % 2 ? graph->mutable_input() : graph->mutable_output();
    auto *value = pickMutable(values, chance);
    if (!value) break;
    auto *shape = value->mutable_type()->mutable_tensor_type()->mutable_shape();
    if (auto *dim = pickMutable(shape->mutable_dim(), chance)) dim->set_dim_value(pick(numbers, chance));
    break;
  }
  case 7:
    if (tensor) tensor->set_data_type(pick(types, chance));
    break;
  case 8:
    if (node->input_size()) node->mutable_input()->DeleteSubrange(int(chance() % unsigned(node->input_size())), 1);
    break;
  case 9: node->add_input(chance() % 2 ? anyValue(*graph, chance) : ""); break;
  case 10: // two weights are each other
    if (auto *other = pickMutable(graph->mutable_initializer(), chance); other && tensor && other != tensor) {
      std::string name = tensor->name();
      tensor->set_name(other->name());
      other->set_name(name);
    }
    break;
  case 11:
    if (auto *value = pickMutable(graph->mutable_input(), chance)) value->mutable_type()->mutable_tensor_type()->set_elem_type(pick(types, chance));
    break;
  }
}

[[noreturn]] void fail(const char *what, const std::string &detail) {
  fprintf(stderr, "%s: %s\n", what, detail.c_str());
  abort();
}

mlir::DialectRegistry registry() {
  interp::registerONNXHooks();
  mlir::DialectRegistry out;
  out.insert<llm::LLMDialect, lathe::onnx::ONNXDialect, mlir::arith::ArithDialect, mlir::bufferization::BufferizationDialect, mlir::func::FuncDialect, mlir::linalg::LinalgDialect,
             mlir::math::MathDialect, mlir::scf::SCFDialect, mlir::tensor::TensorDialect>();
  return out;
}

void compile(const std::string &path) {
  static const mlir::DialectRegistry dialects = registry();
  mlir::MLIRContext context(dialects, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) {
    messages += d.str() + "\n";
    return mlir::success();
  });
  auto module = importModel(context, path, {});
  if (!module.ok()) {
    if (module.status().message().empty()) fail("import ends without a message", path);
    if (module.status().code() == StatusCode::internal) fail("import", module.status().message());
    return;
  }
  ONNXRaisePassOptions options;
  options.remarks = true;
  mlir::PassManager raise(&context);
  raise.addPass(createONNXRaisePass(options));
  if (mlir::failed(raise.run(**module))) fail("raising ends with an error instead of a warning", messages);
  if ((*module)->lookupSymbol("step")) return;
  if (messages.empty()) fail("a graph stays one without a warning", path);
  messages.clear();
  lathe::onnx::fixChoices((*module)->lookupSymbol<mlir::func::FuncOp>("main"));
  mlir::PassManager lower(&context);
  lower.addPass(createONNXToLinalgPass());
  if (mlir::failed(lower.run(**module)) && messages.empty()) fail("lowering ends without a message", path);
}

} // namespace

/// The LLVM libraries are not instrumented: memory that they and this program hand each other in vectors and bump allocators is marked by one side only.
extern "C" const char *__asan_default_options() { return "allow_user_poisoning=0:detect_container_overflow=0"; }

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  Random chance(seed);
  if (size > 1 && chance() % 32 == 0) return 1 + LLVMFuzzerMutate(data + 1, size - 1, maxSize - 1);
  ::onnx::ModelProto model;
  size_t which = size ? data[0] % exports().size() : 0;
  if (size < 2 || chance() % 4 == 0 || !model.ParseFromArray(data + 1, int(size - 1)) || !model.graph().node_size()) {
    which = chance() % exports().size();
    std::ifstream file(exports()[which].source, std::ios::binary);
    if (!model.ParseFromIstream(&file)) fail("not a model", exports()[which].source);
  }
  for (unsigned k = 1 + chance() % 3; k > 0; --k)
    damage(model.mutable_graph(), chance);
  std::string bytes = model.SerializeAsString();
  if (bytes.size() + 1 > maxSize) return size;
  data[0] = uint8_t(which);
  memcpy(data + 1, bytes.data(), bytes.size());
  return bytes.size() + 1;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  fs::path path = placeOf(data[0] % exports().size());
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(reinterpret_cast<const char *>(data + 1), std::streamsize(size - 1));
  compile(path);
  return 0;
}
