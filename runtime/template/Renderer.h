//===- Renderer.h - runs a template -------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The interpreter of one render. Every member function that can fail returns false and leaves the
// reason in the renderer; the caller returns false at once.
//
// A hostile template must not take more than its limits: whatever works on n bytes or n elements
// says so with tick(), whatever makes a string does it with makeString(), and recursion is bounded by
// the depth of calls (100), of expressions (200) and of values (100).
//===----------------------------------------------------------------------===//
#pragma once
#include "Ast.h"
#include "Template.h"
#include <functional>

namespace lathe::jinja {

class Renderer;

/// The variables of one call of a function.
struct Activation : Object {
  std::vector<Value> slots;
  std::shared_ptr<Activation> parent;
};
using ActivationPtr = std::shared_ptr<Activation>;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
  size_t size() const { return positional.size() + keyword.size(); }
};

/// Elements made on demand. |source| and what |pull| holds bound its depth.
struct GeneratorObject : Object {
  /// Sets |done| or |out|.
  std::function<bool(Renderer &, Value &out, bool &done)> pull;
};

/// Walks over any iterable value.
class Iterator {
public:
  /// False (with the reason in |r|) when |v| cannot be iterated.
  bool start(Renderer &r, const Value &v);
  bool next(Renderer &r, Value &out, bool &done);
  /// Elements in all, or -1 when that is known only at the end.
  int64_t size() const;

private:
  Value source;
  size_t at = 0;
};

struct LoopObject : Object {
  Iterator iterator;
  Value iterable;
  std::vector<Value> ahead; ///< elements already taken out of a generator, last first
  Value current, before, lastChanged;
  int64_t index0 = -1, length = -1;
  int depth0 = 0;
  const Stmt *recurse = nullptr; ///< of a recursive loop
  ActivationPtr closure;
  bool peek(Renderer &r, const Value *&out);
  bool getLength(Renderer &r, int64_t &out);
};

struct MacroObject : Object {
  const Function *function;
  ActivationPtr closure;
};

struct MethodObject : Object {
  Value self;
  std::string name;
};

enum class Global : uint8_t { range, dict, lipsum, cycler, joiner, space, raise, strftime };
struct GlobalObject : Object {
  Global which;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

enum class Flow : uint8_t { next, breakLoop, continueLoop, failed };

/// Deepest nesting of expressions and statements over all calls: bounds the C++ stack.
constexpr int maxEvalDepth = 1000;

class Renderer {
public:
  explicit Renderer(const RenderOptions &options) : options(options), liveBase(Object::liveBytes) {}
  ~Renderer();
  Result<std::string> run(const Program &program, const nlohmann::ordered_json &context);

  const RenderOptions &options;

  //===--- Services: Renderer.cpp -------------------------------------------===//
  [[gnu::format(printf, 2, 3)]] bool fail(const char *format, ...);
  [[gnu::format(printf, 2, 3)]] bool exhausted(const char *format, ...);
  [[gnu::format(printf, 2, 3)]] bool unsupported(const char *format, ...);
  /// A message that goes out without the template's line.
  bool raise(std::string message);
  /// Counts |n| steps.
  bool tick(uint64_t n = 1);
  /// Counts the work on |bytes| of text.
  bool tickBytes(size_t bytes) { return tick(bytes >> 10); }
  bool makeString(std::string text, Value &out, bool markup = false);
  bool makeList(std::vector<Value> items, Value &out, Kind kind = Kind::list);
  bool makeDict(std::shared_ptr<DictObject> dict, Value &out);
  /// Whether a string of |bytes| may exist.
  bool checkSize(uint64_t bytes);
  bool checkDepth(int depth);

  //===--- Values: Objects.cpp ----------------------------------------------===//
  bool truth(const Value &v, bool &out);
  bool equal(const Value &a, const Value &b, bool &out);
  /// a < b, as Python orders them; fails for what has no order.
  bool less(const Value &a, const Value &b, bool &out);
  bool compare(Op op, const Value &a, const Value &b, bool &out);
  bool contains(const Value &container, const Value &item, bool &out);
  bool length(const Value &v, int64_t &out);
  bool toText(const Value &v, std::string &out) { return write(v, out, false); }
  bool repr(const Value &v, std::string &out) { return write(v, out, true); }
  bool collect(const Value &iterable, std::vector<Value> &out);
  bool getAttr(const Value &object, const std::string &name, Value &out);
  bool getItem(const Value &object, const Value &key, Value &out);
  /// An attribute of the object itself, no key of a dict.
  bool ownAttr(const Value &object, const std::string &name, Value &out);
  bool getSlice(const Value &object, const Value &from, const Value &to, const Value &step, Value &out);
  bool needHashable(const Value &key);
  /// Sorts stably by |keys| (one for each item). |reverse| keeps equal items in order too.
  bool sortBy(std::vector<Value> &items, std::vector<Value> &keys, bool reverse);
  bool rangeItem(const RangeObject &range, int64_t index, Value &out);

  //===--- Arithmetic: Arithmetic.cpp ---------------------------------------===//
  bool binary(Op op, const Value &a, const Value &b, Value &out);
  bool negate(const Value &a, Value &out);
  /// int(text), float(text): false in |ok| when it is no number.
  bool parseInt(const std::string &text, int base, int64_t &out, bool &ok);
  static bool parseReal(const std::string &text, double &out);

  //===--- Calls: Calls.cpp -------------------------------------------------===//
  bool call(const Value &callee, Args &args, Value &out);
  bool callMacro(const MacroObject &macro, Args &args, Value &out);
  bool callMethod(const MethodObject &method, Args &args, Value &out);
  bool callGlobal(Global which, Args &args, Value &out);
  bool recurseLoop(const Stmt &stmt, ActivationPtr closure, const Value &iterable, int depth0, Value &out);
  /// Puts arguments in the order of |names|; those not given stay missing. The first |required| must
  /// be given.
  bool bind(const char *function, Args &args, std::initializer_list<const char *> names, size_t required,
            std::vector<Value> &out);
  bool stringMethod(const Value &self, const std::string &name, Args &args, Value &out); // StringMethods.cpp
  bool applyFilter(int id, const Value &in, Args &args, Value &out);                     // Filters.cpp
  bool applyTest(int id, const Value &in, Args &args, bool &out);                        // Tests.cpp
  bool needInt(const char *what, const Value &v, int64_t &out);
  bool needText(const char *what, const Value &v, std::string &out);

  //===--- Text: Format.cpp, Json.cpp ---------------------------------------===//
  bool formatPercent(const Value &format, const Value &args, Value &out);
  bool formatBraces(const Value &format, Args &args, Value &out);
  bool toJson(const Value &v, Args &args, Value &out);
  /// What JSON holds, as a value.
  bool fromJson(const nlohmann::ordered_json &json, Value &out, int depth = 0);
  static std::string escapeHtml(std::string_view text);

  bool resolveName(const std::string &name, Value &out);

private:
  bool write(const Value &v, std::string &out, bool quoted);
  bool writeQuoted(std::string_view text, std::string &out);

  // Statements: Renderer.cpp
  Flow runBody(const Block &body);
  Flow runStmt(const Stmt &stmt);
  Flow runFor(const Stmt &stmt, const Value &iterable, int depth0);
  Flow runFilterBlock(const Stmt &stmt);
  Flow runSetBlock(const Stmt &stmt);
  bool runCall(const Stmt &stmt);
  bool append(std::string_view text);
  bool enter(const Scope &scope);
  void leave(const Scope &scope);
  bool assign(const Expr &target, const Value &value);
  bool checkSpaces(const Expr &target);
  Value &slotAt(const Slot &slot);
  Value macroValue(const Function &function);
  friend struct Capture;

  // Expressions: Eval.cpp
  bool eval(const Expr &e, Value &out);
  bool evalArgs(const CallArgs &args, Args &out);
  bool evalName(const Expr &e, Value &out);
  bool evalBinary(const Expr &e, Value &out);
  bool evalConcat(const Expr &e, Value &out);
  bool evalCompare(const Expr &e, Value &out);
  bool evalFilter(const Expr &e, const Value *body, Value &out);
  bool evalTest(const Expr &e, Value &out);
  bool evalDict(const Expr &e, Value &out);
  bool evalItems(const Expr &e, Value &out);
  bool evalCall(const Expr &e, const Value *caller, Value &out);
  bool evalSlice(const Expr &e, Value &out);
  bool evalSmall(const Expr &e, Value &out);

  Status error;
  int line = 0;
  uint64_t steps = 0, evaluations = 0;
  int64_t liveBase;
  int calls = 0;
  int evals = 0;
  Value variables, globals; ///< dicts
  ActivationPtr frame;
  std::string *buffer = nullptr; ///< where output goes now
  size_t bufferBytes = 0;        ///< in all buffers that are open
  /// What may be part of a cycle: emptied at the end.
  std::vector<std::shared_ptr<NamespaceObject>> spaces;
  std::vector<ActivationPtr> captured;
};

} // namespace lathe::jinja
