// ONNX exports of the models below test/fixtures/onnx become what the safetensors of the same weights become, whatever exporter, names and order of
// nodes; the logits are bit-equal, and those of onnxruntime.
#include "dialects/LLM/LLM.h"
#include "lathe/Conversion/Passes.h"
#include "lathe/InitAll.h"
#include "lathe/Interpreter/Interpreter.h"
#include "lathe/Transforms/Passes.h"
#include "lathe/import/Import.h"
#include "lathe/import/ONNXModule.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "onnx.pb.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <sys/resource.h>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

const fs::path fixtures = fs::path(LATHE_SOURCE_DIR) / "test/fixtures/onnx";

struct Fixture {
  std::string family, way;
  bool quantized() const { return way.find("int4") != std::string::npos; }
  fs::path file() const { return fixtures / family / way / "model.onnx"; }
  fs::path original() const { return fixtures / family / "hf"; }
};
void PrintTo(const Fixture &f, std::ostream *os) { *os << f.family << "/" << f.way; }

std::vector<Fixture> all() {
  std::vector<Fixture> out;
  for (const auto &family : fs::directory_iterator(fixtures))
    if (family.is_directory())
      for (const auto &way : fs::directory_iterator(family.path()))
        if (fs::exists(way.path() / "model.onnx")) out.push_back({family.path().filename(), way.path().filename()});
  std::sort(out.begin(), out.end(), [](const Fixture &a, const Fixture &b) { return std::pair(a.family, a.way) < std::pair(b.family, b.way); });
  return out;
}

class ONNXRaise : public ::testing::TestWithParam<Fixture> {
protected:
  ONNXRaise() : context(registry(), mlir::MLIRContext::Threading::DISABLED), handler(&context, [this](mlir::Diagnostic &d) {
    messages += d.str() + "\n";
    return mlir::success();
  }) {
    context.loadAllAvailableDialects();
  }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry out;
    registerAllDialects(out);
    return out;
  }
  bool raise(mlir::ModuleOp module) {
    ONNXRaisePassOptions options;
    options.remarks = true;
    mlir::PassManager pm(&context);
    pm.addPass(createONNXRaisePass(options));
    return mlir::succeeded(pm.run(module)) && module.lookupSymbol("step");
  }
  /// The module without where weights are.
  static std::string text(mlir::ModuleOp module) {
    std::string out;
    llvm::raw_string_ostream(out) << module;
    return std::regex_replace(out, std::regex("(llm.param @[^=]*) = #llm[^\n]*"), "$1");
  }
  std::vector<double> logits(mlir::ModuleOp module, const std::vector<int64_t> &tokens) {
    mlir::OwningOpRef<mlir::ModuleOp> copy(module.clone());
    LLMSetKVPassOptions kv;
    kv.key = kv.value = "f32";
    mlir::PassManager pm(&context);
    pm.addPass(createLLMSetKVPass(kv));
    EXPECT_TRUE(mlir::succeeded(pm.run(*copy)));
    auto interpreter = llm::Interpreter::create(*copy, {});
    if (mlir::failed(interpreter)) return {};
    auto rows = llm::runSequences(**interpreter, {tokens}, 0, false);
    return mlir::failed(rows) ? std::vector<double>() : (*rows)[0].values;
  }
  mlir::OwningOpRef<mlir::ModuleOp> original() {
    auto module = importModel(context, GetParam().original(), {});
    EXPECT_TRUE(module.ok()) << module.status().message();
    return module.ok() ? *std::move(module) : nullptr;
  }
  mlir::MLIRContext context;
  std::string messages;
  mlir::ScopedDiagnosticHandler handler;
};

/// New names for everything and nodes in any order.
void disguise(::onnx::ModelProto &model, unsigned seed) {
  std::mt19937 random(seed);
  ::onnx::GraphProto &graph = *model.mutable_graph();
  std::map<std::string, std::string> names;
  auto rename = [&](const std::string &name) {
    if (name.empty()) return name;
    auto [it, fresh] = names.emplace(name, "");
    if (fresh) it->second = "v" + std::to_string(names.size() * 7919 % 100003) + "_" + std::to_string(random() % 1000);
    return it->second;
  };
  std::function<void(::onnx::GraphProto &)> visit = [&](::onnx::GraphProto &g) {
    for (auto *list : {g.mutable_input(), g.mutable_output(), g.mutable_value_info()})
      for (auto &value : *list)
        value.set_name(rename(value.name()));
    for (auto &tensor : *g.mutable_initializer())
      tensor.set_name(rename(tensor.name()));
    for (auto &node : *g.mutable_node()) {
      node.set_name("");
      for (auto &in : *node.mutable_input()) in = rename(in);
      for (auto &out : *node.mutable_output()) out = rename(out);
      for (auto &attribute : *node.mutable_attribute())
        if (attribute.has_g()) visit(*attribute.mutable_g());
    }
    std::vector<::onnx::NodeProto> nodes(g.node().begin(), g.node().end());
    std::shuffle(nodes.begin(), nodes.end(), random);
    for (int i = 0; i < g.node_size(); ++i) *g.mutable_node(i) = nodes[static_cast<size_t>(i)];
    std::vector<::onnx::TensorProto> tensors(g.initializer().begin(), g.initializer().end());
    std::shuffle(tensors.begin(), tensors.end(), random);
    for (int i = 0; i < g.initializer_size(); ++i) *g.mutable_initializer(i) = tensors[static_cast<size_t>(i)];
  };
  visit(graph);
}

TEST_P(ONNXRaise, BecomesTheSafetensorsModule) {
  auto imported = importONNX(context, GetParam().file());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  ASSERT_TRUE(raise(**imported)) << messages;
  auto reference = original();
  ASSERT_TRUE(reference);
  size_t layers = 0; // of each a remark says what it is
  reference->walk([&](llm::AttentionOp) { ++layers; });
  ASSERT_GE(layers, 2u);
  for (size_t k = 0; k < layers; ++k)
    EXPECT_NE(messages.find("layer " + std::to_string(k) + ": "), std::string::npos) << messages;
  EXPECT_EQ(messages.find("layer " + std::to_string(layers) + ": "), std::string::npos) << messages;
  std::vector<int64_t> tokens = {3, 60, 17, 0, 42, 5, 5, 29, 63, 11, 2, 8, 31, 44, 50, 1, 9, 33, 27, 18, 6};
  auto got = logits(**imported, tokens), want = logits(*reference, tokens);
  ASSERT_FALSE(got.empty());
  if (GetParam().quantized()) { // its weights are others: rounded to 4 bits
    EXPECT_NE(messages.find("scales of block-quantized weights are rounded to f16"), std::string::npos) << messages;
    EXPECT_NE(text(**imported).find("!llm.q<int4_g32>"), std::string::npos);
    EXPECT_NE(got, want);
    return;
  }
  EXPECT_EQ(text(**imported), text(*reference));
  EXPECT_EQ(got, want);
}

TEST_P(ONNXRaise, NamesAndOrderPlayNoPart) {
  auto plain = importONNX(context, GetParam().file());
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  ASSERT_TRUE(raise(**plain)) << messages;
  ::onnx::ModelProto model;
  std::ifstream stream(GetParam().file(), std::ios::binary);
  ASSERT_TRUE(model.ParseFromIstream(&stream));
  disguise(model, 5);
  // Weights inside the file are read from it again: it has to be one.
  fs::path directory = fs::path(::testing::TempDir()) / ("disguised-" + GetParam().family + "-" + GetParam().way);
  fs::create_directories(directory);
  for (const auto &entry : fs::directory_iterator(GetParam().file().parent_path()))
    if (entry.path().filename() != "model.onnx") fs::copy_file(entry.path(), directory / entry.path().filename(), fs::copy_options::overwrite_existing);
  std::ofstream(directory / "model.onnx", std::ios::binary) << model.SerializeAsString();
  auto disguised = importONNX(context, directory / "model.onnx");
  ASSERT_TRUE(disguised.ok()) << disguised.status().message();
  messages.clear();
  ASSERT_TRUE(raise(**disguised)) << messages;
  EXPECT_EQ(text(**disguised), text(**plain));
  std::vector<int64_t> tokens = {7, 7, 61, 0, 12};
  EXPECT_EQ(logits(**disguised, tokens), logits(**plain, tokens));
  fs::remove_all(directory);
}

TEST_P(ONNXRaise, ComputesWhatOnnxruntimeComputed) {
  std::ifstream list(fixtures / GetParam().family / "tokens.json");
  auto tokens = nlohmann::json::parse(list).get<std::vector<int64_t>>();
  std::ifstream stream(fixtures / GetParam().family / (GetParam().quantized() ? "expected-int4.f32" : "expected.f32"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  auto imported = importONNX(context, GetParam().file());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  ASSERT_TRUE(raise(**imported)) << messages;
  auto got = logits(**imported, tokens);
  double worst = 0, largest = 0, product = 0, left = 0, right = 0;
  ASSERT_EQ(bytes.size(), got.size() * sizeof(float));
  for (size_t k = 0; k < got.size(); ++k) {
    float theirs;
    std::memcpy(&theirs, bytes.data() + k * sizeof theirs, sizeof theirs);
    worst = std::max(worst, std::fabs(got[k] - theirs));
    largest = std::max(largest, std::fabs(double(theirs)));
    product += got[k] * theirs, left += got[k] * got[k], right += double(theirs) * theirs;
  }
  if (GetParam().quantized()) { // onnxruntime rounds activations to 8 bits for these, so the angle between the logits is compared
    EXPECT_GT(product / std::sqrt(left * right), 0.99);
    return;
  }
  EXPECT_LE(worst, 2e-4 * largest);
}

/// Functions of the model are inlined: every product of |model| becomes a call of one, whose body calls another.
void hideProducts(::onnx::ModelProto &model) {
  for (auto [name, inner, domain] : {std::tuple("Outer", "Inner", "local"), std::tuple("Inner", "MatMul", "")}) {
    auto *function = model.add_functions();
    function->set_domain("local");
    function->set_name(name);
    for (const char *input : {"a", "b"})
      function->add_input(input);
    function->add_output("y");
    for (const auto &import : model.opset_import()) *function->add_opset_import() = import;
    auto *local = function->add_opset_import();
    local->set_domain("local");
    local->set_version(1);
    auto *node = function->add_node();
    node->set_op_type(inner);
    node->set_domain(domain);
    for (const char *input : {"a", "b"})
      node->add_input(input);
    node->add_output("y");
  }
  auto *local = model.add_opset_import();
  local->set_domain("local");
  local->set_version(1);
  for (auto &node : *model.mutable_graph()->mutable_node())
    if (node.op_type() == "MatMul") {
      node.set_op_type("Outer");
      node.set_domain("local");
    }
}

TEST_P(ONNXRaise, FunctionsAreInlined) {
  auto plain = importONNX(context, GetParam().file());
  ASSERT_TRUE(plain.ok() && raise(**plain)) << messages;
  ::onnx::ModelProto model;
  std::ifstream stream(GetParam().file(), std::ios::binary);
  ASSERT_TRUE(model.ParseFromIstream(&stream));
  hideProducts(model);
  fs::path directory = fs::path(::testing::TempDir()) / ("functions-" + GetParam().family + "-" + GetParam().way);
  fs::create_directories(directory);
  for (const auto &entry : fs::directory_iterator(GetParam().file().parent_path()))
    if (entry.path().filename() != "model.onnx") fs::copy_file(entry.path(), directory / entry.path().filename(), fs::copy_options::overwrite_existing);
  std::ofstream(directory / "model.onnx", std::ios::binary) << model.SerializeAsString();
  auto hidden = importONNX(context, directory / "model.onnx");
  ASSERT_TRUE(hidden.ok()) << hidden.status().message();
  ASSERT_TRUE(raise(**hidden)) << messages;
  EXPECT_EQ(text(**hidden), text(**plain));
  fs::remove_all(directory);
}

/// Sizes that a damaged graph asks for: every constant of integers in turn is 2^40, and so are the sizes of the caches. Nothing is made of such a size.
class ONNXHuge : public ONNXRaise {};
TEST_P(ONNXHuge, SizesCostNoMemory) {
  auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss; // kilobytes
  };
  std::ifstream stream(GetParam().file(), std::ios::binary);
  ::onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromIstream(&stream));
  fs::path directory = fs::path(::testing::TempDir()) / ("huge-" + GetParam().family + "-" + GetParam().way);
  fs::create_directories(directory);
  for (const auto &entry : fs::directory_iterator(GetParam().file().parent_path()))
    if (entry.path().filename() != "model.onnx") fs::copy_file(entry.path(), directory / entry.path().filename(), fs::copy_options::overwrite_existing);
  const auto before = peak();
  size_t tried = 0;
  auto attempt = [&](const ::onnx::ModelProto &damaged) {
    std::ofstream(directory / "model.onnx", std::ios::binary) << damaged.SerializeAsString();
    auto imported = importONNX(context, directory / "model.onnx");
    ++tried;
    messages.clear();
    if (!imported.ok()) {
      EXPECT_FALSE(imported.status().message().empty());
      return;
    }
    if (raise(**imported)) return;
    EXPECT_NE(messages, "");
    messages.clear();
    mlir::PassManager pm(&context);
    pm.addPass(createONNXToLinalgPass());
    EXPECT_TRUE(mlir::succeeded(pm.run(**imported)) || !messages.empty());
  };
  auto constants = [](::onnx::ModelProto &m) {
    std::vector<std::string *> found;
    auto look = [&](::onnx::TensorProto *tensor) {
      if (tensor->data_type() == ::onnx::TensorProto::INT64 && tensor->raw_data().size() >= 8 && tensor->raw_data().size() <= 64) found.push_back(tensor->mutable_raw_data());
    };
    for (auto &tensor : *m.mutable_graph()->mutable_initializer()) look(&tensor);
    for (auto &node : *m.mutable_graph()->mutable_node())
      for (auto &attribute : *node.mutable_attribute())
        if (attribute.has_t()) look(attribute.mutable_t());
    return found;
  };
  for (size_t i = 0, n = constants(model).size(); i < n; ++i) {
    ::onnx::ModelProto damaged = model;
    std::string *raw = constants(damaged)[i];
    int64_t huge = int64_t(1) << 40;
    for (size_t at = 0; at + 8 <= raw->size(); at += 8)
      std::memcpy(raw->data() + at, &huge, 8);
    attempt(damaged);
  }
  for (int axis : {0, 1, 2, 3}) {
    ::onnx::ModelProto damaged = model;
    for (auto &input : *damaged.mutable_graph()->mutable_input()) {
      auto *shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
      if (axis < shape->dim_size()) shape->mutable_dim(axis)->set_dim_value(int64_t(1) << 40);
    }
    attempt(damaged);
  }
  EXPECT_GE(tried, 4u);
  EXPECT_LT(peak() - before, 1 << 20) << "kilobytes more, after " << tried << " graphs";
  fs::remove_all(directory);
}
INSTANTIATE_TEST_SUITE_P(Fixtures, ONNXHuge, ::testing::Values(Fixture{"llama", "dynamo18-eager"}, Fixture{"phi3", "genai-int4"}, Fixture{"gpt2", "torchscript"}), [](const auto &info) {
  return info.param.family;
});

// Every family in every way that an exporter has for it. The GenAI builder has none for GPT-2; what it makes of Gemma 3 in float is gemma3-genai's.
TEST(ONNXFixtures, EveryFamilyInEveryWay) {
  std::map<std::string, std::set<std::string>> found;
  for (const Fixture &f : all()) {
    std::string family = f.family.substr(0, f.family.find('-')); // llama-genai is a Llama
    found[family].insert(f.way);
  }
  const std::set<std::string> torch = {"dynamo18-eager", "dynamo18-sdpa", "dynamo23-eager", "dynamo23-sdpa", "optimum", "torchscript"};
  std::set<std::string> every = torch;
  every.insert({"genai-fp32", "genai-int4"});
  const std::map<std::string, std::set<std::string>> want = {{"gemma3", every}, {"gpt2", torch}, {"llama", every}, {"phi3", every}, {"qwen2", every}, {"qwen3", every}};
  EXPECT_EQ(found, want);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ONNXRaise, ::testing::ValuesIn(all()), [](const auto &info) {
  std::string name = info.param.family + "_" + info.param.way;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

} // namespace
