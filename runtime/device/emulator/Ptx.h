//===- Ptx.h - a parsed PTX module -------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What the text says, with names and without meaning: Decode.h gives it meaning. All string views
// point into the source text, which the owner of the module keeps.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lathe::emulator {

/// Fundamental types and the packed formats of conversions and matrix instructions.
enum class Type : uint8_t {
  none, pred, b8, b16, b32, b64, b128, u8, u16, u32, u64, s8, s16, s32, s64,
  f16, f16x2, bf16, bf16x2, tf32, f32, f32x2, f64, e4m3, e5m2, e4m3x2, e5m2x2,
};
/// The type named |text| without the dot, or Type::none.
Type typeNamed(std::string_view text);
const char *typeName(Type type);
/// Bits of one value; 1 for pred.
unsigned typeBits(Type type);
bool isFloat(Type type);
bool isSigned(Type type); ///< s8..s64

struct Operand {
  enum class Kind : uint8_t {
    name,    ///< register, variable, label or function, plus |value|
    integer, ///< |value|
    single,  ///< |value|: bits of a float
    real,    ///< |value|: bits of a double
    address, ///< [name + value], [value], or [name + value, {coordinates}]
    vector,  ///< {parts}
    list,    ///< (parts), of a call
    sink,    ///< _
  };
  Kind kind = Kind::sink;
  bool negated = false; ///< !p
  bool hasPair = false; ///< a|b: b is parts.back()
  std::string_view name;
  uint64_t value = 0;
  std::vector<Operand> parts;
};

struct Instruction {
  uint32_t line = 0;
  uint32_t scope = 0;       ///< index into Function.scopes
  uint32_t sourceLine = 0;  ///< of the last .loc; 0: none
  uint32_t sourceFile = 0;  ///< its .file number
  bool guardNegated = false;
  std::string_view guard;   ///< empty: none
  std::string_view opcode;  ///< with its modifiers
  std::vector<Operand> operands;
};

enum class Space : uint8_t { generic, global, constant, shared, local, param };

/// A variable of any space but .reg. Bytes that |data| does not reach are zero.
struct Variable {
  std::string_view name;
  Space space = Space::generic;
  uint32_t line = 0;
  uint64_t bytes = 0;   ///< 0 with |open|: an array without a size
  uint64_t align = 1;
  bool open = false;    ///< [] or .extern: for shared memory the dynamic part
  std::vector<uint8_t> data;
  struct Reference { uint64_t offset; unsigned bytes; std::string_view name; uint64_t addend; bool generic; };
  std::vector<Reference> references; ///< addresses of variables in the initialiser
};

/// ".reg .b32 %r<10>" (count 10) or ".reg .b32 x" (count 0).
struct RegisterDecl {
  Type type = Type::none;
  uint32_t count = 0;
};

/// A pair of braces. Scope 0 is the function's.
struct Scope {
  int parent = -1;
  std::unordered_map<std::string_view, RegisterDecl> registers;
  std::unordered_map<std::string_view, Variable> variables;
  std::unordered_map<std::string_view, uint32_t> labels; ///< to an index of Function.code
  std::unordered_map<std::string_view, std::vector<std::string_view>> branchTargets;
};

struct Function {
  std::string_view name;
  uint32_t line = 0;
  bool entry = false, defined = false;
  std::vector<Variable> params, results;
  std::array<uint32_t, 3> maxThreads{0, 0, 0};      ///< .maxntid or .reqntid; 0: not given
  bool exactThreads = false;                        ///< .reqntid
  std::array<uint32_t, 3> cluster{0, 0, 0};         ///< .reqnctapercluster; 0: not given
  std::vector<Scope> scopes;
  std::vector<Instruction> code;
};

struct ParsedModule {
  uint32_t version = 0;      ///< 10 * major + minor
  std::string_view target;   ///< "sm_90a"
  std::vector<Variable> variables; ///< .global, .const, .shared of the module
  std::vector<Function> functions;
  std::unordered_map<std::string_view, uint32_t> functionIndex;
  std::unordered_map<std::string_view, uint32_t> variableIndex;
  struct Layer { uint32_t line; std::string_view name; };
  std::vector<Layer> layers;      ///< by line
  std::unordered_map<uint32_t, std::string_view> files;
};

/// Errors name the line. |source| must outlive the module. Memory is proportional to |source|.
Result<ParsedModule> parsePtx(std::string_view source);

} // namespace lathe::emulator
