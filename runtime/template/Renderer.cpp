//===- Renderer.cpp - statements and limits ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Renderer.h"
#include <cstdarg>

namespace lathe::jinja {

static std::string formatted(const char *format, va_list args) {
  char text[512];
  std::vsnprintf(text, sizeof(text), format, args);
  return text;
}

bool Renderer::fail(const char *format, ...) {
  if (!error.ok()) return false;
  va_list args;
  va_start(args, format);
  error = makeError(StatusCode::invalidArgument, "template line %d: %s", line, formatted(format, args).c_str());
  va_end(args);
  return false;
}

bool Renderer::exhausted(const char *format, ...) {
  if (!error.ok()) return false;
  va_list args;
  va_start(args, format);
  error = makeError(StatusCode::resourceExhausted, "template line %d: %s", line, formatted(format, args).c_str());
  va_end(args);
  return false;
}

bool Renderer::unsupported(const char *format, ...) {
  if (!error.ok()) return false;
  va_list args;
  va_start(args, format);
  error = makeError(StatusCode::unsupported, "template line %d: %s", line, formatted(format, args).c_str());
  va_end(args);
  return false;
}

bool Renderer::raise(std::string message) {
  if (error.ok()) error = Status(StatusCode::invalidArgument, std::move(message));
  return false;
}

bool Renderer::tick(uint64_t n) {
  steps += n;
  if (steps > options.maxSteps)
    return exhausted("more than %llu steps", static_cast<unsigned long long>(options.maxSteps));
  if (Object::liveBytes - liveBase > static_cast<int64_t>(options.maxLiveBytes))
    return exhausted("values take more than %zu bytes", options.maxLiveBytes);
  return true;
}

bool Renderer::checkSize(uint64_t bytes) {
  if (bytes <= options.maxOutputBytes) return true;
  return exhausted("a string of more than %zu bytes", options.maxOutputBytes);
}

bool Renderer::checkDepth(int depth) {
  if (depth <= options.maxDepth) return true;
  return exhausted("values nested more than %d deep", options.maxDepth);
}

bool Renderer::makeString(std::string text, Value &out, bool markup) {
  if (!checkSize(text.size()) || !tickBytes(text.size())) return false;
  out = Value::string(std::move(text), markup);
  return true;
}

bool Renderer::makeList(std::vector<Value> items, Value &out, Kind kind) {
  if (!tick(items.size() / 4)) return false;
  out = kind == Kind::tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  return checkDepth(out.depth());
}

bool Renderer::makeDict(std::shared_ptr<DictObject> dict, Value &out) {
  if (!tick(dict->items.size() / 4) || !checkDepth(dict->depth)) return false;
  out = jinja::makeDict(std::move(dict));
  return true;
}

bool Renderer::append(std::string_view text) {
  if (bufferBytes + text.size() > options.maxOutputBytes)
    return exhausted("output of more than %zu bytes", options.maxOutputBytes);
  if (!tickBytes(text.size())) return false;
  bufferBytes += text.size();
  buffer->append(text);
  return true;
}

/// Sends output to a buffer of its own for as long as it lives.
struct Capture {
  explicit Capture(Renderer &r) : renderer(r), outer(r.buffer) { r.buffer = &text; }
  ~Capture() { end(); }
  void end() {
    if (renderer.buffer != &text) return;
    renderer.buffer = outer;
    renderer.bufferBytes -= text.size();
  }
  bool take(Value &out) {
    end();
    return renderer.makeString(std::move(text), out);
  }
  Renderer &renderer;
  std::string *outer;
  std::string text;
};

//===--- Variables ----------------------------------------------------------===//

Value &Renderer::slotAt(const Slot &slot) {
  Activation *a = frame.get();
  for (int i = 0; i < slot.hops; ++i)
    a = a->parent.get();
  return a->slots[slot.slot];
}

bool Renderer::resolveName(const std::string &name, Value &out) {
  for (const Value *where : {&variables, &globals}) {
    DictObject &dict = where->as<DictObject>();
    int64_t at = dict.find(std::string_view(name));
    if (at < 0) continue;
    out = dict.items[at].second;
    return true;
  }
  out = Value();
  return true;
}

bool Renderer::enter(const Scope &scope) {
  if (!tick(scope.loads.size() / 16)) return false;
  for (const Load &load : scope.loads) {
    Value v;
    if (load.action == Load::resolve)
      resolveName(load.name, v);
    else if (load.action == Load::alias)
      v = slotAt(load.from);
    frame->slots[load.slot] = std::move(v);
  }
  return true;
}

void Renderer::leave(const Scope &scope) {
  for (int slot : scope.slots)
    frame->slots[slot] = Value();
}

bool Renderer::checkSpaces(const Expr &target) {
  if (target.kind == ExprKind::spaceAttr && !slotAt(target.slot).is(Kind::space))
    return fail("cannot assign to attribute '%s' of '%s': not a namespace", target.name.c_str(), target.text.c_str());
  for (const ExprPtr &child : target.children)
    if (!checkSpaces(*child)) return false;
  return true;
}

bool Renderer::assign(const Expr &target, const Value &value) {
  if (target.kind == ExprKind::name) {
    slotAt(target.slot) = value;
    return true;
  }
  if (target.kind == ExprKind::spaceAttr) {
    // An earlier part of the same tuple may have replaced the namespace.
    const Value &space = slotAt(target.slot);
    if (!space.is(Kind::space)) return fail("cannot assign to attribute '%s': not a namespace", target.name.c_str());
    space.as<NamespaceObject>().attributes.set(Value::string(target.name), value);
    return true;
  }
  std::vector<Value> parts;
  if (!collect(value, parts)) return false;
  if (parts.size() != target.children.size())
    return fail("expected %zu values to unpack, found %zu", target.children.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    if (!assign(*target.children[i], parts[i])) return false;
  return true;
}

Value Renderer::macroValue(const Function &function) {
  auto macro = std::make_shared<MacroObject>();
  macro->charge(sizeof(MacroObject));
  macro->function = &function;
  macro->closure = frame;
  return Value::object(Kind::macro, std::move(macro));
}

//===--- Statements ---------------------------------------------------------===//

Flow Renderer::runBody(const Block &body) {
  // Counted with the expressions: together they bound the C++ stack.
  if (++evals > maxEvalDepth) {
    exhausted("expressions and calls nested more than %d deep", maxEvalDepth);
    return Flow::failed;
  }
  Flow flow = Flow::next;
  for (const StmtPtr &stmt : body) {
    flow = runStmt(*stmt);
    if (flow != Flow::next) break;
  }
  --evals;
  return flow;
}

Flow Renderer::runStmt(const Stmt &stmt) {
  line = stmt.line;
  if (!tick()) return Flow::failed;
  auto done = [](bool ok) { return ok ? Flow::next : Flow::failed; };
  switch (stmt.kind) {
  case StmtKind::text:
    return done(append(stmt.text));
  case StmtKind::output:
    for (const ExprPtr &e : stmt.exprs) {
      Value v;
      if (!eval(*e, v)) return Flow::failed;
      if (v.is(Kind::string)) {
        if (!append(v.text())) return Flow::failed;
        continue;
      }
      std::string text;
      if (!toText(v, text) || !append(text)) return Flow::failed;
    }
    return Flow::next;
  case StmtKind::ifElse: {
    for (size_t i = 0; i < stmt.exprs.size(); ++i) {
      Value v;
      bool yes;
      if (!eval(*stmt.exprs[i], v) || !truth(v, yes)) return Flow::failed;
      if (yes) return runBody(stmt.blocks[i]);
    }
    return stmt.blocks.size() > stmt.exprs.size() ? runBody(stmt.blocks.back()) : Flow::next;
  }
  case StmtKind::forLoop: {
    Value iterable;
    if (!eval(*stmt.exprs[0], iterable)) return Flow::failed;
    if (!stmt.recursive) return runFor(stmt, iterable, 0);
    Value text;
    return done(recurseLoop(stmt, frame, iterable, 0, text) && append(text.text()));
  }
  case StmtKind::set: {
    Value v;
    return done(checkSpaces(*stmt.targets[0]) && eval(*stmt.exprs[0], v) && assign(*stmt.targets[0], v));
  }
  case StmtKind::setBlock:
    return runSetBlock(stmt);
  case StmtKind::macro:
    slotAt(stmt.slot) = macroValue(*stmt.function);
    return Flow::next;
  case StmtKind::call:
    return done(runCall(stmt));
  case StmtKind::generation: {
    Args args;
    Value text;
    Value caller = macroValue(*stmt.function);
    return done(callMacro(caller.as<MacroObject>(), args, text) && append(text.text()));
  }
  case StmtKind::filterBlock:
    return runFilterBlock(stmt);
  case StmtKind::with: {
    if (!enter(stmt.scope)) return Flow::failed;
    for (size_t i = 0; i < stmt.exprs.size(); ++i) {
      Value v;
      if (!eval(*stmt.exprs[i], v) || !assign(*stmt.targets[i], v)) return Flow::failed;
    }
    Flow flow = runBody(stmt.blocks[0]);
    leave(stmt.scope);
    return flow;
  }
  case StmtKind::breakLoop:
    return Flow::breakLoop;
  case StmtKind::continueLoop:
    return Flow::continueLoop;
  }
  return Flow::failed;
}

Flow Renderer::runSetBlock(const Stmt &stmt) {
  // The target belongs to the outer scope; the body is captured in its own.
  if (!enter(stmt.scope)) return Flow::failed;
  Value text;
  {
    Capture capture(*this);
    Flow flow = runBody(stmt.blocks[0]);
    if (flow != Flow::next) return flow;
    if (!capture.take(text)) return Flow::failed;
  }
  if (!stmt.exprs.empty()) {
    Value filtered;
    if (!evalFilter(*stmt.exprs[0], &text, filtered)) return Flow::failed;
    text = filtered;
  }
  if (!checkSpaces(*stmt.targets[0]) || !assign(*stmt.targets[0], text)) return Flow::failed;
  leave(stmt.scope);
  return Flow::next;
}

Flow Renderer::runFilterBlock(const Stmt &stmt) {
  if (!enter(stmt.scope)) return Flow::failed;
  Value text, filtered;
  {
    Capture capture(*this);
    Flow flow = runBody(stmt.blocks[0]);
    if (flow != Flow::next) return flow;
    if (!capture.take(text)) return Flow::failed;
  }
  if (!evalFilter(*stmt.exprs[0], &text, filtered)) return Flow::failed;
  if (!filtered.is(Kind::string)) {
    fail("the filter of a block gives a %s, expected a string", typeName(filtered));
    return Flow::failed;
  }
  if (!append(filtered.text())) return Flow::failed;
  leave(stmt.scope);
  return Flow::next;
}

bool Renderer::runCall(const Stmt &stmt) {
  Value caller = macroValue(*stmt.function), result;
  if (!evalCall(*stmt.exprs[0], &caller, result)) return false;
  if (!result.is(Kind::string)) return fail("a call block gives a %s, expected a string", typeName(result));
  return append(result.text());
}

namespace {
/// The iterable of a loop with a condition: what the condition lets through.
struct Filtered : GeneratorObject {
  Iterator source;
  bool started = false;
};
} // namespace

Flow Renderer::runFor(const Stmt &stmt, const Value &iterable, int depth0) {
  Value source = iterable;
  if (stmt.exprs.size() > 1) {
    auto filtered = std::make_shared<Filtered>();
    filtered->depth = static_cast<uint16_t>(iterable.depth() + 1);
    if (!filtered->source.start(*this, iterable)) return Flow::failed;
    // The loop object may be asked for its next item from within a macro: back to the loop's variables.
    filtered->pull = [&stmt, state = filtered.get(), home = frame](Renderer &r, Value &out, bool &done) {
      ActivationPtr outer = std::exchange(r.frame, home);
      if (!state->started && !r.enter(stmt.testScope)) return false;
      state->started = true;
      while (true) {
        if (!r.tick() || !state->source.next(r, out, done)) return false;
        if (done) break;
        Value v;
        bool yes;
        if (!r.assign(*stmt.testTarget, out) || !r.eval(*stmt.exprs[1], v) || !r.truth(v, yes)) return false;
        if (yes) break;
      }
      r.frame = std::move(outer);
      return true;
    };
    source = Value::object(Kind::generator, std::move(filtered));
  }
  Iterator iterator;
  std::shared_ptr<LoopObject> loop;
  if (stmt.loopSlot >= 0) {
    loop = std::make_shared<LoopObject>();
    loop->charge(sizeof(LoopObject));
    loop->iterable = source;
    loop->depth = static_cast<uint16_t>(source.depth() + 1);
    loop->depth0 = depth0;
    if (stmt.recursive) {
      loop->recurse = &stmt;
      loop->closure = frame->parent;
    }
    if (!loop->iterator.start(*this, source)) return Flow::failed;
  } else if (!iterator.start(*this, source)) {
    return Flow::failed;
  }
  // Jinja2 sees a round that `continue` or `break` ends as no round, as far as `else` is concerned.
  bool none = true;
  Flow result = Flow::next;
  while (true) {
    Value item;
    bool done = false;
    line = stmt.line;
    if (!tick()) return Flow::failed;
    if (loop) {
      if (!loop->ahead.empty()) {
        item = std::move(loop->ahead.back());
        loop->ahead.pop_back();
      } else if (!loop->iterator.next(*this, item, done)) {
        return Flow::failed;
      }
      if (done) break;
      ++loop->index0;
      loop->before = std::move(loop->current);
      loop->current = item;
    } else {
      if (!iterator.next(*this, item, done)) return Flow::failed;
      if (done) break;
    }
    if (!assign(*stmt.targets[0], item)) return Flow::failed;
    if (loop) frame->slots[stmt.loopSlot] = Value::object(Kind::loop, loop);
    if (!enter(stmt.scope)) return Flow::failed;
    Flow flow = runBody(stmt.blocks[0]);
    if (flow == Flow::failed) return flow;
    if (flow == Flow::breakLoop) break;
    if (flow == Flow::next) none = false;
  }
  leave(stmt.scope);
  leave(stmt.testScope);
  if (none && !stmt.blocks[1].empty()) {
    if (!enter(stmt.elseScope)) return Flow::failed;
    result = runBody(stmt.blocks[1]);
    leave(stmt.elseScope);
  }
  return result;
}

bool Renderer::recurseLoop(const Stmt &stmt, ActivationPtr closure, const Value &iterable, int depth0, Value &out) {
  if (++calls > options.maxDepth) return exhausted("calls nested more than %d deep", options.maxDepth);
  ActivationPtr outer = frame;
  frame = std::make_shared<Activation>();
  frame->charge(sizeof(Activation) + stmt.function->slots * sizeof(Value));
  frame->slots.resize(stmt.function->slots);
  frame->parent = std::move(closure);
  Capture capture(*this);
  Flow flow = runFor(stmt, iterable, depth0);
  if (frame.use_count() > 1) captured.push_back(frame);
  frame = std::move(outer);
  --calls;
  return flow == Flow::next && capture.take(out);
}

bool Renderer::callMacro(const MacroObject &macro, Args &args, Value &out) {
  const Function &f = *macro.function;
  if (calls >= options.maxDepth) return exhausted("calls nested more than %d deep", options.maxDepth);
  if (!tick(f.slots / 16)) return false;
  auto activation = std::make_shared<Activation>();
  activation->charge(sizeof(Activation) + f.slots * sizeof(Value));
  activation->slots.resize(f.slots);
  activation->parent = macro.closure;
  std::vector<Value> given(f.parameters.size());
  bool foundCaller = f.explicitCaller && args.positional.size() >= f.parameters.size();
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    if (i < args.positional.size()) {
      given[i] = args.positional[i];
      continue;
    }
    if (f.parameters[i] == "caller") foundCaller = true;
    for (auto it = args.keyword.begin(); it != args.keyword.end(); ++it) {
      if (it->first != f.parameters[i]) continue;
      given[i] = it->second;
      args.keyword.erase(it);
      break;
    }
  }
  if (f.callerSlot >= 0 && !foundCaller) {
    Value caller = Value::undefined("no caller is given");
    for (auto it = args.keyword.begin(); it != args.keyword.end(); ++it) {
      if (it->first != "caller") continue;
      if (!it->second.is(Kind::none)) caller = it->second;
      args.keyword.erase(it);
      break;
    }
    activation->slots[f.callerSlot] = caller;
  }
  if (f.kwargsSlot >= 0) {
    auto dict = std::make_shared<DictObject>();
    for (auto &[name, value] : args.keyword)
      dict->set(Value::string(name), value);
    if (!makeDict(std::move(dict), activation->slots[f.kwargsSlot])) return false;
  } else if (!args.keyword.empty()) {
    return fail("macro '%s' has no parameter '%s'", f.name.c_str(), args.keyword[0].first.c_str());
  }
  if (f.varargsSlot >= 0) {
    std::vector<Value> rest;
    for (size_t i = f.parameters.size(); i < args.positional.size(); ++i)
      rest.push_back(args.positional[i]);
    if (!makeList(std::move(rest), activation->slots[f.varargsSlot], Kind::tuple)) return false;
  } else if (args.positional.size() > f.parameters.size()) {
    return fail("macro '%s' takes %zu arguments, found %zu", f.name.c_str(), f.parameters.size(),
                args.positional.size());
  }

  ++calls;
  ActivationPtr outer = std::move(frame);
  frame = std::move(activation);
  int callLine = line;
  Capture capture(*this);
  for (size_t i = 0; i < given.size(); ++i)
    frame->slots[f.parameterSlots[i]] = given[i];
  bool ok = enter(f.scope);
  for (size_t i = 0; ok && i < given.size(); ++i) {
    if (!given[i].isMissing()) continue;
    Value &slot = frame->slots[f.parameterSlots[i]];
    size_t first = given.size() - f.defaults.size();
    if (i < first) {
      slot = Value::undefined("parameter '" + f.parameters[i] + "' is not given");
    } else {
      Value v;
      ok = eval(*f.defaults[i - first], v);
      frame->slots[f.parameterSlots[i]] = std::move(v);
    }
  }
  ok = ok && runBody(f.body) == Flow::next && capture.take(out);
  capture.end();
  // A macro made in here may still hold these variables, and they it.
  if (frame.use_count() > 1) captured.push_back(frame);
  frame = std::move(outer);
  --calls;
  if (ok) line = callLine;
  return ok;
}

//===--- A whole render -----------------------------------------------------===//

Renderer::~Renderer() {
  // Breaks the cycles. Objects stay until all have been emptied, so nothing recurses.
  for (auto &space : spaces)
    space->attributes.items.clear();
  for (auto &activation : captured)
    activation->slots.clear();
}

Result<std::string> Renderer::run(const Program &program, const nlohmann::ordered_json &context) {
  if (!context.is_object())
    return makeError(StatusCode::invalidArgument, "template context: expected an object, found %s",
                     context.type_name());
  if (!fromJson(context, variables)) return error;
  auto names = std::make_shared<DictObject>();
  const std::pair<const char *, Global> all[] = {
      {"range", Global::range},           {"dict", Global::dict},
      {"lipsum", Global::lipsum},         {"cycler", Global::cycler},
      {"joiner", Global::joiner},         {"namespace", Global::space},
      {"raise_exception", Global::raise}, {"strftime_now", Global::strftime},
  };
  for (const auto &[name, which] : all) {
    auto object = std::make_shared<GlobalObject>();
    object->which = which;
    names->set(Value::string(name), Value::object(Kind::function, std::move(object)));
  }
  globals = jinja::makeDict(std::move(names));

  std::string out;
  buffer = &out;
  frame = std::make_shared<Activation>();
  frame->slots.resize(program.main.slots);
  captured.push_back(frame);
  if (!enter(program.main.scope) || runBody(program.main.body) != Flow::next) return error;
  return out;
}

} // namespace lathe::jinja
