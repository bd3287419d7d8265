//===- Generate.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Generate.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace lathe::llm;

namespace {

/// Of row |r| the |count| largest columns, the first of equal ones first, as a sampler would take them.
std::vector<int64_t> largest(const RowValues &rows, int64_t r, int64_t count) {
  const double *row = rows.values.data() + r * rows.cols;
  std::vector<int64_t> order(rows.cols);
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, rows.cols);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
  order.resize(count);
  return order;
}

/// A guess: |token| behind node |parent|, or behind the last token (-1).
struct Node {
  int64_t token, parent, depth;
};

/// `@draft`, asked anew in each round: it keeps nothing, so nothing can be left of a guess that was wrong.
class Guesser {
public:
  static FailureOr<Guesser> create(ModuleOp module, InterpreterOptions options) {
    Guesser made;
    auto draft = module->getAttrOfType<DictionaryAttr>("llm.draft");
    auto function = dyn_cast_or_null<func::FuncOp>(module.lookupSymbol("draft"));
    if (!draft || !function) {
      llvm::errs() << "error: --drafts: expected a module with a draft, which the pass llm-speculate adds, found none\n";
      return failure();
    }
    auto method = draft.getAs<StringAttr>("method");
    made.heads = method && method.getValue() == "medusa";
    if (auto most = draft.getAs<IntegerAttr>("max_sequence")) made.positions = most.getInt();
    if (auto tokens = draft.getAs<DenseIntElementsAttr>("tokens"))
      for (APInt token : tokens) made.tokens.push_back(token.getSExtValue());
    options.function = "draft";
    auto interpreter = Interpreter::create(module, options);
    if (failed(interpreter)) return failure();
    made.interpreter = std::move(*interpreter);
    return made;
  }

  /// Guesses for at most |most| places behind |text|, |choices| for the first.
  FailureOr<std::vector<Node>> guess(const std::vector<int64_t> &text, int64_t most, int64_t choices) {
    std::vector<Node> nodes;
    // Heads start from the row that the last token was taken from, what else drafts from the last token.
    std::vector<int64_t> known(text.begin(), text.end() - (heads ? 1 : 0));
    int64_t size = known.size();
    most = std::min(most, positions - size);
    if (known.empty() || most <= 0) return nodes;
    interpreter->reset();
    StepBatch batch = chunkOf({known}, 0, size);
    batch.outRows = {size - 1};
    auto results = interpreter->step(batch);
    if (failed(results)) return failure();
    for (int64_t token : best((*results)[0], choices)) nodes.push_back({token, -1, 0});
    int64_t last = 0; // the likeliest goes on
    for (int64_t place = 1; place < most; ++place) {
      if (heads && place == int64_t(results->size())) break;
      if (!heads) {
        StepBatch next;
        next.rows.push_back({nodes[last].token, size + place - 1, 0, size + place - 1, {}, -1});
        next.outRows = {0};
        results = interpreter->step(next);
        if (failed(results)) return failure();
      }
      nodes.push_back({best((*results)[heads ? place : 0], 1)[0], last, place});
      last = int64_t(nodes.size()) - 1;
    }
    return nodes;
  }

private:
  /// In the model's vocabulary; a head over fewer tokens says which they are. Of a draft without llm.select_rows, the last row.
  std::vector<int64_t> best(const RowValues &rows, int64_t count) const {
    std::vector<int64_t> ids = largest(rows, rows.rows - 1, count);
    for (int64_t &id : ids)
      if (!tokens.empty()) id = tokens[id];
    return ids;
  }

  std::unique_ptr<Interpreter> interpreter;
  bool heads = false;
  int64_t positions = INT64_MAX;
  std::vector<int64_t> tokens;
};

/// One sequence on a step's interpreter of its own.
FailureOr<Generated> generateOne(Interpreter &step, Guesser *guesser, std::vector<int64_t> text, const GenerateOptions &how) {
  Generated made;
  const size_t first = text.size(), end = first + how.tokens;
  int64_t computed = 0; // tokens whose entries are where they belong
  while (text.size() < end) {
    std::vector<Node> nodes;
    if (guesser) {
      // The step itself says one token more than there are drafts.
      auto guessed = guesser->guess(text, std::min<int64_t>(how.drafts, end - text.size() - 1), how.choices);
      if (failed(guessed)) return failure();
      nodes = std::move(*guessed);
    }
    StepBatch batch;
    for (int64_t p = computed; p < int64_t(text.size()); ++p) batch.rows.push_back({text[p], p, 0, p, {}, -1});
    const int64_t root = int64_t(batch.rows.size()) - 1, size = text.size();
    batch.outRows.push_back(root);
    for (auto [i, node] : llvm::enumerate(nodes)) {
      batch.rows.push_back({node.token, size + node.depth, 0, size + int64_t(i), {}, root + 1 + node.parent});
      batch.outRows.push_back(root + 1 + int64_t(i));
    }
    auto results = step.step(batch);
    if (failed(results)) return failure();
    const RowValues &rows = (*results)[0];
    const int64_t outBegin = rows.rows == int64_t(batch.outRows.size()) ? 0 : root; // without llm.select_rows: a row for every row
    computed = size;
    bool inPlace = true;
    for (int64_t at = -1; text.size() < end;) {
      int64_t token = largest(rows, outBegin + 1 + at, 1)[0];
      text.push_back(token);
      int64_t next = -1;
      for (auto [i, node] : llvm::enumerate(nodes))
        if (node.parent == at && node.token == token && next < 0) next = int64_t(i);
      if (next < 0) break;
      ++made.right;
      // Entries behind a second choice lie behind those of the first: they are computed again, where they belong.
      inPlace &= next == computed - size;
      if (inPlace) ++computed;
      at = next;
    }
    made.rounds += !nodes.empty();
    made.drafts += nodes.size();
  }
  made.tokens.assign(text.begin() + first, text.end());
  return made;
}

} // namespace

FailureOr<std::vector<Generated>> generate(ModuleOp module, const InterpreterOptions &options, const std::vector<std::vector<int64_t>> &sequences,
                                           const GenerateOptions &how) {
  auto step = Interpreter::create(module, options);
  if (failed(step)) return failure();
  std::unique_ptr<Guesser> guesser;
  if (how.drafts > 0) {
    auto made = Guesser::create(module, options);
    if (failed(made)) return failure();
    guesser = std::make_unique<Guesser>(std::move(*made));
  }
  std::vector<Generated> all;
  for (const std::vector<int64_t> &text : sequences) {
    (*step)->reset();
    auto made = generateOne(**step, guesser.get(), text, how);
    if (failed(made)) return failure();
    all.push_back(std::move(*made));
  }
  return all;
}
