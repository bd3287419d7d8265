// The reader of ONNX files: what it reads, and a clear error for everything else.
#include "lathe/import/ONNX.h"
#include "onnx.pb.h"
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::onnxfile;

namespace {

class ONNXTest : public ::testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/lathe-onnx-XXXXXX";
    directory = mkdtemp(name);
    model.set_ir_version(10);
    auto *opset = model.add_opset_import();
    opset->set_version(18);
    graph = model.mutable_graph();
    addValue(graph->add_input(), "x");
    addValue(graph->add_output(), "y");
  }
  void TearDown() override { ASSERT_EQ(system(("rm -rf '" + directory + "'").c_str()), 0); }

  static void addValue(::onnx::ValueInfoProto *value, const char *name) {
    value->set_name(name);
    auto *type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(1);
    type->mutable_shape()->add_dim()->set_dim_param("n");
  }
  static ::onnx::NodeProto *addNode(::onnx::GraphProto *graph, const char *op, std::vector<const char *> in, std::vector<const char *> out) {
    auto *node = graph->add_node();
    node->set_op_type(op);
    node->set_name(std::string(op) + "_node");
    for (const char *name : in) node->add_input(name);
    for (const char *name : out) node->add_output(name);
    return node;
  }
  ::onnx::TensorProto *addTensor(const char *name, int type, std::vector<int64_t> dims, std::string raw = "") {
    auto *tensor = graph->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (int64_t dim : dims) tensor->add_dims(dim);
    if (!raw.empty()) tensor->set_raw_data(raw);
    return tensor;
  }
  static void addExternal(::onnx::TensorProto *tensor, const std::string &location, const char *offset, const char *length) {
    tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
    auto add = [&](const char *key, const std::string &value) {
      auto *entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location);
    if (offset) add("offset", offset);
    if (length) add("length", length);
  }
  Result<Model> read() {
    std::string path = directory + "/model.onnx";
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    return onnxfile::read(path);
  }
  /// A call of function "Long" with a name of a megabyte is refused, and before it has cost a gigabyte.
  void expectCallIsTooLong() {
    auto *import = model.add_opset_import();
    import->set_domain("local");
    import->set_version(1);
    auto *call = addNode(graph, "Long", {"x"}, {"y"});
    call->set_domain("local");
    call->set_name(std::string(1 << 20, 'n'));
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    expectError("inlining makes more than 1048576 nodes, or names and attributes of more than 268435456 bytes");
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1 << 20) << "kilobytes";
  }
  void expectError(const std::string &message, StatusCode code = StatusCode::invalidArgument) {
    auto result = read();
    ASSERT_FALSE(result.ok()) << "expected: " << message;
    EXPECT_NE(result.status().message().find(message), std::string::npos) << result.status().message();
    EXPECT_EQ(result.status().code(), code);
  }
  void writeData(const char *name, size_t bytes) { std::ofstream(directory + "/" + name, std::ios::binary) << std::string(bytes, 'x'); }

  std::string directory;
  ::onnx::ModelProto model;
  ::onnx::GraphProto *graph = nullptr;
};

TEST_F(ONNXTest, ReadsAGraph) {
  addNode(graph, "Relu", {"x"}, {"y"});
  addTensor("w", 1, {2}, std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->graph.nodes.size(), 1u);
  EXPECT_EQ(result->graph.nodes[0].op, "Relu");
  EXPECT_EQ(result->graph.nodes[0].opset, 18);
  EXPECT_EQ(result->graph.inputs[0].dims[0].name, "n");
  // A name that is a number is a size.
  for (auto [name, size] : {std::pair("16", 16), {"0", -1}, {"007", -1}, {"16a", -1}, {"-1", -1}, {"1000000000", -1}}) {
    graph->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(name);
    auto sized = read();
    ASSERT_TRUE(sized.ok()) << sized.status().message();
    EXPECT_EQ(sized->graph.inputs[0].dims[0].value, size);
    EXPECT_EQ(sized->graph.inputs[0].dims[0].name, size < 0 ? name : "");
  }
  // The weight is where it is in the file.
  const Tensor &w = result->graph.initializers[0];
  EXPECT_EQ(w.bytes, 8u);
  std::ifstream file(w.path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(w.offset));
  float values[2];
  file.read(reinterpret_cast<char *>(values), 8);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 2.0f);
}

TEST_F(ONNXTest, SortsNodes) {
  addNode(graph, "Relu", {"a"}, {"y"});
  addNode(graph, "Neg", {"x"}, {"a"});
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->graph.nodes[0].op, "Neg");
}

TEST_F(ONNXTest, TypedFieldsAndSmallTypes) {
  addNode(graph, "Relu", {"x"}, {"y"});
  auto *f = addTensor("f", 1, {2});
  f->add_float_data(1.5f);
  f->add_float_data(-2);
  auto *i4 = addTensor("i4", 22, {3});
  i4->add_int32_data(0x21);
  i4->add_int32_data(0x0f);
  auto *bf = addTensor("bf", 16, {1});
  bf->add_int32_data(0x3f80);
  addTensor("e8", 24, {2}, "ab");
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  float values[2];
  memcpy(values, result->graph.initializers[0].data.data(), 8);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(result->graph.initializers[1].data, (std::vector<uint8_t>{0x21, 0x0f}));
  EXPECT_EQ(result->graph.initializers[2].data, (std::vector<uint8_t>{0x80, 0x3f}));
  EXPECT_EQ(result->graph.initializers[3].bytes, 2u);
}

TEST_F(ONNXTest, ExternalData) {
  addNode(graph, "Relu", {"x"}, {"y"});
  writeData("weights.bin", 100);
  addExternal(addTensor("w", 1, {2, 3}), "weights.bin", "8", "24");
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->graph.initializers[0].offset, 8u);
  EXPECT_EQ(result->graph.initializers[0].bytes, 24u);
  // A link within the directory is what it names.
  ASSERT_EQ(symlink("weights.bin", (directory + "/inside.bin").c_str()), 0);
  graph->mutable_initializer(0)->clear_external_data();
  addExternal(graph->mutable_initializer(0), "inside.bin", "8", "24");
  result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->graph.initializers[0].offset, 8u);
}

// Weights stay where they are: a file of 2.5 GB, of which no byte is on disk, is read without taking memory for it.
TEST_F(ONNXTest, LargeExternalDataCostsNoMemory) {
  constexpr off_t bytes = off_t(5) << 29;
  addNode(graph, "Relu", {"x"}, {"y"});
  std::string path = directory + "/weights.bin";
  std::ofstream(path).close();
  ASSERT_EQ(truncate(path.c_str(), bytes), 0);
  addExternal(addTensor("w", 1, {5, int64_t(1) << 27}), "weights.bin", nullptr, nullptr);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  auto result = read();
  getrusage(RUSAGE_SELF, &after);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->graph.initializers[0].bytes, static_cast<uint64_t>(bytes));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "kilobytes";
}

TEST_F(ONNXTest, ExternalDataErrors) {
  addNode(graph, "Relu", {"x"}, {"y"});
  writeData("weights.bin", 20);
  auto *w = addTensor("w", 1, {2, 3});
  struct {
    const char *location, *offset, *length, *message;
    StatusCode code = StatusCode::invalidArgument;
  } cases[] = {
      {"missing.bin", nullptr, nullptr, "tensor 'w': external data: cannot open", StatusCode::notFound},
      {"../weights.bin", nullptr, nullptr, "'..' is not allowed"},
      {"/etc/passwd", nullptr, nullptr, "expected a relative file name, found an absolute one"},
      {"", nullptr, nullptr, "expected a relative file name"},
      {"weights.bin", nullptr, nullptr, "expected 24 bytes at offset 0 of"},
      {"weights.bin", "18446744073709551600", nullptr, "expected a number as offset"},
      {"weights.bin", "x", nullptr, "expected a number as offset, found 'x'"},
      {"weights.bin", "9000000000000000000", "24", "the file ends at 20"},
      {"weights.bin", "0", "23", "expected a length of 24 bytes for its shape and type float32, found 23"},
  };
  for (auto &c : cases) {
    w->clear_external_data();
    addExternal(w, c.location, c.offset, c.length);
    expectError(c.message, c.code);
  }
  ASSERT_EQ(symlink("/etc/passwd", (directory + "/link.bin").c_str()), 0);
  w->clear_external_data();
  addExternal(w, "link.bin", nullptr, nullptr);
  expectError("resolves to a file outside the model's directory");
  ASSERT_EQ(mkfifo((directory + "/pipe.bin").c_str(), 0600), 0);
  w->clear_external_data();
  addExternal(w, "pipe.bin", nullptr, nullptr);
  expectError("is not a regular file");
}

TEST_F(ONNXTest, TensorErrors) {
  addNode(graph, "Relu", {"x"}, {"y"});
  auto *w = addTensor("w", 1, {2, 3}, "abc");
  expectError("tensor 'w': expected 24 bytes for its shape and type float32, found 3");
  w->set_dims(0, -2);
  expectError("tensor 'w': expected sizes of at least 0, found -2");
  w->set_dims(0, int64_t(1) << 40);
  w->set_dims(1, int64_t(1) << 40);
  expectError("the shape has more than 2^58 elements");
  w->set_data_type(99);
  w->set_dims(0, 1);
  expectError("element type type 99 is not supported", StatusCode::unsupported);
  w->set_data_type(1);
  for (int i = 0; i < 70; ++i) w->add_dims(1);
  expectError("expected at most 64 dimensions, found 72");
}

TEST_F(ONNXTest, NameErrors) {
  auto *relu = addNode(graph, "Relu", {"a"}, {"y"});
  expectError("node 'Relu_node' (Relu): input 'a' has no definition");
  relu->set_input(0, "y");
  expectError("node 'Relu_node' (Relu) is part of a cycle");
  relu->set_input(0, "x");
  addNode(graph, "Neg", {"x"}, {"y"});
  expectError("value 'y' has two definitions");
  graph->mutable_node()->RemoveLast();
  addValue(graph->add_output(), "z");
  expectError("output 'z' has no definition");
}

TEST_F(ONNXTest, ModelErrors) {
  addNode(graph, "Relu", {"x"}, {"y"});
  model.set_ir_version(15);
  expectError("IR version 15 is not supported, only 3 to 14 are", StatusCode::unsupported);
  model.set_ir_version(2);
  expectError("IR version 2 is not supported, only 3 to 14 are", StatusCode::unsupported);
  for (int version : {3, 14}) {
    model.set_ir_version(version);
    EXPECT_TRUE(read().ok()) << version;
  }
  model.set_ir_version(10);
  model.add_opset_import()->set_domain("ai.onnx");
  expectError("operator set 'ai.onnx' is imported twice");
  model.mutable_opset_import()->RemoveLast();
  model.clear_graph();
  expectError("not an ONNX model: it has no graph");
}

TEST_F(ONNXTest, DamagedBytes) {
  addNode(graph, "Relu", {"x"}, {"y"});
  addTensor("w", 1, {2}, std::string(8, 'x'));
  std::string bytes = model.SerializeAsString();
  // Any prefix is a graph or an error, never more.
  for (size_t n = 0; n < bytes.size(); ++n) {
    auto result = parse({reinterpret_cast<const uint8_t *>(bytes.data()), n}, "m", ".");
    if (!result.ok()) EXPECT_FALSE(result.status().message().empty());
  }
  std::string group = "\x0b";
  auto result = parse({reinterpret_cast<const uint8_t *>(group.data()), 1}, "m", ".");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "not an ONNX model: damaged at byte 0");
  std::string opset = "\x42\x01\xff"; // an operator set of one byte that begins a number
  result = parse({reinterpret_cast<const uint8_t *>(opset.data()), opset.size()}, "m", ".");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "not an ONNX model: expected messages of onnx.proto, found bytes that are none");
}

TEST_F(ONNXTest, DeepNesting) {
  ::onnx::GraphProto *at = graph;
  for (int i = 0; i < 40; ++i) {
    auto *attribute = addNode(at, "If", {}, {"y"})->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(::onnx::AttributeProto::GRAPH);
    at = attribute->mutable_g();
  }
  expectError("graphs are nested deeper than");
}

TEST_F(ONNXTest, HugeFile) {
  std::string path = directory + "/model.onnx";
  std::ofstream(path).close();
  ASSERT_EQ(truncate(path.c_str(), (off_t(1) << 31) + 10), 0);
  auto result = onnxfile::read(path);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("a protobuf of 2147483658 bytes is not supported, the limit is 2 GB: store the weights as external data"), std::string::npos)
      << result.status().message();
}

TEST_F(ONNXTest, InlinesFunctions) {
  auto *function = model.add_functions();
  function->set_domain("local");
  function->set_name("Twice");
  function->add_input("a");
  function->add_output("b");
  function->add_attribute("to");
  auto *import = function->add_opset_import();
  import->set_version(13);
  auto body = [&](const char *op, const char *in, const char *out) {
    auto *node = function->add_node();
    node->set_op_type(op);
    node->add_input(in);
    node->add_output(out);
    return node;
  };
  auto *cast = body("Cast", "a", "t");
  auto *reference = cast->add_attribute();
  reference->set_name("to");
  reference->set_ref_attr_name("to");
  reference->set_type(::onnx::AttributeProto::INT);
  body("Relu", "t", "b");
  for (auto [in, out] : {std::pair("x", "m"), std::pair("m", "y")}) {
    auto *call = addNode(graph, "Twice", {in}, {out});
    call->set_domain("local");
    auto *to = call->add_attribute();
    to->set_name("to");
    to->set_type(::onnx::AttributeProto::INT);
    to->set_i(1);
  }
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->graph.nodes.size(), 4u);
  EXPECT_EQ(result->graph.nodes[0].opset, 13);
  EXPECT_EQ(result->graph.nodes[0].attribute("to")->i, 1);
  EXPECT_EQ(result->graph.nodes[0].inputs[0], "x");
  EXPECT_EQ(result->graph.nodes[3].outputs[0], "y");
  EXPECT_NE(result->graph.nodes[0].outputs[0], result->graph.nodes[2].outputs[0]);
  // One that calls itself.
  auto *self = body("Twice", "t", "u");
  self->set_domain("local");
  expectError("function 'Twice' calls itself, or functions are nested deeper than 32");
}

// Functions that hold nothing but two calls each: 2^30 calls, and not one node.
TEST_F(ONNXTest, FunctionsThatOnlyCall) {
  addNode(graph, "Relu", {"x"}, {"y"});
  auto import = [](auto *list, const char *domain, int version) {
    auto *entry = list->Add();
    entry->set_domain(domain);
    entry->set_version(version);
  };
  import(model.mutable_opset_import(), "local", 1);
  for (int k = 0; k < 30; ++k) {
    auto *function = model.add_functions();
    function->set_domain("local");
    function->set_name("F" + std::to_string(k));
    function->add_input("a");
    import(function->mutable_opset_import(), "local", 1);
    for (int call = 0; k < 29 && call < 2; ++call) {
      auto *node = function->add_node();
      node->set_op_type("F" + std::to_string(k + 1));
      node->set_domain("local");
      node->add_input("a");
    }
  }
  addNode(graph, "F0", {"x"}, {})->set_domain("local");
  expectError("inlining makes more than 1048576 nodes, or names and attributes of more than 268435456 bytes");
}

// A call's name is a part of every name inside: 20,000 times a megabyte.
TEST_F(ONNXTest, LongNamesOfCalls) {
  auto *function = model.add_functions();
  function->set_domain("local");
  function->set_name("Long");
  function->add_input("v");
  function->add_output("v20000");
  function->add_opset_import()->set_version(18);
  for (int k = 0; k < 20000; ++k) {
    auto *node = function->add_node();
    node->set_op_type("Relu");
    node->add_input(k ? "v" + std::to_string(k) : "v");
    node->add_output("v" + std::to_string(k + 1));
  }
  expectCallIsTooLong();
}

/// Function |name| of domain "local"; its nodes are the caller's to add.
::onnx::FunctionProto *addFunction(::onnx::ModelProto &model, const std::string &name, const char *input, const char *output) {
  auto *function = model.add_functions();
  function->set_domain("local");
  function->set_name(name);
  function->add_input(input);
  function->add_output(output);
  for (auto [domain, version] : {std::pair("", 18), std::pair("local", 1)}) {
    auto *import = function->add_opset_import();
    import->set_domain(domain);
    import->set_version(version);
  }
  return function;
}
void addBranches(::onnx::NodeProto *node, const ::onnx::GraphProto &branch) {
  for (const char *name : {"then_branch", "else_branch"}) {
    auto *attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(::onnx::AttributeProto::GRAPH);
    *attribute->mutable_g() = branch;
  }
}

// Two functions of one name differ by their overload, which the schema at hand does not know.
TEST_F(ONNXTest, FunctionOverloads) {
  for (const char *overload : {"", "other"}) {
    auto *function = addFunction(model, "Same", "a", "b");
    auto *node = function->add_node();
    node->set_op_type(*overload ? "Sigmoid" : "Relu");
    node->add_input("a");
    node->add_output("b");
    if (*overload) function->mutable_unknown_fields()->AddLengthDelimited(13, overload);
  }
  addNode(graph, "Same", {"x"}, {"m"})->set_domain("local");
  auto *call = addNode(graph, "Same", {"m"}, {"y"});
  call->set_domain("local");
  call->mutable_unknown_fields()->AddLengthDelimited(8, "other");
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->graph.nodes.size(), 2u);
  EXPECT_EQ(result->graph.nodes[0].op, "Relu");
  EXPECT_EQ(result->graph.nodes[1].op, "Sigmoid");
  *model.add_functions() = model.functions(1);
  expectError("function 'Same' is given twice");
}

// A node inside an If takes the attribute that the call of the function gives, or the function's default.
TEST_F(ONNXTest, ReferencesInsideSubgraphs) {
  auto *function = addFunction(model, "Chosen", "a", "b");
  auto *given = function->add_node();
  given->set_op_type("If");
  given->add_input("a");
  given->add_output("b");
  ::onnx::GraphProto branch;
  branch.set_name("branch");
  auto *cast = addNode(&branch, "Cast", {"a"}, {"t"});
  auto *reference = cast->add_attribute();
  reference->set_name("to");
  reference->set_ref_attr_name("kind");
  reference->set_type(::onnx::AttributeProto::INT);
  branch.add_output()->set_name("t");
  addBranches(given, branch);
  auto *call = addNode(graph, "Chosen", {"x"}, {"y"});
  call->set_domain("local");
  auto *kind = call->add_attribute();
  kind->set_name("kind");
  kind->set_type(::onnx::AttributeProto::INT);
  kind->set_i(7);
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->graph.nodes.size(), 1u);
  for (const char *name : {"then_branch", "else_branch"}) {
    const Attribute *body = result->graph.nodes[0].attribute(name);
    ASSERT_TRUE(body && body->gs.size() == 1 && body->gs[0]->nodes.size() == 1);
    const Node &inner = body->gs[0]->nodes[0];
    ASSERT_TRUE(inner.attribute("to"));
    EXPECT_EQ(inner.attribute("to")->i, 7);
    EXPECT_EQ(inner.inputs[0], "x");
    EXPECT_TRUE(inner.references.empty());
  }
  // In the graph itself there is no call to take it from.
  auto *outside = addNode(graph, "Cast", {"x"}, {"z"})->add_attribute();
  *outside = *reference;
  expectError("node 'Cast_node' (Cast): attribute 'to' refers to a function's attribute outside a function");
}

// A branch with a tensor of 2 MB, in a function that 2^11 calls reach: each would be a copy.
TEST_F(ONNXTest, SubgraphsAreCopiedWithAllThatTheyHold) {
  for (int k = 0; k < 12; ++k) {
    auto *function = addFunction(model, "F" + std::to_string(k), "c", "o0");
    for (int i = 0; i < (k < 11 ? 2 : 1); ++i) {
      auto *node = function->add_node();
      node->add_input("c");
      node->add_output("o" + std::to_string(i));
      if (k < 11) {
        node->set_op_type("F" + std::to_string(k + 1));
        node->set_domain("local");
        continue;
      }
      node->set_op_type("If");
      ::onnx::GraphProto branch;
      branch.set_name("branch");
      auto *weight = branch.add_initializer();
      weight->set_name("w");
      weight->set_data_type(1);
      weight->add_dims(1 << 19);
      for (int n = 0; n < 1 << 19; ++n) // typed: raw bytes stay in the file
        weight->add_float_data(1);
      branch.add_output()->set_name("w");
      addBranches(node, branch);
    }
  }
  auto *import = model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  addNode(graph, "F0", {"x"}, {"y"})->set_domain("local");
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  expectError("inlining makes more than 1048576 nodes, or names and attributes of more than 268435456 bytes");
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1 << 20) << "kilobytes";
}

// The name of a call is part of a name that a branch uses 20,000 times.
TEST_F(ONNXTest, LongNamesInsideSubgraphs) {
  auto *function = addFunction(model, "Long", "a", "b");
  auto *first = function->add_node();
  first->set_op_type("Relu");
  first->add_input("a");
  first->add_output("t");
  auto *node = function->add_node();
  node->set_op_type("If");
  node->add_input("a");
  node->add_output("b");
  ::onnx::GraphProto branch;
  branch.set_name("branch");
  auto *sum = branch.add_node();
  sum->set_op_type("Sum");
  sum->add_output("s");
  for (int k = 0; k < 20000; ++k)
    sum->add_input("t");
  branch.add_output()->set_name("s");
  addBranches(node, branch);
  expectCallIsTooLong();
}

// Names of 20,000 nodes are visible in 40,000 branches: a copy for each of them would take minutes.
TEST_F(ONNXTest, BranchesSeeTheNamesAround) {
  ::onnx::GraphProto branch;
  branch.set_name("branch");
  addNode(&branch, "Relu", {"x"}, {"t"});
  branch.add_output()->set_name("t");
  for (int k = 0; k < 20000; ++k) {
    auto *node = graph->add_node();
    node->set_op_type("If");
    node->add_input("x");
    node->add_output(k ? "o" + std::to_string(k) : "y");
    addBranches(node, branch);
  }
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->graph.nodes.size(), 20000u);
  // What one branch defines another does not see; what lies around both does.
  auto *last = graph->mutable_node(19999)->mutable_attribute(1)->mutable_g()->mutable_node(0);
  last->set_input(0, "o3");
  EXPECT_TRUE(read().ok());
  last->set_input(0, "u");
  graph->mutable_node(19998)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_output(0, "u");
  graph->mutable_node(19998)->mutable_attribute(0)->mutable_g()->mutable_output(0)->set_name("u");
  expectError("input 'u' has no definition");
}

// The function's names inside its branches, but for those that a branch defines itself.
TEST_F(ONNXTest, BranchesHideNamesOfTheirFunction) {
  auto *function = addFunction(model, "Hides", "a", "b");
  auto *first = function->add_node();
  first->set_op_type("Relu");
  first->add_input("a");
  first->add_output("t");
  auto *node = function->add_node();
  node->set_op_type("If");
  node->add_input("a");
  node->add_output("b");
  ::onnx::GraphProto inner, outer;
  inner.set_name("inner");
  addNode(&inner, "Add", {"t", "v"}, {"w"});
  inner.add_output()->set_name("w");
  outer.set_name("outer");
  addNode(&outer, "Add", {"t", "a"}, {"v"});
  addBranches(addNode(&outer, "If", {"v"}, {"r"}), inner);
  outer.add_output()->set_name("r");
  addBranches(node, outer);
  // In the other branch "t" is its own.
  *node->mutable_attribute(1)->mutable_g()->mutable_node(0)->mutable_output(0) = "t";
  *node->mutable_attribute(1)->mutable_g()->mutable_node(0)->mutable_input(0) = "a";
  node->mutable_attribute(1)->mutable_g()->mutable_node(1)->set_input(0, "t");
  for (int k : {0, 1})
    node->mutable_attribute(1)->mutable_g()->mutable_node(1)->mutable_attribute(k)->mutable_g()->mutable_node(0)->set_input(1, "t");
  auto *import = model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  addNode(graph, "Hides", {"x"}, {"y"})->set_domain("local");
  auto result = read();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->graph.nodes.size(), 2u);
  const std::string &moved = result->graph.nodes[0].outputs[0];
  EXPECT_NE(moved, "t");
  const Graph &left = *result->graph.nodes[1].attribute("then_branch")->gs[0], &right = *result->graph.nodes[1].attribute("else_branch")->gs[0];
  EXPECT_EQ(left.nodes[0].inputs, (std::vector<std::string>{moved, "x"}));
  EXPECT_EQ(left.nodes[1].attribute("then_branch")->gs[0]->nodes[0].inputs, (std::vector<std::string>{moved, "v"}));
  EXPECT_EQ(right.nodes[0].inputs, (std::vector<std::string>{"x", "x"}));
  EXPECT_EQ(right.nodes[1].attribute("then_branch")->gs[0]->nodes[0].inputs, (std::vector<std::string>{"t", "t"}));
}

} // namespace
