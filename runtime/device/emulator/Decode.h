//===- Decode.h - from PTX text to executable instructions -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// An instruction is found in one of two ways: by its whole opcode in the table of simple operations
// (registers in, registers out), or by its mnemonic in the table of families, whose function takes the
// modifiers one by one. A modifier that nobody takes is an error.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Emulator.h"
#include "runtime/device/emulator/Program.h"
#include <functional>
#include <optional>

namespace lathe::emulator {

/// The dot-separated parts of an opcode.
class Modifiers {
public:
  explicit Modifiers(std::string_view opcode);
  std::string_view mnemonic() const { return parts[0]; }
  bool take(std::string_view name);
  /// Takes the first of |names| that is there, or returns "".
  std::string_view takeAny(std::initializer_list<std::string_view> names);
  bool has(std::string_view name) const;
  /// Takes the next untaken modifier that is a type.
  Type takeType();
  /// The first modifier that nobody took, or "".
  std::string_view rest() const;
  /// Takes the next untaken modifier, whatever it is.
  std::string_view takeNext();

private:
  std::vector<std::string_view> parts;
  std::vector<bool> taken;
};

/// Where the variables of a module are: device addresses of .global and .const.
using VariableAddress = std::function<std::optional<uint64_t>(std::string_view)>;

struct DecodeOptions {
  unsigned capability = 90;
  char feature = 'a';
};

class Decoder;
struct SlotUse { uint32_t slot; bool predicate, write; };
/// Fills |inst| from the operands of |text|. The decoder appends it afterwards.
using FamilyDecoder = Status (*)(Decoder &decoder, const Instruction &text, Modifiers &mods, Inst &inst);
struct FamilyEntry {
  FamilyDecoder decode;
  OpClass opClass;
  unsigned minCapability;
};
/// A simple operation: |signature| is "results=sources" with p (predicate), h (16 bits), r (32), q (64), f (float), d (double).
struct SimpleEntry {
  Handler run;
  const char *signature;
  OpClass opClass;
  unsigned minCapability;
};
struct OpTable {
  std::unordered_map<std::string, SimpleEntry> simple;
  std::unordered_map<std::string, FamilyEntry> families;
  void add(const char *key, Handler run, const char *signature, OpClass opClass, unsigned minCapability = 0) {
    simple.emplace(key, SimpleEntry{run, signature, opClass, minCapability});
  }
  void family(const char *mnemonic, FamilyDecoder decode, OpClass opClass, unsigned minCapability = 0) {
    families.emplace(mnemonic, FamilyEntry{decode, opClass, minCapability});
  }
};
const OpTable &opTable();
// Each in the file of its executors.
void addIntegerOps(OpTable &table);
void addWideIntegerOps(OpTable &table);
void addFloatOps(OpTable &table);
void addHalfOps(OpTable &table);
void addCompareOps(OpTable &table);
void addConvertOps(OpTable &table);
void addApproximateOps(OpTable &table);
void addMoveOps(OpTable &table);
void addMemoryOps(OpTable &table);
void addAtomicOps(OpTable &table);
void addWarpOps(OpTable &table);
void addControlOps(OpTable &table);
void addMatrixOps(OpTable &table);
void addWmmaOps(OpTable &table);
void addWgmmaOps(OpTable &table);
void addCopyOps(OpTable &table);
void addBulkOps(OpTable &table);
void addMbarrierOps(OpTable &table);

class Decoder {
public:
  Decoder(const ParsedModule &module, VariableAddress addressOf, const DecodeOptions &options)
      : module(module), addressOf(std::move(addressOf)), options(options) {}
  /// Decodes an entry function and all it calls.
  Result<Program> run(const Function &function);

  // --- for the families ---
  [[gnu::format(printf, 2, 3)]] Status error(const char *format, ...) const;
  /// The kernel needs this compute capability, because of |what|.
  Status require(unsigned capability, const char *what) const;
  /// The kernel needs a target with 'a', such as sm_90a.
  Status requireFeature(unsigned capability, const char *what) const;
  Status operandCount(const Instruction &text, size_t least, size_t most) const;
  /// Slot of an operand of |type| that is read. Immediates and special registers get slots of their own.
  Status source(const Operand &operand, Type type, uint32_t &slot);
  Status dest(const Operand &operand, Type type, uint32_t &slot);
  /// Slot of a 32-bit register that the executor checks by itself.
  Status quietSlot(const Operand &operand, uint32_t &slot) {
    size_t uses = pendingUses.size();
    LATHE_RETURN_IF_ERROR(dest(operand, Type::b32, slot));
    pendingUses.resize(uses);
    return {};
  }
  /// The same for ld, st and cvt, which take wider registers: |wide| says that the slot has 64 bits.
  Status sourceRelaxed(const Operand &operand, Type type, uint32_t &slot, bool &wide);
  Status destRelaxed(const Operand &operand, Type type, uint32_t &slot, bool &wide);
  /// [address]: |inst|.s[|index|], offset, space-dependent. Sets addressWide.
  Status address(const Operand &operand, Inst &inst, unsigned index);
  /// A second address of an instruction, as a 64-bit slot with the offset added.
  Status addressValue(const Operand &operand, uint32_t &slot);
  Status immediate(const Operand &operand, int64_t &value);
  /// Appends slots to Program.operands; |first| and |count| describe them.
  Status sources(const Operand &vector, Type type, Inst &inst);
  Status dests(const Operand &vector, Type type, Inst &inst);
  /// Makes the instruction that is appended next a branch to a label.
  Status label(const Operand &operand);
  Status labels(const Operand &operand, Inst &inst);
  Status call(const Instruction &text);
  Status returnFrom(Inst &inst);
  uint32_t constant(uint64_t value, bool wide);
  uint32_t newSlot(Type type);
  /// The condition code of add.cc and so on.
  uint32_t carrySlot() {
    if (carry == kNoSlot) carry = newSlot(Type::b32);
    return carry;
  }
  /// The registers of this slot belong to an asynchronous instruction for a while.
  void watch(uint32_t slot) { asyncSlots.push_back(slot); }
  void noteUse(uint32_t slot, bool predicate, bool write);
  bool isRegister(const Operand &operand) const;
  /// Bits of the register, 0 when |operand| is none.
  unsigned registerBits(const Operand &operand) const;
  bool isEntryParameter(const Operand &operand) const;
  void append(Inst inst, const Instruction &text);
  Program &result() { return program; }
  /// The instruction is already appended, or needs none.
  bool handled = false;
  OpClass opClass = OpClass::other;
  /// Appended after the current instruction (conversions of its result).
  std::vector<Inst> after;
  uint32_t currentLine() const { return line; }
  unsigned targetCapability() const { return target; }
  void noteGranule(Space space, unsigned bytes);

private:
  struct Register { uint32_t slot = kNoSlot; Type type = Type::none; std::string_view name; };
  struct Frame {
    const Function *function = nullptr;
    Frame *parent = nullptr;
    unsigned depth = 0;
    std::vector<std::unordered_map<std::string_view, Register>> registers;  ///< by scope
    std::vector<std::unordered_map<std::string_view, uint32_t>> locals;     ///< .local and .param variables: frame offset
    std::unordered_map<std::string_view, uint32_t> bindings;                ///< parameters of a device function
    std::vector<uint32_t> pcs;                                             ///< of each instruction of the text
    struct Fixup { uint32_t inst; uint32_t textIndex; int operand; };
    std::vector<Fixup> fixups;
  };
  Status function(Frame &frame);
  Status instruction(const Instruction &text);
  Status simple(const SimpleEntry &entry, const Instruction &text, Inst &inst);
  const Register *lookup(std::string_view name);
  Status symbol(const Operand &operand, uint64_t &value);
  std::optional<uint32_t> localOffset(std::string_view name);
  uint32_t allocateLocal(uint64_t bytes, uint64_t align);
  Status sharedOffset(const Variable &variable, uint64_t &offset);
  Status readTarget();
  bool special(std::string_view name, Type type, uint32_t &slot);
  void flow();
  void assignment();

  const ParsedModule &module;
  VariableAddress addressOf;
  DecodeOptions options;
  Program program;
  Frame *frame = nullptr;
  uint32_t scope = 0;
  uint32_t line = 0;
  const Instruction *current = nullptr;
  uint32_t carry = kNoSlot;
  unsigned target = 0;
  char targetFeature = 0;
  std::vector<SlotUse> pendingUses;
  std::vector<SlotUse> allUses;
  std::vector<Program::UseRange> useRanges;
  std::unordered_map<uint64_t, std::string_view> slotNames;
  std::unordered_map<uint64_t, uint32_t> constants32, constants64;
  std::unordered_map<uint64_t, uint32_t> specialSlots;
  std::unordered_map<const Variable *, uint32_t> sharedPlaces;
  std::vector<uint32_t> dynamicConstants; ///< indices of constants that are the start of dynamic shared memory
  std::vector<uint32_t> asyncSlots;
  uint64_t wholeSize = 0;
};

/// Post-dominators and definite assignment, in Analysis.cpp.
void findJoins(Program &program);
void findUnassigned(Program &program, const std::vector<Program::UseRange> &ranges, const std::vector<SlotUse> &uses,
                    const std::vector<uint32_t> &alwaysWatched, const std::function<std::string(uint32_t, bool)> &nameOf);

} // namespace lathe::emulator
