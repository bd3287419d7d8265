//===- Resolver.cpp - which variable a name means ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Jinja2 decides scoping when it compiles, with consequences that templates depend on: a name that
// a scope only ever sets does not show the context's value before, an `if` has no scope of its own,
// a loop's body starts every round with the outer values, a macro sees the outer variables as they
// are when it is called. So this pass keeps, for every scope, the same facts as Jinja2's compiler:
// which names it has met, and how each gets its first value.
//===----------------------------------------------------------------------===//
#include "Lexer.h"
#include "Parser.h"
#include <map>
#include <set>

namespace lathe::jinja {
namespace {

/// One array of slots.
struct FunctionState {
  Function *function;
  int depth;
  std::map<std::string, int> slots; ///< by scope level and name: scopes of one level share
};

struct Ref {
  FunctionState *function = nullptr;
  int slot = -1;
};

/// What is known about the names of one scope, or of one branch of an `if` in it (then |base| is
/// the scope, and only what the branch adds is here).
struct Symbols {
  Symbols(Symbols *parent, FunctionState *function, std::string prefix = "")
      : parent(parent), function(function), level(parent ? parent->level + 1 : 0), prefix(std::move(prefix)) {}
  static Symbols branch(Symbols &base) {
    Symbols s(base.parent, base.function, base.prefix);
    s.level = base.level;
    s.base = &base;
    return s;
  }

  Ref *own(const std::string &name) {
    for (Symbols *s = this; s; s = s->base)
      if (auto it = s->refs.find(name); it != s->refs.end()) return &it->second;
    return nullptr;
  }
  Ref *find(const std::string &name) {
    for (Symbols *s = this; s; s = s->parent)
      if (Ref *ref = s->own(name)) return ref;
    return nullptr;
  }
  bool stored(const std::string &name) const {
    for (const Symbols *s = this; s; s = s->base)
      if (s->stores.count(name)) return true;
    return false;
  }
  struct How {
    enum { parameter, resolve, alias, clear } action;
    std::string name;
    Ref from;
  };
  Ref define(const std::string &name, How how) {
    std::string key = prefix + std::to_string(level) + "_" + name;
    auto it = function->slots.emplace(key, static_cast<int>(function->slots.size())).first;
    function->function->slots = static_cast<int>(function->slots.size());
    Ref ref{function, it->second};
    refs[name] = ref;
    loads[ref.slot] = std::move(how);
    return ref;
  }
  void load(const std::string &name) {
    if (!find(name)) define(name, {How::resolve, name, {}});
  }
  void store(const std::string &name) {
    stores.insert(name);
    if (own(name)) return;
    Ref *outer = parent ? parent->find(name) : nullptr;
    if (outer)
      define(name, {How::alias, "", *outer});
    else
      define(name, {How::clear, "", {}});
  }
  Ref declareParameter(const std::string &name) {
    stores.insert(name);
    return define(name, {How::parameter, "", {}});
  }
  /// Takes in the branches of an `if`. A name that some branch does not set gets the value it has
  /// outside.
  void join(std::vector<Symbols> &branches) {
    std::map<std::string, size_t> counts;
    for (Symbols &b : branches)
      for (const std::string &name : b.stores)
        if (!stored(name)) ++counts[name];
    for (Symbols &b : branches) {
      refs.insert(b.refs.begin(), b.refs.end());
      for (auto &l : b.loads)
        loads[l.first] = l.second;
      stores.insert(b.stores.begin(), b.stores.end());
    }
    for (const auto &[name, count] : counts) {
      if (count == branches.size()) continue;
      Ref *target = find(name), *outer = parent ? parent->find(name) : nullptr;
      loads[target->slot] = outer ? How{How::alias, "", *outer} : How{How::resolve, name, {}};
    }
  }

  Symbols *parent;
  Symbols *base = nullptr;
  FunctionState *function;
  int level;
  std::string prefix;
  std::map<std::string, Ref> refs;
  std::map<int, How> loads;
  std::set<std::string> stores;
};

//===--- What a scope's statements do to its names -------------------------===//

void noteExpr(const Expr *e, Symbols &s);
void noteArgs(const CallArgs &args, Symbols &s) {
  for (const ExprPtr &a : args.positional)
    noteExpr(a.get(), s);
  for (const auto &a : args.keyword)
    noteExpr(a.second.get(), s);
  noteExpr(args.star.get(), s);
  noteExpr(args.starStar.get(), s);
}
void noteExpr(const Expr *e, Symbols &s) {
  if (!e) return;
  if (e->kind == ExprKind::name) s.load(e->name);
  for (const ExprPtr &child : e->children)
    noteExpr(child.get(), s);
  noteArgs(e->args, s);
}
void noteTarget(const Expr &e, Symbols &s, bool parameter) {
  if (e.kind == ExprKind::spaceAttr)
    s.load(e.text);
  else if (e.kind == ExprKind::name && parameter)
    s.declareParameter(e.name);
  else if (e.kind == ExprKind::name)
    s.store(e.name);
  for (const ExprPtr &child : e.children)
    noteTarget(*child, s, parameter);
}

void noteBody(const Block &body, Symbols &s);

/// An `if` from its |at|-th condition on. Each `elif` is an `if` of its own within the second branch.
void noteIf(const Stmt &stmt, Symbols &s) {
  size_t tests = stmt.exprs.size();
  noteExpr(stmt.exprs[0].get(), s);
  std::vector<Symbols> branches;
  for (int i = 0; i < 3; ++i)
    branches.push_back(Symbols::branch(s));
  noteBody(stmt.blocks[0], branches[0]);
  for (size_t i = 1; i < tests; ++i) {
    noteExpr(stmt.exprs[i].get(), branches[1]);
    std::vector<Symbols> inner;
    for (int k = 0; k < 3; ++k)
      inner.push_back(Symbols::branch(branches[1]));
    noteBody(stmt.blocks[i], inner[0]);
    branches[1].join(inner);
  }
  if (stmt.blocks.size() > tests) noteBody(stmt.blocks[tests], branches[2]);
  s.join(branches);
}

void noteBody(const Block &body, Symbols &s) {
  for (const StmtPtr &p : body) {
    const Stmt &stmt = *p;
    switch (stmt.kind) {
    case StmtKind::ifElse:
      noteIf(stmt, s);
      break;
    case StmtKind::forLoop:
      noteExpr(stmt.exprs[0].get(), s);
      break;
    case StmtKind::macro:
      s.store(stmt.text);
      break;
    case StmtKind::setBlock:
      noteTarget(*stmt.targets[0], s, false);
      break;
    default:
      for (const ExprPtr &e : stmt.exprs)
        noteExpr(e.get(), s);
      if (stmt.kind == StmtKind::set) noteTarget(*stmt.targets[0], s, false);
    }
  }
}

//===--- Whether a body mentions a special name ----------------------------===//

/// Visits names in the order of Jinja2's tree, in nested scopes too.
struct NameWalk {
  virtual ~NameWalk() = default;
  virtual void load(const std::string &name) = 0;
  virtual void store(const std::string &name, bool parameter) = 0;

  void expr(const Expr *e) {
    if (!e) return;
    if (e->kind == ExprKind::name) load(e->name);
    for (const ExprPtr &c : e->children)
      expr(c.get());
    for (const ExprPtr &a : e->args.positional)
      expr(a.get());
    for (const auto &a : e->args.keyword)
      expr(a.second.get());
    expr(e->args.star.get());
    expr(e->args.starStar.get());
  }
  void target(const Expr &e, bool parameter) {
    if (e.kind == ExprKind::name) store(e.name, parameter);
    for (const ExprPtr &c : e.children)
      target(*c, parameter);
  }
  void function(const Function &f) {
    for (const std::string &p : f.parameters)
      store(p, true);
    for (const ExprPtr &d : f.defaults)
      expr(d.get());
    body(f.body);
  }
  void body(const Block &block) {
    for (const StmtPtr &s : block)
      stmt(*s);
  }
  void stmt(const Stmt &s) {
    switch (s.kind) {
    case StmtKind::ifElse: {
      // The else comes last, each elif's condition right before its body.
      for (size_t i = 0; i < s.blocks.size(); ++i) {
        if (i < s.exprs.size()) expr(s.exprs[i].get());
        body(s.blocks[i]);
      }
      return;
    }
    case StmtKind::forLoop:
      target(*s.targets[0], false);
      expr(s.exprs[0].get());
      body(s.blocks[0]);
      body(s.blocks[1]);
      if (s.exprs.size() > 1) expr(s.exprs[1].get());
      return;
    case StmtKind::filterBlock:
      body(s.blocks[0]);
      expr(s.exprs[0].get());
      return;
    default:
      break;
    }
    for (const ExprPtr &t : s.targets)
      target(*t, s.kind == StmtKind::with);
    for (const ExprPtr &e : s.exprs)
      expr(e.get());
    if (s.function) function(*s.function);
    for (const Block &b : s.blocks)
      body(b);
  }
};

/// Which of |names| a body reads before it sets them.
struct Undeclared : NameWalk {
  explicit Undeclared(std::set<std::string> n) : names(std::move(n)) {}
  void load(const std::string &name) override {
    if (names.count(name)) found.insert(name);
  }
  void store(const std::string &name, bool) override { names.erase(name); }
  std::set<std::string> names, found;
};

struct StoresLoop : NameWalk {
  void load(const std::string &) override {}
  void store(const std::string &name, bool parameter) override { hit |= !parameter && name == "loop"; }
  bool hit = false;
};

//===--- Slots for all names -----------------------------------------------===//

struct Frame {
  Symbols &symbols;
  bool soft;   ///< right within an `if`: an unknown filter fails only when it is reached
  bool inLoop; ///< break and continue mean something
};

class Resolver {
public:
  Status error;

  void run(Program &program) {
    FunctionState state{&program.main, 0, {}};
    Symbols symbols(nullptr, &state);
    noteBody(program.main.body, symbols);
    fill(program.main.scope, symbols);
    body(program.main.body, {symbols, false, false});
  }

private:
  bool ok() const { return error.ok(); }
  void fail(int line, const std::string &what) {
    if (ok()) error = syntaxError(line, what);
  }

  Slot slotOf(const std::string &name, Symbols &s) { return relative(*s.find(name), s); }
  static Slot relative(const Ref &ref, const Symbols &s) { return {s.function->depth - ref.function->depth, ref.slot}; }

  void fill(Scope &scope, const Symbols &s) {
    for (const auto &[slot, how] : s.loads) {
      scope.slots.push_back(slot);
      switch (how.action) {
      case Symbols::How::parameter:
        break;
      case Symbols::How::resolve:
        scope.loads.push_back({Load::resolve, slot, how.name, {}});
        break;
      case Symbols::How::alias:
        scope.loads.push_back({Load::alias, slot, "", relative(how.from, s)});
        break;
      case Symbols::How::clear:
        scope.loads.push_back({Load::clear, slot, "", {}});
        break;
      }
    }
  }

  void args(CallArgs &a, const Frame &f) {
    for (ExprPtr &e : a.positional)
      expr(e.get(), f);
    for (auto &e : a.keyword)
      expr(e.second.get(), f);
    expr(a.star.get(), f);
    expr(a.starStar.get(), f);
  }
  void expr(Expr *e, const Frame &f) {
    if (!e || !ok()) return;
    Frame inner{f.symbols, f.soft || e->kind == ExprKind::conditional, f.inLoop};
    switch (e->kind) {
    case ExprKind::name:
      e->slot = slotOf(e->name, f.symbols);
      break;
    case ExprKind::spaceAttr:
      e->slot = slotOf(e->text, f.symbols);
      break;
    case ExprKind::filter:
    case ExprKind::test: {
      bool isFilter = e->kind == ExprKind::filter;
      e->id = isFilter ? findFilter(e->name) : findTest(e->name);
      e->known = e->id >= 0;
      if (!e->known && !f.soft)
        return fail(e->line, std::string("unknown ") + (isFilter ? "filter '" : "test '") + e->name + "'");
      break;
    }
    default:
      break;
    }
    for (ExprPtr &c : e->children)
      expr(c.get(), inner);
    args(e->args, inner);
  }

  /// Macros, call blocks and generation blocks. |f| is where they are defined.
  void function(Function &fn, const Frame &f) {
    FunctionState state{&fn, f.symbols.function->depth + 1, {}};
    Symbols s(&f.symbols, &state);
    auto analyze = [&] {
      for (const std::string &p : fn.parameters)
        s.declareParameter(p);
      for (const ExprPtr &d : fn.defaults)
        noteExpr(d.get(), s);
      noteBody(fn.body, s);
    };
    analyze();
    std::set<std::string> taken(fn.parameters.begin(), fn.parameters.end());
    fn.explicitCaller = taken.count("caller") > 0;
    Undeclared special({"caller", "kwargs", "varargs"});
    special.body(fn.body);
    if (special.found.count("caller")) {
      if (!fn.explicitCaller) {
        fn.callerSlot = s.declareParameter("caller").slot;
      } else {
        size_t index = 0;
        while (fn.parameters[index] != "caller")
          ++index;
        if (fn.parameters.size() - index > fn.defaults.size())
          return fail(fn.body.empty() ? 0 : fn.body[0]->line, "a parameter 'caller' needs a default");
      }
    }
    if (special.found.count("kwargs") && !taken.count("kwargs")) fn.kwargsSlot = s.declareParameter("kwargs").slot;
    if (special.found.count("varargs") && !taken.count("varargs")) fn.varargsSlot = s.declareParameter("varargs").slot;
    analyze();
    fill(fn.scope, s);
    for (const std::string &p : fn.parameters)
      fn.parameterSlots.push_back(s.own(p)->slot);
    Frame inner{s, false, false};
    for (ExprPtr &d : fn.defaults)
      expr(d.get(), inner);
    body(fn.body, inner);
  }

  void forLoop(Stmt &stmt, const Frame &f) {
    StoresLoop stores;
    stores.stmt(stmt);
    if (stores.hit) return fail(stmt.line, "cannot assign to the special variable 'loop' in a loop");
    Undeclared special({"loop"});
    special.body(stmt.blocks[0]);
    bool extended = stmt.recursive || special.found.count("loop");

    expr(stmt.exprs[0].get(), f);
    FunctionState own{stmt.function.get(), f.symbols.function->depth + 1, {}};
    FunctionState *state = stmt.recursive ? &own : f.symbols.function;
    Symbols loop(&f.symbols, state), otherwise(&f.symbols, state);
    if (extended) stmt.loopSlot = loop.declareParameter("loop").slot;
    noteTarget(*stmt.targets[0], loop, true);
    noteBody(stmt.blocks[0], loop);
    noteBody(stmt.blocks[1], otherwise);
    fill(stmt.scope, loop);
    fill(stmt.elseScope, otherwise);
    expr(stmt.targets[0].get(), {loop, false, false});
    if (stmt.exprs.size() > 1) {
      Symbols test(&f.symbols, state, "test" + std::to_string(++tests) + "_");
      noteTarget(*stmt.testTarget, test, true);
      noteExpr(stmt.exprs[1].get(), test);
      fill(stmt.testScope, test);
      Frame frame{test, false, false};
      expr(stmt.testTarget.get(), frame);
      expr(stmt.exprs[1].get(), frame);
    }
    body(stmt.blocks[0], {loop, false, true});
    body(stmt.blocks[1], {otherwise, false, f.inLoop && !stmt.recursive});
  }

  void body(Block &block, const Frame &f) {
    for (StmtPtr &p : block) {
      if (!ok()) return;
      Stmt &stmt = *p;
      switch (stmt.kind) {
      case StmtKind::text:
        break;
      case StmtKind::output:
        for (ExprPtr &e : stmt.exprs)
          expr(e.get(), f);
        break;
      case StmtKind::ifElse: {
        Frame soft{f.symbols, true, f.inLoop};
        for (size_t i = 0; i < stmt.blocks.size(); ++i) {
          if (i < stmt.exprs.size()) expr(stmt.exprs[i].get(), soft);
          body(stmt.blocks[i], soft);
        }
        break;
      }
      case StmtKind::forLoop:
        forLoop(stmt, f);
        break;
      case StmtKind::set:
        expr(stmt.exprs[0].get(), f);
        expr(stmt.targets[0].get(), f);
        break;
      case StmtKind::setBlock: {
        Symbols s(&f.symbols, f.symbols.function);
        noteBody(stmt.blocks[0], s);
        if (!stmt.exprs.empty()) noteExpr(stmt.exprs[0].get(), s);
        fill(stmt.scope, s);
        Frame inner{s, false, f.inLoop};
        body(stmt.blocks[0], inner);
        if (!stmt.exprs.empty()) expr(stmt.exprs[0].get(), inner);
        expr(stmt.targets[0].get(), f);
        break;
      }
      case StmtKind::filterBlock: {
        Symbols s(&f.symbols, f.symbols.function);
        noteBody(stmt.blocks[0], s);
        noteExpr(stmt.exprs[0].get(), s);
        fill(stmt.scope, s);
        Frame inner{s, false, f.inLoop};
        body(stmt.blocks[0], inner);
        expr(stmt.exprs[0].get(), inner);
        break;
      }
      case StmtKind::with: {
        Symbols s(&f.symbols, f.symbols.function);
        for (const ExprPtr &t : stmt.targets)
          noteTarget(*t, s, true);
        noteBody(stmt.blocks[0], s);
        fill(stmt.scope, s);
        Frame inner{s, false, f.inLoop};
        for (ExprPtr &e : stmt.exprs)
          expr(e.get(), f);
        for (ExprPtr &t : stmt.targets)
          expr(t.get(), inner);
        body(stmt.blocks[0], inner);
        break;
      }
      case StmtKind::macro:
        function(*stmt.function, f);
        stmt.slot = slotOf(stmt.text, f.symbols);
        break;
      case StmtKind::call:
        function(*stmt.function, f);
        expr(stmt.exprs[0].get(), f);
        break;
      case StmtKind::generation:
        function(*stmt.function, f);
        break;
      case StmtKind::breakLoop:
      case StmtKind::continueLoop:
        if (!f.inLoop)
          fail(stmt.line,
               stmt.kind == StmtKind::breakLoop ? "'break' outside of a loop" : "'continue' outside of a loop");
        break;
      }
    }
  }

  int tests = 0;
};

} // namespace

Status resolveProgram(Program &program) {
  Resolver resolver;
  resolver.run(program);
  return std::move(resolver.error);
}

} // namespace lathe::jinja
