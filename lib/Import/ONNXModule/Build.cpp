//===- Build.cpp - a read ONNX graph to the onnx dialect --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/ONNX/ONNX.h"
#include "lathe/ONNX/Numbers.h"
#include "lathe/ONNX/Operators.h"
#include "lathe/base/MappedFile.h"
#include "lathe/import/ONNXModule.h"
#include "lathe/import/Quote.h"
#include "lathe/import/Verify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;

namespace lathe {
namespace {

class ModuleBuilder {
public:
  ModuleBuilder(MLIRContext &context, const onnxfile::Model &model) : context(context), model(model), builder(&context) {}
  Result<OwningOpRef<ModuleOp>> run();

private:
  /// The values of a graph by name, and around them those of the graphs that it lies in.
  struct Scope {
    llvm::StringMap<Value> own;
    const Scope *outer = nullptr;
    Value lookup(StringRef name) const {
      auto it = own.find(name);
      return it != own.end() ? it->second : outer ? outer->lookup(name) : Value();
    }
    Value &operator[](StringRef name) { return own[name]; }
  };
  /// Types that a graph states of its outputs.
  using OutputTypes = llvm::StringMap<const onnxfile::Value *>;

  Result<Type> valueType(const onnxfile::Value &value, bool needed);
  Type typeOf(const onnxfile::Graph &graph, const OutputTypes &outputs, const std::string &name);
  Result<DenseElementsAttr> dense(const onnxfile::Tensor &tensor, ArrayRef<uint8_t> bytes);
  Result<Value> tensor(const onnxfile::Tensor &tensor, Location loc);
  Result<Attribute> attribute(const onnxfile::Attribute &attribute);
  Status node(const onnxfile::Node &node, const onnxfile::Graph &graph, const OutputTypes &outputs, Scope &scope);
  Status constantNode(const onnxfile::Node &node, Scope &scope);
  Status body(const onnxfile::Graph &graph, Scope &scope);
  Status subgraph(const onnxfile::Graph &graph, Region &region, const Scope &outer);
  Attribute dims(const onnxfile::Value &value);
  Result<ArrayRef<uint8_t>> bytesOf(const onnxfile::Tensor &tensor);

  MLIRContext &context;
  const onnxfile::Model &model;
  OpBuilder builder;
  OwningOpRef<ModuleOp> module;
  Operation *main = nullptr;
  llvm::StringMap<int> symbols; ///< params, with the last number that was put behind the name
  std::map<std::string, MappedFile> files;
};

/// |needed|: a value without a tensor type is an error.
Result<Type> ModuleBuilder::valueType(const onnxfile::Value &value, bool needed) {
  if (needed && value.type == onnxfile::DataType::undefined)
    return Status(StatusCode::unsupported, "value " + quoteName(value.name) + ": expected a tensor, found a sequence, a map or no type");
  Type element = onnx::elementType(&context, value.type);
  if (!element)
    return Status(StatusCode::unsupported, "value " + quoteName(value.name) + ": element type " + onnxfile::dataTypeName(value.type) + " is not supported");
  if (!value.hasShape) return Type(UnrankedTensorType::get(element));
  SmallVector<int64_t> shape;
  for (const onnxfile::Dim &dim : value.dims)
    shape.push_back(dim.value < 0 ? ShapedType::kDynamic : dim.value);
  return Type(RankedTensorType::get(shape, element));
}

Type ModuleBuilder::typeOf(const onnxfile::Graph &graph, const OutputTypes &outputs, const std::string &name) {
  const onnxfile::Value *value = nullptr;
  if (auto it = graph.values.find(name); it != graph.values.end()) value = &it->second;
  if (!value) value = outputs.lookup(name);
  if (value)
    if (auto type = valueType(*value, false); type.ok()) return *type;
  return UnrankedTensorType::get(onnx::AnyType::get(&context));
}

Result<ArrayRef<uint8_t>> ModuleBuilder::bytesOf(const onnxfile::Tensor &tensor) {
  if (tensor.path.empty()) return ArrayRef<uint8_t>(tensor.data);
  auto it = files.find(tensor.path);
  if (it == files.end()) {
    LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(tensor.path));
    it = files.emplace(tensor.path, std::move(file)).first;
  }
  auto bytes = it->second.bytes();
  if (tensor.offset > bytes.size() || tensor.bytes > bytes.size() - tensor.offset)
    return Status(StatusCode::dataLoss, "file " + quoteName(tensor.path) + " changed while it was read");
  return ArrayRef<uint8_t>(bytes.data() + tensor.offset, tensor.bytes);
}

/// A constant of |bytes| (little-endian, packed below 8 bits).
Result<DenseElementsAttr> ModuleBuilder::dense(const onnxfile::Tensor &tensor, ArrayRef<uint8_t> bytes) {
  Type element = onnx::elementType(&context, tensor.type);
  if (!element)
    return Status(StatusCode::unsupported, "tensor " + quoteName(tensor.name) + ": element type " + onnxfile::dataTypeName(tensor.type) + " is not supported");
  auto type = RankedTensorType::get(tensor.dims, element);
  int bits = onnxfile::dataTypeBits(tensor.type);
  auto count = static_cast<size_t>(tensor.elements());
  if (tensor.type == onnxfile::DataType::string) {
    SmallVector<StringRef> strings(tensor.strings.begin(), tensor.strings.end());
    return DenseElementsAttr(cast<DenseElementsAttr>(DenseStringElementsAttr::get(type, strings)));
  }
  if (bits >= 8 && tensor.type != onnxfile::DataType::boolean)
    return DenseElementsAttr::getFromRawBuffer(type, ArrayRef(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
  SmallVector<APInt> values;
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (bits == 8)
      values.push_back(APInt(1, bytes[i] != 0));
    else
      values.push_back(APInt(static_cast<unsigned>(bits), onnx::packedBits(bytes.data(), i, bits)));
  }
  if (isa<IntegerType>(element)) return DenseElementsAttr::get(type, values);
  SmallVector<APFloat> floats;
  for (const APInt &value : values)
    floats.emplace_back(cast<FloatType>(element).getFloatSemantics(), value);
  return DenseElementsAttr::get(type, floats);
}

/// A tensor of the file as a value: scalars and small integers are constants (they steer the graph), the rest are params.
Result<Value> ModuleBuilder::tensor(const onnxfile::Tensor &tensor, Location loc) {
  bool floats = tensor.type == onnxfile::DataType::float32 || tensor.type == onnxfile::DataType::float16 || tensor.type == onnxfile::DataType::bfloat16;
  bool small = tensor.elements() <= 1 || (!floats && tensor.elements() <= 64) || tensor.type == onnxfile::DataType::string;
  if (small && static_cast<int64_t>(tensor.bytes) <= onnx::maxConstantBytes) {
    LATHE_ASSIGN_OR_RETURN(ArrayRef<uint8_t> bytes, bytesOf(tensor));
    LATHE_ASSIGN_OR_RETURN(DenseElementsAttr value, dense(tensor, bytes));
    return Value(onnx::ConstantOp::create(builder, loc, value));
  }
  Attribute value;
  if (tensor.path.empty()) {
    LATHE_ASSIGN_OR_RETURN(value, dense(tensor, tensor.data));
  } else {
    value = onnx::FileAttr::get(&context, tensor.path, static_cast<int64_t>(tensor.offset), static_cast<int64_t>(tensor.bytes));
  }
  Type element = onnx::elementType(&context, tensor.type);
  if (!element)
    return Status(StatusCode::unsupported, "tensor " + quoteName(tensor.name) + ": element type " + onnxfile::dataTypeName(tensor.type) + " is not supported");
  auto type = RankedTensorType::get(tensor.dims, element);
  std::string symbol = tensor.name.empty() ? "constant" : tensor.name;
  while (!symbols.try_emplace(symbol, 0).second)
    symbol = tensor.name + "#" + std::to_string(++symbols[tensor.name.empty() ? "constant" : tensor.name]);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(main);
    onnx::ParamOp::create(builder, NameLoc::get(builder.getStringAttr(tensor.name)), builder.getStringAttr(symbol), value, TypeAttr::get(type));
  }
  return Value(onnx::WeightOp::create(builder, loc, type, symbol));
}

Result<Attribute> ModuleBuilder::attribute(const onnxfile::Attribute &a) {
  switch (a.kind) {
  case onnxfile::Attribute::number:
    return Attribute(builder.getF32FloatAttr(a.f));
  case onnxfile::Attribute::integer:
    return Attribute(builder.getI64IntegerAttr(a.i));
  case onnxfile::Attribute::string:
    return Attribute(builder.getStringAttr(a.s));
  case onnxfile::Attribute::numbers:
    return Attribute(builder.getDenseF32ArrayAttr(a.fs));
  case onnxfile::Attribute::integers:
    return Attribute(builder.getDenseI64ArrayAttr(a.is));
  case onnxfile::Attribute::strings: {
    SmallVector<Attribute> list;
    for (const std::string &s : a.ss)
      list.push_back(builder.getStringAttr(s));
    return Attribute(builder.getArrayAttr(list));
  }
  case onnxfile::Attribute::tensor: {
    if (static_cast<int64_t>(a.ts[0].bytes) > onnx::maxConstantBytes)
      return Status(StatusCode::unsupported, "attribute " + quoteName(a.name) + ": a tensor of more than 64 KiB is not supported");
    LATHE_ASSIGN_OR_RETURN(ArrayRef<uint8_t> bytes, bytesOf(a.ts[0]));
    LATHE_ASSIGN_OR_RETURN(DenseElementsAttr value, dense(a.ts[0], bytes));
    return Attribute(value);
  }
  default:
    return Status(StatusCode::unsupported, "attribute " + quoteName(a.name) + ": lists of tensors or graphs are not supported");
  }
}

/// Constant nodes are constants and params, whatever attribute holds the value.
Status ModuleBuilder::constantNode(const onnxfile::Node &node, Scope &scope) {
  auto bad = [&](const char *what) { return Status(StatusCode::invalidArgument, what); };
  if (node.attributes.size() != 1 || node.outputs.size() != 1) return bad("expected one attribute and one output");
  const onnxfile::Attribute &a = node.attributes[0];
  Location loc = NameLoc::get(builder.getStringAttr(node.outputs[0]));
  auto vector = [&](Type element, size_t size) { return RankedTensorType::get({static_cast<int64_t>(size)}, element); };
  DenseElementsAttr value;
  switch (a.kind) {
  case onnxfile::Attribute::tensor: {
    onnxfile::Tensor named = a.ts[0];
    named.name = node.outputs[0];
    LATHE_ASSIGN_OR_RETURN(Value v, tensor(named, loc));
    scope[node.outputs[0]] = v;
    return Status();
  }
  case onnxfile::Attribute::number:
    value = DenseElementsAttr::get(RankedTensorType::get({}, builder.getF32Type()), a.f);
    break;
  case onnxfile::Attribute::integer:
    value = DenseElementsAttr::get(RankedTensorType::get({}, builder.getI64Type()), a.i);
    break;
  case onnxfile::Attribute::numbers:
    value = DenseElementsAttr::get(vector(builder.getF32Type(), a.fs.size()), ArrayRef<float>(a.fs));
    break;
  case onnxfile::Attribute::integers:
    value = DenseElementsAttr::get(vector(builder.getI64Type(), a.is.size()), ArrayRef<int64_t>(a.is));
    break;
  default:
    return bad("expected a tensor or numbers as its value");
  }
  scope[node.outputs[0]] = onnx::ConstantOp::create(builder, loc, value);
  return Status();
}

Status ModuleBuilder::node(const onnxfile::Node &node, const onnxfile::Graph &graph, const OutputTypes &outputs, Scope &scope) {
  if (node.domain.empty() && node.op == "Constant") return constantNode(node, scope);
  LATHE_ASSIGN_OR_RETURN(const onnx::Operator *op, onnx::findOperator(node.domain, node.op, node.domain.empty() ? node.opset : std::max<int64_t>(1, node.opset)));
  std::string name = node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
  Location loc = NameLoc::get(builder.getStringAttr(name));
  SmallVector<Value> inputs;
  Value none;
  for (const std::string &input : node.inputs) {
    if (!input.empty()) {
      inputs.push_back(scope.lookup(input));
      continue;
    }
    if (!none) none = onnx::NoneOp::create(builder, loc, builder.getNoneType());
    inputs.push_back(none);
  }
  SmallVector<Type> types;
  for (const std::string &output : node.outputs)
    types.push_back(output.empty() ? Type(builder.getNoneType()) : typeOf(graph, outputs, output));
  while (!types.empty() && isa<NoneType>(types.back()) && types.size() > static_cast<size_t>(op->minOutputs))
    types.pop_back();
  SmallVector<NamedAttribute> attributes;
  for (const onnxfile::Attribute &a : node.attributes) {
    if (a.kind == onnxfile::Attribute::graph) continue;
    LATHE_ASSIGN_OR_RETURN(Attribute value, attribute(a));
    attributes.push_back(builder.getNamedAttr(a.name, value));
  }
  auto graphs = op->graphs();
  OperationState state(loc, onnx::NodeOp::getOperationName());
  onnx::NodeOp::build(builder, state, types, builder.getStringAttr(node.op), inputs, builder.getStringAttr(node.domain),
                      builder.getI64IntegerAttr(op->since), builder.getDictionaryAttr(attributes), static_cast<unsigned>(graphs.size()));
  auto made = cast<onnx::NodeOp>(builder.create(state));
  for (auto [i, output] : llvm::enumerate(node.outputs))
    if (!output.empty()) scope[output] = made.getOutputs()[i];
  for (auto [i, graphName] : llvm::enumerate(graphs)) {
    const onnxfile::Attribute *a = node.attribute(graphName);
    if (!a || a->kind != onnxfile::Attribute::graph) return Status(StatusCode::invalidArgument, "expected a graph as attribute " + quoteName(graphName));
    LATHE_RETURN_IF_ERROR(subgraph(*a->gs[0], made.getBodies()[i], scope));
  }
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (message.empty()) message = diagnostic.str();
    return success();
  });
  if (failed(made.verify())) return Status(StatusCode::invalidArgument, StringRef(message).split("'onnx.op' op ").second.empty() ? message : StringRef(message).split("'onnx.op' op ").second.str());
  return Status();
}

Status ModuleBuilder::body(const onnxfile::Graph &graph, Scope &scope) {
  for (const onnxfile::Tensor &initializer : graph.initializers) {
    LATHE_ASSIGN_OR_RETURN(Value value, tensor(initializer, NameLoc::get(builder.getStringAttr(initializer.name))));
    scope[initializer.name] = value;
  }
  OutputTypes outputs;
  for (const onnxfile::Value &output : graph.outputs)
    outputs.try_emplace(output.name, &output);
  for (const onnxfile::Node &n : graph.nodes) {
    Status status = node(n, graph, outputs, scope);
    if (!status.ok())
      return std::move(status).at("node " + quoteName(n.name.empty() && !n.outputs.empty() ? n.outputs[0] : n.name) + " (" + n.domain + (n.domain.empty() ? "" : "::") +
                                  n.op + ", operator set " + std::to_string(n.opset) + ")");
  }
  return Status();
}

Status ModuleBuilder::subgraph(const onnxfile::Graph &graph, Region &region, const Scope &outer) {
  OpBuilder::InsertionGuard guard(builder);
  Block *block = builder.createBlock(&region);
  Scope scope;
  scope.outer = &outer;
  for (const onnxfile::Value &input : graph.inputs) {
    LATHE_ASSIGN_OR_RETURN(Type type, valueType(input, false));
    scope[input.name] = block->addArgument(type, NameLoc::get(builder.getStringAttr(input.name)));
  }
  LATHE_RETURN_IF_ERROR(body(graph, scope));
  SmallVector<Value> outputs;
  for (const onnxfile::Value &output : graph.outputs)
    outputs.push_back(scope.lookup(output.name));
  onnx::YieldOp::create(builder, builder.getUnknownLoc(), outputs);
  return Status();
}

Attribute ModuleBuilder::dims(const onnxfile::Value &value) {
  SmallVector<StringRef> names;
  for (const onnxfile::Dim &dim : value.dims)
    names.push_back(dim.name);
  return builder.getStrArrayAttr(names);
}

Result<OwningOpRef<ModuleOp>> ModuleBuilder::run() {
  context.loadDialect<onnx::ONNXDialect, func::FuncDialect>();
  module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd(module->getBody());
  (*module)->setAttr("onnx.model", builder.getDictionaryAttr({builder.getNamedAttr("producer", builder.getStringAttr(model.producer)),
                                                              builder.getNamedAttr("ir_version", builder.getI64IntegerAttr(model.irVersion)),
                                                              builder.getNamedAttr("path", builder.getStringAttr(model.path))}));
  SmallVector<Type> inputs, outputs;
  for (const onnxfile::Value &input : model.graph.inputs) {
    LATHE_ASSIGN_OR_RETURN(Type type, valueType(input, true));
    inputs.push_back(type);
  }
  auto function = func::FuncOp::create(builder, builder.getUnknownLoc(), "main", builder.getFunctionType(inputs, outputs));
  main = function;
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  Scope scope;
  for (auto [i, input] : llvm::enumerate(model.graph.inputs)) {
    scope[input.name] = entry->getArgument(i);
    function.setArgAttr(i, "onnx.name", builder.getStringAttr(input.name));
    function.setArgAttr(i, "onnx.dims", dims(input));
  }
  LATHE_RETURN_IF_ERROR(body(model.graph, scope));
  SmallVector<Value> results;
  for (const onnxfile::Value &output : model.graph.outputs)
    results.push_back(scope.lookup(output.name));
  func::ReturnOp::create(builder, builder.getUnknownLoc(), results);
  function.setType(builder.getFunctionType(inputs, ValueRange(results).getTypes()));
  for (auto [i, output] : llvm::enumerate(model.graph.outputs)) {
    function.setResultAttr(i, "onnx.name", builder.getStringAttr(output.name));
    function.setResultAttr(i, "onnx.dims", dims(output));
  }
  for (const auto &[path, file] : files)
    LATHE_RETURN_IF_ERROR(file.check());
  LATHE_RETURN_IF_ERROR(verifyImported(*module));
  return std::move(module);
}

} // namespace

Result<OwningOpRef<ModuleOp>> buildONNXModule(MLIRContext &context, const onnxfile::Model &model) {
  return ModuleBuilder(context, model).run();
}

Result<OwningOpRef<ModuleOp>> importONNX(MLIRContext &context, const std::string &path) {
  LATHE_ASSIGN_OR_RETURN(onnxfile::Model model, onnxfile::read(path));
  auto module = buildONNXModule(context, model);
  if (!module.ok()) return module.status().at(path);
  for (const std::string &directory : directoriesOfONNX(path))
    LATHE_RETURN_IF_ERROR(addONNXConfigs(**module, directory));
  return module;
}

Status addONNXConfigs(ModuleOp module, const std::string &directory) {
  for (auto [name, attribute] : {std::pair("config.json", "onnx.config"), std::pair("genai_config.json", "onnx.genai_config")}) {
    if (module->hasAttr(attribute)) continue;
    auto resolved = resolveInside(directory, name);
    if (!resolved.ok()) continue;
    LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(*resolved));
    if (file.fileSize() > (size_t(1) << 20)) return makeError(StatusCode::invalidArgument, "'%s': expected at most 1048576 bytes, found %zu", resolved->c_str(), size_t(file.fileSize()));
    StringRef text(reinterpret_cast<const char *>(file.bytes().data()), file.fileSize());
    module->setAttr(attribute, StringAttr::get(module.getContext(), text));
    LATHE_RETURN_IF_ERROR(file.check());
  }
  return Status();
}

bool isONNXName(StringRef path) { return path.ends_with_insensitive(".onnx"); }

std::vector<std::string> directoriesOfONNX(const std::string &path) {
  StringRef own = llvm::sys::path::parent_path(path);
  std::vector<std::string> directories = {own.empty() ? "." : own.str()};
  SmallString<256> absolute(directories[0]);
  if (!llvm::sys::fs::make_absolute(absolute)) {
    llvm::sys::path::remove_dots(absolute, true);
    if (llvm::sys::path::filename(absolute) == "onnx") directories.push_back(llvm::sys::path::parent_path(absolute).str());
  }
  return directories;
}

Result<std::string> findONNXFile(const std::string &path) {
  if (!llvm::sys::fs::is_directory(path)) return path;
  std::vector<std::string> found;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(path, error), end; it != end && !error; it.increment(error))
    if (isONNXName(it->path())) found.push_back(it->path());
  for (const std::string &file : found)
    if (llvm::sys::path::filename(file) == "model.onnx") return file;
  if (found.size() == 1) return found[0];
  if (found.empty()) return Status(StatusCode::notFound, "no .onnx file in '" + path + "'");
  return makeError(StatusCode::invalidArgument, "'%s' has %zu .onnx files and no model.onnx: name one of them", path.c_str(), found.size());
}

} // namespace lathe
