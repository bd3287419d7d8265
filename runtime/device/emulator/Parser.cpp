//===- Parser.cpp - PTX text to ParsedModule -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Lexer.h"
#include "runtime/device/emulator/Ptx.h"
#include <cstring>

namespace lathe::emulator {
namespace {

struct TypeInfo {
  const char *name;
  unsigned bits;
};
// In the order of enum Type.
constexpr TypeInfo kTypes[] = {
    {"none", 0},  {"pred", 1},    {"b8", 8},    {"b16", 16},    {"b32", 32},  {"b64", 64},  {"b128", 128},
    {"u8", 8},    {"u16", 16},    {"u32", 32},  {"u64", 64},    {"s8", 8},    {"s16", 16},  {"s32", 32},
    {"s64", 64},  {"f16", 16},    {"f16x2", 32}, {"bf16", 16},  {"bf16x2", 32}, {"tf32", 32}, {"f32", 32},
    {"f32x2", 64}, {"f64", 64},   {"e4m3", 8},  {"e5m2", 8},    {"e4m3x2", 16}, {"e5m2x2", 16}};

constexpr unsigned kMaxNesting = 64;      // braces and vectors; a parser's recursion is the machine's stack
constexpr uint64_t kMaxVariable = 1ull << 40;

class Parser {
public:
  explicit Parser(TokenList list) : tokens(std::move(list.tokens)) {
    for (const LayerMark &mark : list.layers)
      module.layers.push_back({mark.line, mark.name});
  }

  Result<ParsedModule> run() {
    while (peek().kind != TokenKind::end)
      LATHE_RETURN_IF_ERROR(topLevel());
    if (module.version == 0) return error("expected a .version directive");
    if (module.target.empty()) return error("expected a .target directive");
    return std::move(module);
  }

private:
  // --- tokens ---
  const Token &peek(size_t ahead = 0) const { return tokens[std::min(at + ahead, tokens.size() - 1)]; }
  const Token &take() { return tokens[at + 1 < tokens.size() ? at++ : at]; }
  bool isSymbol(char c) const { return peek().kind == TokenKind::symbol && peek().text[0] == c; }
  bool isWord(std::string_view text) const { return peek().kind == TokenKind::word && peek().text == text; }
  bool eat(char c) { return isSymbol(c) && (take(), true); }
  bool eatWord(std::string_view text) { return isWord(text) && (take(), true); }
  Status error(const std::string &what) const {
    return makeError(StatusCode::invalidArgument, "ptx line %u: %s", peek().line, what.c_str());
  }
  std::string found() const {
    if (peek().kind == TokenKind::end) return "found the end of the text";
    return "found '" + std::string(peek().text.substr(0, 40)) + "'";
  }
  Status expect(char c) {
    if (eat(c)) return {};
    return error(std::string("expected '") + c + "', " + found());
  }
  Status word(std::string_view &out, const char *what) {
    if (peek().kind != TokenKind::word) return error(std::string("expected ") + what + ", " + found());
    out = take().text;
    return {};
  }
  Status integer(uint64_t &out, const char *what) {
    if (peek().kind != TokenKind::integer) return error(std::string("expected ") + what + ", " + found());
    out = take().value;
    return {};
  }
  void skipPast(char c) {
    while (peek().kind != TokenKind::end && !eat(c))
      take();
  }

  // --- module ---
  Status topLevel() {
    if (eatWord(".version")) return version();
    if (eatWord(".target")) {
      LATHE_RETURN_IF_ERROR(word(module.target, "a target such as sm_90a"));
      while (eat(',')) {
        std::string_view option;
        LATHE_RETURN_IF_ERROR(word(option, "a target option"));
      }
      return {};
    }
    if (eatWord(".address_size")) {
      uint64_t bits = 0;
      LATHE_RETURN_IF_ERROR(integer(bits, "64"));
      if (bits != 64) return error("expected .address_size 64");
      return {};
    }
    if (eatWord(".file")) return file();
    if (eatWord(".pragma")) return skipPast(';'), Status();
    if (eatWord(".section")) return section();
    bool external = false;
    while (isWord(".visible") || isWord(".weak") || isWord(".extern") || isWord(".common"))
      external |= take().text == ".extern";
    if (isWord(".entry") || isWord(".func")) return function();
    Space space;
    if (spaceDirective(space)) {
      std::vector<Variable> declared;
      LATHE_RETURN_IF_ERROR(variables(space, declared));
      for (Variable &variable : declared) {
        variable.open |= external && space == Space::shared;
        if (external && space != Space::shared) return error("external variable '" + std::string(variable.name) + "' has no definition here");
        if (!module.variableIndex.emplace(variable.name, module.variables.size()).second)
          return error("variable '" + std::string(variable.name) + "' is declared twice");
        module.variables.push_back(std::move(variable));
      }
      return {};
    }
    return error("expected a directive, " + found());
  }

  Status version() {
    // "8.6" reads as one decimal fraction.
    if (peek().kind != TokenKind::real) return error("expected a version such as 8.0, " + found());
    double value;
    std::memcpy(&value, &take().value, sizeof(value));
    if (!(value >= 1 && value < 100)) return error("version out of range");
    module.version = static_cast<uint32_t>(value * 10 + 0.5);
    return {};
  }

  Status file() {
    uint64_t number = 0;
    LATHE_RETURN_IF_ERROR(integer(number, "a file number"));
    if (peek().kind != TokenKind::text) return error("expected a file name, " + found());
    module.files[static_cast<uint32_t>(number)] = take().text;
    while (eat(',')) {
      uint64_t ignored = 0;
      LATHE_RETURN_IF_ERROR(integer(ignored, "a time stamp or size"));
    }
    return {};
  }

  Status section() {
    std::string_view name;
    LATHE_RETURN_IF_ERROR(word(name, "a section name"));
    LATHE_RETURN_IF_ERROR(expect('{'));
    for (unsigned depth = 1; depth > 0;) {
      if (peek().kind == TokenKind::end) return error("section is not closed");
      if (eat('{')) ++depth;
      else if (eat('}')) --depth;
      else take();
    }
    return {};
  }

  // --- variables ---
  bool spaceDirective(Space &space) {
    struct Entry { const char *text; Space space; };
    static constexpr Entry entries[] = {{".global", Space::global}, {".const", Space::constant}, {".shared", Space::shared},
                                        {".local", Space::local},   {".param", Space::param}};
    for (const Entry &entry : entries)
      if (isWord(entry.text)) {
        space = entry.space;
        take();
        return true;
      }
    return false;
  }

  Status powerOfTwo(uint64_t &out) {
    LATHE_RETURN_IF_ERROR(integer(out, "an alignment"));
    if (out == 0 || (out & (out - 1)) || out > (1u << 20)) return error("alignment must be a power of two up to 1048576");
    return {};
  }

  /// After ".global" and so on: attributes, type, names. Ends with ';' but for parameters.
  Status variables(Space space, std::vector<Variable> &out) {
    uint64_t align = 0;
    Type type = Type::none;
    unsigned vector = 1;
    while (peek().kind == TokenKind::word && peek().text[0] == '.') {
      std::string_view text = take().text;
      if (text == ".align") LATHE_RETURN_IF_ERROR(powerOfTwo(align));
      else if (text == ".v2") vector = 2;
      else if (text == ".v4") vector = 4;
      else if (text == ".ptr") {
        // .ptr .space .align N describes what is pointed to
        while (peek().kind == TokenKind::word && peek().text[0] == '.') {
          uint64_t ignored = 0;
          if (take().text == ".align") LATHE_RETURN_IF_ERROR(powerOfTwo(ignored));
        }
      } else if (text == ".attribute") {
        LATHE_RETURN_IF_ERROR(expect('('));
        skipPast(')');
      } else if (Type named = typeNamed(text.substr(1)); named != Type::none) type = named;
      else return error("unknown attribute '" + std::string(text) + "' of a variable");
    }
    if (type == Type::none) return error("expected the type of a variable, " + found());
    if (type == Type::pred) return error("a variable in memory cannot be a predicate");
    do {
      Variable variable;
      variable.space = space;
      variable.line = peek().line;
      uint64_t element = typeBits(type) / 8 * vector;
      variable.align = align ? align : element;
      LATHE_RETURN_IF_ERROR(word(variable.name, "a variable name"));
      variable.bytes = element;
      while (eat('[')) {
        if (eat(']')) {
          variable.open = true;
          continue;
        }
        uint64_t count = 0;
        LATHE_RETURN_IF_ERROR(integer(count, "an array size"));
        LATHE_RETURN_IF_ERROR(expect(']'));
        if (count > kMaxVariable / std::max<uint64_t>(variable.bytes, 1)) return error("array is too large");
        variable.bytes *= count;
      }
      if (variable.open) variable.bytes = 0;
      if (eat('=')) {
        LATHE_RETURN_IF_ERROR(initializer(variable, type, 0));
        if (variable.open) {
          variable.bytes = variable.data.size();
          variable.open = false;
        }
        if (variable.data.size() > variable.bytes) return error("more values than the variable has elements");
      }
      out.push_back(std::move(variable));
      // One parameter per ".param"; the list of a function is read by its caller.
      if (parameterList) return {};
    } while (eat(','));
    return expect(';');
  }

  Status initializer(Variable &variable, Type type, unsigned depth) {
    if (depth > kMaxNesting) return error("initialiser is nested too deeply");
    if (eat('{')) {
      if (eat('}')) return {};
      do {
        LATHE_RETURN_IF_ERROR(initializer(variable, type, depth + 1));
      } while (eat(','));
      return expect('}');
    }
    unsigned bytes = typeBits(type) / 8;
    uint64_t value = 0;
    bool minus = eat('-');
    const Token &token = peek();
    if (token.kind == TokenKind::word) {
      Variable::Reference reference{variable.data.size(), bytes, token.text, 0, false};
      take();
      if (reference.name == "generic") {
        LATHE_RETURN_IF_ERROR(expect('('));
        LATHE_RETURN_IF_ERROR(word(reference.name, "a variable name"));
        LATHE_RETURN_IF_ERROR(expect(')'));
        reference.generic = true;
      }
      if (eat('+')) LATHE_RETURN_IF_ERROR(integer(reference.addend, "an offset"));
      variable.references.push_back(reference);
    } else if (token.kind == TokenKind::integer) {
      value = minus ? 0 - take().value : take().value;
    } else if (token.kind == TokenKind::single || token.kind == TokenKind::real) {
      double real;
      bool isSingle = token.kind == TokenKind::single;
      value = take().value;
      if (isSingle) {
        float single;
        uint32_t bits = static_cast<uint32_t>(value);
        std::memcpy(&single, &bits, 4);
        real = single;
      } else {
        std::memcpy(&real, &value, 8);
      }
      if (minus) real = -real;
      if (type == Type::f32) {
        float single = static_cast<float>(real);
        uint32_t bits;
        std::memcpy(&bits, &single, 4);
        value = bits;
      } else {
        std::memcpy(&value, &real, 8);
      }
    } else {
      return error("expected a value, " + found());
    }
    for (unsigned byte = 0; byte < std::max(bytes, 1u); ++byte)
      variable.data.push_back(byte < 8 ? static_cast<uint8_t>(value >> (8 * byte)) : 0);
    return {};
  }

  // --- functions ---
  Status parameters(std::vector<Variable> &out) {
    LATHE_RETURN_IF_ERROR(expect('('));
    if (eat(')')) return {};
    do {
      Space space = Space::param;
      if (eatWord(".reg")) {
        // ABI-less functions; calls pass registers through memory of the same size.
        std::string_view type;
        LATHE_RETURN_IF_ERROR(word(type, "a type"));
        return error("register parameters are not modelled");
      }
      if (!spaceDirective(space) || space != Space::param) return error("expected .param, " + found());
      parameterList = true;
      Status status = variables(space, out);
      parameterList = false;
      LATHE_RETURN_IF_ERROR(std::move(status));
    } while (eat(','));
    return expect(')');
  }

  Status dimensions(std::array<uint32_t, 3> &out) {
    out = {1, 1, 1};
    unsigned index = 0;
    do {
      uint64_t value = 0;
      LATHE_RETURN_IF_ERROR(integer(value, "a size"));
      if (index == 3 || value == 0 || value > UINT32_MAX) return error("expected up to three sizes");
      out[index++] = static_cast<uint32_t>(value);
    } while (eat(','));
    return {};
  }

  Status function() {
    Function function;
    function.entry = take().text == ".entry";
    function.line = peek().line;
    if (!function.entry && isSymbol('(')) LATHE_RETURN_IF_ERROR(parameters(function.results));
    LATHE_RETURN_IF_ERROR(word(function.name, "a function name"));
    if (isSymbol('(')) LATHE_RETURN_IF_ERROR(parameters(function.params));
    while (!isSymbol('{') && !isSymbol(';')) {
      std::string_view directive;
      LATHE_RETURN_IF_ERROR(word(directive, "'{' or a directive of the function"));
      uint64_t ignored = 0;
      if (directive == ".maxntid" || directive == ".reqntid") {
        LATHE_RETURN_IF_ERROR(dimensions(function.maxThreads));
        function.exactThreads = directive == ".reqntid";
      } else if (directive == ".reqnctapercluster") {
        LATHE_RETURN_IF_ERROR(dimensions(function.cluster));
      } else if (directive == ".minnctapersm" || directive == ".maxnctapersm" || directive == ".maxnreg" || directive == ".maxclusterrank") {
        LATHE_RETURN_IF_ERROR(integer(ignored, "a number"));
      } else if (directive == ".pragma") {
        skipPast(';');
      } else if (directive == ".attribute") {
        LATHE_RETURN_IF_ERROR(expect('('));
        skipPast(')');
      } else if (directive != ".noreturn" && directive != ".explicitcluster" && directive != ".blocksareclusters") {
        return error("unknown directive '" + std::string(directive) + "' of a function");
      }
    }
    if (!eat(';')) {
      function.defined = true;
      LATHE_RETURN_IF_ERROR(body(function));
    }
    auto [entry, inserted] = module.functionIndex.emplace(function.name, module.functions.size());
    if (inserted) {
      module.functions.push_back(std::move(function));
    } else if (function.defined) {
      if (module.functions[entry->second].defined)
        return error("function '" + std::string(function.name) + "' is defined twice");
      module.functions[entry->second] = std::move(function);
    }
    return {};
  }

  Status body(Function &function) {
    LATHE_RETURN_IF_ERROR(expect('{'));
    function.scopes.emplace_back();
    uint32_t scope = 0;
    unsigned depth = 1;
    sourceLine = sourceFile = 0;
    while (depth > 0) {
      if (peek().kind == TokenKind::end) return error("function '" + std::string(function.name) + "' is not closed");
      if (eat('{')) {
        if (++depth > kMaxNesting) return error("blocks are nested too deeply");
        function.scopes.emplace_back();
        function.scopes.back().parent = static_cast<int>(scope);
        scope = static_cast<uint32_t>(function.scopes.size() - 1);
      } else if (eat('}')) {
        --depth;
        scope = static_cast<uint32_t>(std::max(function.scopes[scope].parent, 0));
      } else if (!eat(';')) {
        LATHE_RETURN_IF_ERROR(statement(function, scope));
      }
    }
    return {};
  }

  Status statement(Function &function, uint32_t scope) {
    Scope &names = function.scopes[scope];
    if (isWord(".reg")) return registers(names);
    Space space;
    if (spaceDirective(space)) {
      std::vector<Variable> declared;
      LATHE_RETURN_IF_ERROR(variables(space, declared));
      for (Variable &variable : declared) {
        std::string_view name = variable.name;
        if (!names.variables.emplace(name, std::move(variable)).second)
          return error("variable '" + std::string(name) + "' is declared twice");
      }
      return {};
    }
    if (eatWord(".loc")) return location();
    if (eatWord(".pragma")) return skipPast(';'), Status();
    if (eatWord(".file")) return file();
    if (peek().kind == TokenKind::word && peek(1).kind == TokenKind::symbol && peek(1).text[0] == ':') {
      std::string_view label = take().text;
      take();
      if (eatWord(".branchtargets")) return targets(names, label);
      if (eatWord(".callprototype") || eatWord(".calltargets")) return skipPast(';'), Status();
      if (!names.labels.emplace(label, function.code.size()).second)
        return error("label '" + std::string(label) + "' is defined twice");
      return {};
    }
    return instruction(function, scope);
  }

  Status registers(Scope &names) {
    take();
    std::string_view typeText;
    LATHE_RETURN_IF_ERROR(word(typeText, "the type of a register"));
    RegisterDecl declaration;
    declaration.type = typeNamed(typeText.substr(1));
    if (declaration.type == Type::none || typeBits(declaration.type) == 8)
      return error("expected the type of a register, found '" + std::string(typeText) + "'");
    do {
      RegisterDecl one = declaration;
      std::string_view name;
      LATHE_RETURN_IF_ERROR(word(name, "a register name"));
      if (eat('<')) {
        uint64_t count = 0;
        LATHE_RETURN_IF_ERROR(integer(count, "a number of registers"));
        if (count == 0 || count > (1u << 24)) return error("number of registers must be 1 to 16777216");
        one.count = static_cast<uint32_t>(count);
        LATHE_RETURN_IF_ERROR(expect('>'));
      }
      if (!names.registers.emplace(name, one).second)
        return error("register '" + std::string(name) + "' is declared twice");
    } while (eat(','));
    return expect(';');
  }

  Status location() {
    uint64_t file = 0, line = 0, column = 0;
    LATHE_RETURN_IF_ERROR(integer(file, "a file number"));
    LATHE_RETURN_IF_ERROR(integer(line, "a line number"));
    LATHE_RETURN_IF_ERROR(integer(column, "a column number"));
    sourceFile = static_cast<uint32_t>(file);
    sourceLine = static_cast<uint32_t>(line);
    // ", function_name label {+ offset}, inlined_at file line column"
    while (eat(',')) {
      take();
      while (peek().kind == TokenKind::integer || isSymbol('+') || (peek().kind == TokenKind::word && peek().text[0] == '$'))
        take();
    }
    return {};
  }

  Status targets(Scope &names, std::string_view label) {
    std::vector<std::string_view> labels;
    do {
      std::string_view target;
      LATHE_RETURN_IF_ERROR(word(target, "a label"));
      labels.push_back(target);
    } while (eat(','));
    names.branchTargets[label] = std::move(labels);
    return expect(';');
  }

  // --- instructions ---
  Status instruction(Function &function, uint32_t scope) {
    Instruction instruction;
    instruction.line = peek().line;
    instruction.scope = scope;
    instruction.sourceFile = sourceFile;
    instruction.sourceLine = sourceLine;
    if (eat('@')) {
      instruction.guardNegated = eat('!');
      LATHE_RETURN_IF_ERROR(word(instruction.guard, "a predicate"));
    }
    LATHE_RETURN_IF_ERROR(word(instruction.opcode, "an instruction"));
    if (instruction.opcode[0] == '.' || instruction.opcode[0] == '%')
      return error("expected an instruction, found '" + std::string(instruction.opcode) + "'");
    if (!isSymbol(';')) {
      do {
        Operand operand;
        LATHE_RETURN_IF_ERROR(parseOperand(operand, 0));
        instruction.operands.push_back(std::move(operand));
      } while (eat(','));
    }
    LATHE_RETURN_IF_ERROR(expect(';'));
    function.code.push_back(std::move(instruction));
    return {};
  }

  /// name, name+4, name-4, 7, -7
  Status base(Operand &operand) {
    if (peek().kind == TokenKind::word) {
      operand.kind = Operand::Kind::name;
      operand.name = take().text;
      if (isSymbol('+') || isSymbol('-')) {
        bool minus = take().text[0] == '-';
        minus ^= eat('-'); // LLVM writes [%r1+-4]
        uint64_t offset = 0;
        LATHE_RETURN_IF_ERROR(integer(offset, "an offset"));
        operand.value = minus ? 0 - offset : offset;
      }
      return {};
    }
    bool minus = eat('-');
    if (peek().kind != TokenKind::integer) return error("expected an operand, " + found());
    operand.kind = Operand::Kind::integer;
    operand.value = minus ? 0 - take().value : take().value;
    return {};
  }

  Status group(Operand &operand, char close, unsigned depth) {
    if (eat(close)) return {};
    do {
      Operand part;
      LATHE_RETURN_IF_ERROR(parseOperand(part, depth + 1));
      operand.parts.push_back(std::move(part));
    } while (eat(','));
    return expect(close);
  }

  Status parseOperand(Operand &operand, unsigned depth) {
    if (depth > 4) return error("operand is nested too deeply");
    if (isWord("_")) {
      take();
      operand.kind = Operand::Kind::sink;
    } else if (eat('[')) {
      LATHE_RETURN_IF_ERROR(base(operand));
      operand.kind = Operand::Kind::address;
      while (eat(',')) {
        Operand coordinates;
        LATHE_RETURN_IF_ERROR(parseOperand(coordinates, depth + 1));
        operand.parts.push_back(std::move(coordinates));
      }
      return expect(']');
    } else if (eat('{')) {
      operand.kind = Operand::Kind::vector;
      return group(operand, '}', depth);
    } else if (eat('(')) {
      operand.kind = Operand::Kind::list;
      return group(operand, ')', depth);
    } else if (eat('!')) {
      operand.negated = true;
      operand.kind = Operand::Kind::name;
      LATHE_RETURN_IF_ERROR(word(operand.name, "a predicate"));
    } else if (peek().kind == TokenKind::single || peek().kind == TokenKind::real) {
      operand.kind = peek().kind == TokenKind::single ? Operand::Kind::single : Operand::Kind::real;
      operand.value = take().value;
    } else {
      LATHE_RETURN_IF_ERROR(base(operand));
    }
    if (eat('|')) {
      operand.hasPair = true;
      Operand second;
      LATHE_RETURN_IF_ERROR(parseOperand(second, depth + 1));
      operand.parts.push_back(std::move(second));
    }
    return {};
  }

  std::vector<Token> tokens;
  size_t at = 0;
  ParsedModule module;
  bool parameterList = false;
  uint32_t sourceFile = 0, sourceLine = 0;
};

} // namespace

Type typeNamed(std::string_view text) {
  for (unsigned index = 1; index < std::size(kTypes); ++index)
    if (text == kTypes[index].name) return static_cast<Type>(index);
  return Type::none;
}
const char *typeName(Type type) { return kTypes[static_cast<unsigned>(type)].name; }
unsigned typeBits(Type type) { return kTypes[static_cast<unsigned>(type)].bits; }
bool isFloat(Type type) { return type >= Type::f16; }
bool isSigned(Type type) { return type >= Type::s8 && type <= Type::s64; }

Result<ParsedModule> parsePtx(std::string_view source) {
  LATHE_ASSIGN_OR_RETURN(TokenList tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

} // namespace lathe::emulator
