//===- Decode.cpp - from PTX text to executable instructions ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Memory.h"
#include <algorithm>
#include <cstdarg>
#include <cstring>

namespace lathe::emulator {
namespace {
constexpr size_t kMaxCode = 4'000'000;         // instructions after inlining
constexpr uint64_t kMaxRegisterBytes = 256u << 20; // of one warp
constexpr uint64_t kMaxLocal = 1u << 20;       // bytes of one lane
constexpr unsigned kMaxCallDepth = 64;

std::string canonical(std::string_view opcode) {
  // ".rn" is what arithmetic does without a modifier, and there is one kind of division of integers.
  static constexpr std::string_view arithmetic[] = {"add", "sub", "mul", "fma", "mad", "div", "sqrt", "rcp"};
  std::string_view mnemonic = opcode.substr(0, opcode.find('.'));
  std::string key(opcode);
  if (std::find(std::begin(arithmetic), std::end(arithmetic), mnemonic) != std::end(arithmetic))
    if (size_t at = key.find(".rn."); at != key.npos) key.erase(at, 3);
  return key;
}
} // namespace

// --- modifiers ---
Modifiers::Modifiers(std::string_view opcode) {
  while (true) {
    size_t dot = opcode.find('.');
    parts.push_back(opcode.substr(0, dot));
    if (dot == opcode.npos) break;
    opcode.remove_prefix(dot + 1);
  }
  taken.assign(parts.size(), false);
  taken[0] = true;
}
bool Modifiers::take(std::string_view name) {
  for (size_t index = 1; index < parts.size(); ++index)
    if (!taken[index] && parts[index] == name) return taken[index] = true;
  return false;
}
std::string_view Modifiers::takeAny(std::initializer_list<std::string_view> names) {
  for (std::string_view name : names)
    if (take(name)) return name;
  return {};
}
bool Modifiers::has(std::string_view name) const {
  return std::find(parts.begin() + 1, parts.end(), name) != parts.end();
}
Type Modifiers::takeType() {
  for (size_t index = 1; index < parts.size(); ++index)
    if (Type type = typeNamed(parts[index]); !taken[index] && type != Type::none) {
      taken[index] = true;
      return type;
    }
  return Type::none;
}
std::string_view Modifiers::rest() const {
  for (size_t index = 1; index < parts.size(); ++index)
    if (!taken[index]) return parts[index];
  return {};
}
std::string_view Modifiers::takeNext() {
  for (size_t index = 1; index < parts.size(); ++index)
    if (!taken[index]) {
      taken[index] = true;
      return parts[index];
    }
  return {};
}

const OpTable &opTable() {
  static const OpTable table = [] {
    OpTable made;
    addIntegerOps(made);
    addWideIntegerOps(made);
    addFloatOps(made);
    addHalfOps(made);
    addCompareOps(made);
    addConvertOps(made);
    addApproximateOps(made);
    addMoveOps(made);
    addMemoryOps(made);
    addAtomicOps(made);
    addWarpOps(made);
    addControlOps(made);
    addMatrixOps(made);
    addWmmaOps(made);
    addWgmmaOps(made);
    addCopyOps(made);
    addBulkOps(made);
    addMbarrierOps(made);
    return made;
  }();
  return table;
}

const char *opClassName(OpClass opClass) {
  static constexpr const char *names[kOpClasses] = {"integer", "float", "convert", "move", "control", "load", "store", "shared load",
                                                    "shared store", "atomic", "barrier", "warp", "matrix", "async", "other"};
  return names[static_cast<unsigned>(opClass)];
}

std::string_view Program::layerOf(uint32_t line) const {
  std::string_view name;
  for (const ParsedModule::Layer &layer : module->layers) {
    if (layer.line > line) break;
    name = layer.name;
  }
  return name;
}

// --- errors ---
Status Decoder::error(const char *format, ...) const {
  char text[400];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  std::string_view opcode = current ? current->opcode : std::string_view("function");
  return makeError(StatusCode::invalidArgument, "ptx line %u: %.*s: %s", line, static_cast<int>(opcode.size()), opcode.data(), text);
}
Status Decoder::require(unsigned capability, const char *what) const {
  if (target >= capability) return {};
  return error("%s needs sm_%u, the module's target is %.*s", what, capability, static_cast<int>(module.target.size()), module.target.data());
}
Status Decoder::requireFeature(unsigned capability, const char *what) const {
  if (target == capability && targetFeature == 'a') return {};
  return error("%s needs target sm_%ua, the module's target is %.*s", what, capability, static_cast<int>(module.target.size()), module.target.data());
}
Status Decoder::operandCount(const Instruction &text, size_t least, size_t most) const {
  if (text.operands.size() >= least && text.operands.size() <= most) return {};
  return error("expected %zu to %zu operands, found %zu", least, most, text.operands.size());
}

Status Decoder::readTarget() {
  std::string_view text = module.target;
  if (text.substr(0, 3) != "sm_") return makeError(StatusCode::invalidArgument, "expected a target such as sm_80, found '%.*s'", static_cast<int>(text.size()), text.data());
  text.remove_prefix(3);
  target = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9' && target < 1000) {
    target = target * 10 + static_cast<unsigned>(text[0] - '0');
    text.remove_prefix(1);
  }
  targetFeature = text.empty() ? 0 : text[0];
  bool fits = target <= options.capability;
  if (targetFeature == 'a') fits = target == options.capability && options.feature == 'a';
  if (targetFeature == 'f') fits = target / 10 == options.capability / 10 && fits;
  if (!fits)
    return makeError(StatusCode::failedPrecondition, "the module's target is %.*s, the emulated device is sm_%u%s",
                     static_cast<int>(module.target.size()), module.target.data(), options.capability, options.feature == 'a' ? "a" : "");
  return {};
}

// --- slots ---
uint32_t Decoder::newSlot(Type type) {
  if (type == Type::pred) return program.predicates++;
  unsigned bits = typeBits(type);
  uint32_t slot = program.registerBytes;
  wholeSize += bits <= 32 ? 128 : bits <= 64 ? 256 : 512;
  program.registerBytes = static_cast<uint32_t>(std::min<uint64_t>(wholeSize, UINT32_MAX));
  return slot;
}
uint32_t Decoder::constant(uint64_t value, bool wide) {
  auto &map = wide ? constants64 : constants32;
  if (!wide) value &= 0xffffffffu;
  auto [entry, inserted] = map.emplace(value, 0);
  if (inserted) {
    entry->second = newSlot(wide ? Type::b64 : Type::b32);
    program.constants.push_back({entry->second, wide, value});
  }
  return entry->second;
}
void Decoder::noteUse(uint32_t slot, bool predicate, bool write) { pendingUses.push_back({slot, predicate, write}); }

const Decoder::Register *Decoder::lookup(std::string_view name) {
  for (int index = static_cast<int>(scope); index >= 0; index = frame->function->scopes[index].parent) {
    auto &known = frame->registers[index];
    if (auto found = known.find(name); found != known.end()) return &found->second;
    const auto &declared = frame->function->scopes[index].registers;
    const RegisterDecl *declaration = nullptr;
    if (auto found = declared.find(name); found != declared.end() && found->second.count == 0) declaration = &found->second;
    if (!declaration) {
      // %r12 of ".reg .b32 %r<20>"
      size_t digits = name.size();
      while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        --digits;
      for (size_t split = digits; split < name.size() && !declaration; ++split) {
        auto found = declared.find(name.substr(0, split));
        if (found == declared.end() || found->second.count == 0) continue;
        std::string_view number = name.substr(split);
        if (number.size() > 8 || (number.size() > 1 && number[0] == '0')) continue;
        uint64_t value = 0;
        for (char digit : number)
          value = value * 10 + static_cast<uint64_t>(digit - '0');
        if (value < found->second.count) declaration = &found->second;
      }
    }
    if (declaration) {
      Register made{newSlot(declaration->type), declaration->type, name};
      slotNames.emplace(uint64_t(made.slot) << 1 | (made.type == Type::pred), name);
      return &known.emplace(name, made).first->second;
    }
  }
  return nullptr;
}
bool Decoder::isRegister(const Operand &operand) const {
  return operand.kind == Operand::Kind::name && const_cast<Decoder *>(this)->lookup(operand.name) != nullptr;
}

unsigned Decoder::registerBits(const Operand &operand) const {
  if (operand.kind != Operand::Kind::name) return 0;
  const Register *reg = const_cast<Decoder *>(this)->lookup(operand.name);
  return reg ? typeBits(reg->type) : 0;
}

bool Decoder::isEntryParameter(const Operand &operand) const {
  if (!frame->function->entry) return false;
  if (const_cast<Decoder *>(this)->localOffset(operand.name)) return false;
  return true;
}

bool Decoder::special(std::string_view name, Type type, uint32_t &slot) {
  struct Entry { std::string_view name; Special special; };
  static constexpr Entry entries[] = {
      {"%tid.x", Special::tidX}, {"%tid.y", Special::tidY}, {"%tid.z", Special::tidZ}, {"%ntid.x", Special::ntidX}, {"%ntid.y", Special::ntidY},
      {"%ntid.z", Special::ntidZ}, {"%ctaid.x", Special::ctaidX}, {"%ctaid.y", Special::ctaidY}, {"%ctaid.z", Special::ctaidZ},
      {"%nctaid.x", Special::nctaidX}, {"%nctaid.y", Special::nctaidY}, {"%nctaid.z", Special::nctaidZ}, {"%laneid", Special::laneid},
      {"%warpid", Special::warpid}, {"%nwarpid", Special::nwarpid}, {"%smid", Special::smid}, {"%nsmid", Special::nsmid},
      {"%lanemask_eq", Special::lanemaskEq}, {"%lanemask_le", Special::lanemaskLe}, {"%lanemask_lt", Special::lanemaskLt},
      {"%lanemask_ge", Special::lanemaskGe}, {"%lanemask_gt", Special::lanemaskGt}, {"%gridid", Special::gridid},
      {"%dynamic_smem_size", Special::dynamicSmem}, {"%total_smem_size", Special::totalSmem}, {"WARP_SZ", Special::warpSize},
      {"%clusterid.x", Special::clusterX}, {"%clusterid.y", Special::clusterY}, {"%clusterid.z", Special::clusterZ},
      {"%nclusterid.x", Special::nclusterX}, {"%nclusterid.y", Special::nclusterY}, {"%nclusterid.z", Special::nclusterZ},
      {"%cluster_ctaid.x", Special::clusterCtaX}, {"%cluster_ctaid.y", Special::clusterCtaY}, {"%cluster_ctaid.z", Special::clusterCtaZ},
      {"%cluster_nctaid.x", Special::clusterNctaX}, {"%cluster_nctaid.y", Special::clusterNctaY}, {"%cluster_nctaid.z", Special::clusterNctaZ},
      {"%cluster_ctarank", Special::clusterRank}, {"%cluster_nctarank", Special::clusterSize},
      {"%is_explicit_cluster", Special::isExplicitCluster}};
  if (name == "%envreg1" || name == "%envreg2") {
    // Where cooperative_groups finds the workspace of a grid's barrier: high and low half of its address.
    auto workspace = addressOf("%envreg");
    if (!workspace) return false;
    slot = constant(name == "%envreg1" ? *workspace >> 32 : *workspace & 0xffffffffu, typeBits(type) == 64);
    return true;
  }
  for (const Entry &entry : entries)
    if (entry.name == name) {
      bool wide = typeBits(type) == 64;
      auto [known, inserted] = specialSlots.emplace(uint64_t(entry.special) << 1 | wide, 0);
      if (inserted) {
        known->second = newSlot(entry.special == Special::isExplicitCluster ? Type::pred : wide ? Type::b64 : Type::b32);
        program.specials.push_back({known->second, entry.special, wide});
      }
      slot = known->second;
      return true;
    }
  return false;
}

uint32_t Decoder::allocateLocal(uint64_t bytes, uint64_t align) {
  uint64_t start = (program.localBytes + align - 1) / align * align;
  // The limit is checked once after the function; here the sum must not wrap.
  program.localBytes = static_cast<uint32_t>(std::min<uint64_t>(start + std::min<uint64_t>(bytes, 1u << 30), 1u << 30));
  return static_cast<uint32_t>(start);
}
std::optional<uint32_t> Decoder::localOffset(std::string_view name) {
  for (int index = static_cast<int>(scope); index >= 0; index = frame->function->scopes[index].parent) {
    auto &known = frame->locals[index];
    if (auto found = known.find(name); found != known.end()) return found->second;
    const auto &variables = frame->function->scopes[index].variables;
    auto found = variables.find(name);
    if (found == variables.end()) continue;
    if (found->second.space != Space::local && found->second.space != Space::param) return std::nullopt;
    uint32_t offset = allocateLocal(found->second.bytes, found->second.align);
    known.emplace(name, offset);
    return offset;
  }
  if (auto bound = frame->bindings.find(name); bound != frame->bindings.end()) return bound->second;
  return std::nullopt;
}
Status Decoder::sharedOffset(const Variable &variable, uint64_t &offset) {
  if (variable.open) {
    program.dynamicAlign = std::max<uint32_t>(program.dynamicAlign, static_cast<uint32_t>(variable.align));
    offset = UINT64_MAX; // known when all static variables have their place
    return {};
  }
  auto [entry, inserted] = sharedPlaces.emplace(&variable, 0);
  if (inserted) {
    uint64_t start = (program.staticShared + variable.align - 1) / variable.align * variable.align;
    if (variable.bytes > (1u << 20) || start + variable.bytes > (1u << 20)) return error("more than 1 MiB of shared memory");
    entry->second = static_cast<uint32_t>(start);
    program.staticShared = static_cast<uint32_t>(start + variable.bytes);
  }
  offset = kSharedBase + entry->second;
  return {};
}

/// Address of a variable; UINT64_MAX for dynamic shared memory.
Status Decoder::symbol(const Operand &operand, uint64_t &value) {
  if (auto local = localOffset(operand.name)) {
    value = kSharedBase + *local;
    return {};
  }
  for (int index = static_cast<int>(scope); index >= 0; index = frame->function->scopes[index].parent) {
    const auto &variables = frame->function->scopes[index].variables;
    if (auto found = variables.find(operand.name); found != variables.end()) {
      if (found->second.space == Space::shared) return sharedOffset(found->second, value);
      return error("variable '%.*s' inside a function is not modelled in this state space", static_cast<int>(operand.name.size()), operand.name.data());
    }
  }
  if (frame->function->entry)
    for (const Parameter &parameter : program.parameters)
      if (parameter.name == operand.name) {
        value = kParamWindow + parameter.offset;
        return {};
      }
  if (auto found = module.variableIndex.find(operand.name); found != module.variableIndex.end()) {
    const Variable &variable = module.variables[found->second];
    if (variable.space == Space::shared) return sharedOffset(variable, value);
    if (auto address = addressOf(operand.name)) {
      value = *address;
      return {};
    }
  }
  return error("unknown operand '%.*s'", static_cast<int>(operand.name.size()), operand.name.data());
}

Status Decoder::source(const Operand &operand, Type type, uint32_t &slot) {
  bool wide = false;
  LATHE_RETURN_IF_ERROR(sourceRelaxed(operand, type, slot, wide));
  if (wide != (typeBits(type) == 64)) return error("register '%.*s' has another size than .%s", static_cast<int>(operand.name.size()), operand.name.data(), typeName(type));
  return {};
}
Status Decoder::sourceRelaxed(const Operand &operand, Type type, uint32_t &slot, bool &wide) {
  bool predicate = type == Type::pred;
  wide = typeBits(type) == 64;
  switch (operand.kind) {
  case Operand::Kind::name: {
    if (const Register *reg = lookup(operand.name)) {
      if ((reg->type == Type::pred) != predicate) return error("operand '%.*s' must%s be a predicate", static_cast<int>(operand.name.size()), operand.name.data(), predicate ? "" : " not");
      if (operand.value != 0) return error("a register cannot have an offset here");
      if (!predicate && typeBits(reg->type) < typeBits(type)) return error("register '%.*s' is narrower than .%s", static_cast<int>(operand.name.size()), operand.name.data(), typeName(type));
      if (typeBits(reg->type) > 64 && typeBits(type) <= 64) return error("register '%.*s' has another size than .%s", static_cast<int>(operand.name.size()), operand.name.data(), typeName(type));
      slot = reg->slot;
      wide = typeBits(reg->type) == 64;
      noteUse(slot, predicate, false);
      if (operand.negated) {
        Inst invert;
        invert.run = opTable().simple.at("not.pred").run;
        invert.d = newSlot(Type::pred);
        invert.s[0] = slot;
        invert.counted = false;
        std::vector<SlotUse> saved;
        std::swap(saved, pendingUses);
        append(invert, *current);
        std::swap(saved, pendingUses);
        slot = invert.d;
      }
      return {};
    }
    if (operand.negated) return error("unknown predicate '%.*s'", static_cast<int>(operand.name.size()), operand.name.data());
    if (!predicate && special(operand.name, type, slot)) return {};
    if (predicate && special(operand.name, type, slot)) return {};
    uint64_t value = 0;
    LATHE_RETURN_IF_ERROR(symbol(operand, value));
    if (predicate) return error("operand must be a predicate");
    if (value == UINT64_MAX) {
      slot = newSlot(wide ? Type::b64 : Type::b32);
      dynamicConstants.push_back(static_cast<uint32_t>(program.constants.size()));
      program.constants.push_back({slot, wide, operand.value});
    } else {
      slot = constant(value + operand.value, wide);
    }
    return {};
  }
  case Operand::Kind::integer:
    if (predicate) {
      // LLVM writes true as -1.
      if (operand.value > 1 && ~operand.value) return error("a constant predicate must be 0, 1 or -1");
      slot = newSlot(Type::pred);
      program.constants.push_back({slot | 0x80000000u, false, operand.value ? 0xffffffffu : 0u});
      return {};
    }
    slot = constant(operand.value, wide);
    return {};
  case Operand::Kind::single:
  case Operand::Kind::real: {
    if (predicate) return error("operand must be a predicate");
    uint64_t bits = operand.value;
    if (operand.kind == Operand::Kind::single && type == Type::f64) {
      float single;
      uint32_t low = static_cast<uint32_t>(bits);
      std::memcpy(&single, &low, 4);
      double value = single;
      std::memcpy(&bits, &value, 8);
    } else if (operand.kind == Operand::Kind::real && !wide) {
      double value;
      std::memcpy(&value, &bits, 8);
      float single = static_cast<float>(value);
      uint32_t low;
      std::memcpy(&low, &single, 4);
      bits = low;
    }
    slot = constant(bits, wide);
    return {};
  }
  default: return error("expected a register or a constant");
  }
}

Status Decoder::dest(const Operand &operand, Type type, uint32_t &slot) {
  bool wide = false;
  LATHE_RETURN_IF_ERROR(destRelaxed(operand, type, slot, wide));
  if (wide != (typeBits(type) == 64)) return error("register '%.*s' has another size than .%s", static_cast<int>(operand.name.size()), operand.name.data(), typeName(type));
  return {};
}
Status Decoder::destRelaxed(const Operand &operand, Type type, uint32_t &slot, bool &wide) {
  wide = typeBits(type) == 64;
  if (operand.kind == Operand::Kind::sink) {
    slot = newSlot(type);
    return {};
  }
  const Register *reg = operand.kind == Operand::Kind::name ? lookup(operand.name) : nullptr;
  if (!reg) return error("unknown register '%.*s'", static_cast<int>(operand.name.size()), operand.name.data());
  if ((reg->type == Type::pred) != (type == Type::pred)) return error("register '%.*s' must%s be a predicate", static_cast<int>(operand.name.size()), operand.name.data(), type == Type::pred ? "" : " not");
  if (type != Type::pred && (typeBits(reg->type) < typeBits(type) || (typeBits(reg->type) > 64 && typeBits(type) <= 64)))
    return error("register '%.*s' has another size than .%s", static_cast<int>(operand.name.size()), operand.name.data(), typeName(type));
  slot = reg->slot;
  wide = typeBits(reg->type) == 64;
  noteUse(slot, type == Type::pred, true);
  return {};
}

Status Decoder::address(const Operand &operand, Inst &inst, unsigned index) {
  if (operand.kind != Operand::Kind::address) return error("expected an address in brackets");
  inst.offset = static_cast<int64_t>(operand.value);
  if (operand.name.empty()) {
    inst.s[index] = constant(0, true);
    inst.addressWide = true;
    return {};
  }
  if (const Register *reg = lookup(operand.name)) {
    if (typeBits(reg->type) != 32 && typeBits(reg->type) != 64) return error("an address register has 32 or 64 bits");
    inst.s[index] = reg->slot;
    inst.addressWide = typeBits(reg->type) == 64;
    noteUse(reg->slot, false, false);
    return {};
  }
  Operand plain;
  plain.kind = Operand::Kind::name;
  plain.name = operand.name;
  inst.addressWide = true;
  return source(plain, Type::u64, inst.s[index]);
}

Status Decoder::addressValue(const Operand &operand, uint32_t &slot) {
  Inst move;
  LATHE_RETURN_IF_ERROR(address(operand, move, 0));
  const SimpleEntry &entry = opTable().simple.at(move.addressWide ? "lathe.address64" : "lathe.address32");
  move.run = entry.run;
  move.d = slot = newSlot(Type::b64);
  move.counted = false;
  std::vector<SlotUse> mine;
  std::swap(mine, pendingUses);
  // The check of the address register belongs to the move that reads it.
  if (!mine.empty() && !operand.name.empty()) {
    pendingUses.push_back(mine.back());
    if (lookup(operand.name)) mine.pop_back();
    else pendingUses.clear();
  }
  append(move, *current);
  std::swap(mine, pendingUses);
  return {};
}

Status Decoder::immediate(const Operand &operand, int64_t &value) {
  if (operand.kind != Operand::Kind::integer) return error("expected an integer constant");
  value = static_cast<int64_t>(operand.value);
  return {};
}

Status Decoder::sources(const Operand &vector, Type type, Inst &inst) {
  if (inst.extraCount == 0) inst.extra = static_cast<uint32_t>(program.operands.size());
  auto one = [&](const Operand &operand) {
    uint32_t slot = kNoSlot;
    LATHE_RETURN_IF_ERROR(source(operand, type, slot));
    program.operands.push_back(slot);
    ++inst.extraCount;
    return Status();
  };
  if (vector.kind != Operand::Kind::vector) return one(vector);
  for (const Operand &part : vector.parts)
    LATHE_RETURN_IF_ERROR(one(part));
  return {};
}
Status Decoder::dests(const Operand &vector, Type type, Inst &inst) {
  if (inst.extraCount == 0) inst.extra = static_cast<uint32_t>(program.operands.size());
  auto one = [&](const Operand &operand) {
    uint32_t slot = kNoSlot;
    LATHE_RETURN_IF_ERROR(dest(operand, type, slot));
    program.operands.push_back(slot);
    ++inst.extraCount;
    return Status();
  };
  if (vector.kind != Operand::Kind::vector) return one(vector);
  for (const Operand &part : vector.parts)
    LATHE_RETURN_IF_ERROR(one(part));
  return {};
}

// --- control flow ---
Status Decoder::label(const Operand &operand) {
  for (int index = static_cast<int>(scope); operand.kind == Operand::Kind::name && index >= 0; index = frame->function->scopes[index].parent) {
    const auto &labels = frame->function->scopes[index].labels;
    if (auto found = labels.find(operand.name); found != labels.end()) {
      frame->fixups.push_back({static_cast<uint32_t>(program.code.size()), found->second, -1});
      return {};
    }
  }
  return error("unknown label '%.*s'", static_cast<int>(operand.name.size()), operand.name.data());
}
Status Decoder::labels(const Operand &operand, Inst &inst) {
  for (int index = static_cast<int>(scope); index >= 0; index = frame->function->scopes[index].parent) {
    const auto &tables = frame->function->scopes[index].branchTargets;
    auto found = tables.find(operand.name);
    if (found == tables.end()) continue;
    inst.extra = static_cast<uint32_t>(program.operands.size());
    inst.extraCount = static_cast<uint32_t>(found->second.size());
    for (std::string_view name : found->second) {
      Operand target;
      target.kind = Operand::Kind::name;
      target.name = name;
      LATHE_RETURN_IF_ERROR(label(target));
      frame->fixups.back().operand = static_cast<int>(program.operands.size());
      program.operands.push_back(0);
    }
    return {};
  }
  return error("unknown branch targets '%.*s'", static_cast<int>(operand.name.size()), operand.name.data());
}
Status Decoder::returnFrom(Inst &inst) {
  if (frame->function->entry) {
    inst.flow = Flow::exit;
  } else {
    inst.flow = Flow::branch;
    frame->fixups.push_back({static_cast<uint32_t>(program.code.size()), static_cast<uint32_t>(frame->function->code.size()), -1});
  }
  return {};
}

Status Decoder::call(const Instruction &text) {
  // call (results), function, (parameters);
  const Operand *results = nullptr, *name = nullptr, *parameters = nullptr;
  for (const Operand &operand : text.operands) {
    if (operand.kind == Operand::Kind::name && !name) name = &operand;
    else if (operand.kind == Operand::Kind::list) (name ? parameters : results) = &operand;
    else return error("calls through a register are not modelled");
  }
  if (!name) return error("expected the name of a function");
  auto found = module.functionIndex.find(name->name);
  if (found == module.functionIndex.end()) return error("unknown function '%.*s'", static_cast<int>(name->name.size()), name->name.data());
  const Function &callee = module.functions[found->second];
  if (!callee.defined) return error("function '%.*s' has no definition in the module", static_cast<int>(name->name.size()), name->name.data());
  if (callee.entry) return error("a kernel cannot be called");
  for (const Frame *up = frame; up; up = up->parent)
    if (up->function == &callee) return error("recursion is not modelled");
  if (frame->depth + 1 > kMaxCallDepth) return error("calls are nested too deeply");

  Frame inner;
  inner.function = &callee;
  inner.parent = frame;
  inner.depth = frame->depth + 1;
  auto bind = [&](const std::vector<Variable> &formal, const Operand *actual) {
    size_t count = actual ? actual->parts.size() : 0;
    if (count != formal.size()) return error("'%.*s' has %zu parameters, found %zu", static_cast<int>(callee.name.size()), callee.name.data(), formal.size(), count);
    for (size_t index = 0; index < count; ++index) {
      const Operand &operand = actual->parts[index];
      auto offset = operand.kind == Operand::Kind::name ? localOffset(operand.name) : std::nullopt;
      if (!offset) return error("expected a .param variable as parameter %zu", index);
      inner.bindings[formal[index].name] = *offset;
    }
    return Status();
  };
  LATHE_RETURN_IF_ERROR(bind(callee.results, results));
  LATHE_RETURN_IF_ERROR(bind(callee.params, parameters));

  // A guarded call runs the body under a branch around it.
  uint32_t around = kNoSlot;
  if (!text.guard.empty()) {
    Inst skip;
    skip.flow = Flow::branch;
    Operand guard;
    guard.kind = Operand::Kind::name;
    guard.name = text.guard;
    LATHE_RETURN_IF_ERROR(source(guard, Type::pred, skip.guard));
    skip.guardXor = text.guardNegated ? 0 : ~0u;
    around = static_cast<uint32_t>(program.code.size());
    append(skip, text);
  }
  Frame *outer = frame;
  uint32_t outerScope = scope, outerLine = line;
  const Instruction *outerText = current;
  frame = &inner;
  Status status = function(inner);
  frame = outer;
  scope = outerScope;
  line = outerLine;
  current = outerText;
  LATHE_RETURN_IF_ERROR(std::move(status));
  if (around != kNoSlot) program.code[around].target = static_cast<uint32_t>(program.code.size());
  return {};
}

// --- instructions ---
void Decoder::append(Inst inst, const Instruction &text) {
  inst.info = static_cast<uint32_t>(program.infos.size());
  program.infos.push_back({text.line, text.sourceLine, text.sourceFile, text.opcode, opClass});
  Program::UseRange range{static_cast<uint32_t>(allUses.size()), static_cast<uint32_t>(pendingUses.size())};
  allUses.insert(allUses.end(), pendingUses.begin(), pendingUses.end());
  pendingUses.clear();
  useRanges.push_back(range);
  program.code.push_back(inst);
}

Status Decoder::simple(const SimpleEntry &entry, const Instruction &text, Inst &inst) {
  auto typeOf = [](char code) {
    switch (code) {
    case 'p': return Type::pred;
    case 'h': return Type::b16;
    case 'r': return Type::b32;
    case 'f': return Type::f32;
    case 'd': return Type::f64;
    default: return Type::b64;
    }
  };
  std::string_view signature = entry.signature;
  size_t results = signature.find('=');
  LATHE_RETURN_IF_ERROR(operandCount(text, signature.size() - 1, signature.size() - 1));
  inst.run = entry.run;
  for (size_t index = results + 1; index < signature.size(); ++index)
    LATHE_RETURN_IF_ERROR(source(text.operands[index - 1], typeOf(signature[index]), inst.s[index - results - 1]));
  if (results) LATHE_RETURN_IF_ERROR(dest(text.operands[0], typeOf(signature[0]), inst.d));
  return {};
}

Status Decoder::instruction(const Instruction &text) {
  line = text.line;
  current = &text;
  scope = text.scope;
  opClass = OpClass::other;
  handled = false;
  after.clear();
  pendingUses.clear();
  if (program.code.size() > kMaxCode) return error("more than %zu instructions after inlining", kMaxCode);
  if (wholeSize > kMaxRegisterBytes) return error("too many registers");
  if (text.opcode == "call" || text.opcode == "call.uni") {
    opClass = OpClass::control;
    return call(text);
  }
  Inst inst;
  if (!text.guard.empty()) {
    Operand guard;
    guard.kind = Operand::Kind::name;
    guard.name = text.guard;
    LATHE_RETURN_IF_ERROR(source(guard, Type::pred, inst.guard));
    inst.guardXor = text.guardNegated ? ~0u : 0;
  }
  const OpTable &table = opTable();
  if (auto found = table.simple.find(canonical(text.opcode)); found != table.simple.end()) {
    opClass = found->second.opClass;
    if (found->second.minCapability) LATHE_RETURN_IF_ERROR(require(found->second.minCapability, "the instruction"));
    LATHE_RETURN_IF_ERROR(simple(found->second, text, inst));
  } else {
    Modifiers mods(text.opcode);
    auto family = table.families.find(std::string(mods.mnemonic()));
    if (family == table.families.end()) return error("unknown instruction, or a combination of modifiers that is not modelled");
    opClass = family->second.opClass;
    if (family->second.minCapability) LATHE_RETURN_IF_ERROR(require(family->second.minCapability, "the instruction"));
    LATHE_RETURN_IF_ERROR(family->second.decode(*this, text, mods, inst));
    if (std::string_view rest = mods.rest(); !rest.empty())
      return error("modifier '.%.*s' is not modelled here", static_cast<int>(rest.size()), rest.data());
    if (handled) return {};
  }
  append(inst, text);
  for (Inst &extra : after) {
    extra.guard = inst.guard;
    extra.guardXor = inst.guardXor;
    append(extra, text);
  }
  return {};
}

Status Decoder::function(Frame &inner) {
  const Function &text = *inner.function;
  inner.registers.resize(text.scopes.size());
  inner.locals.resize(text.scopes.size());
  inner.pcs.resize(text.code.size() + 1);
  for (size_t index = 0; index < text.code.size(); ++index) {
    inner.pcs[index] = static_cast<uint32_t>(program.code.size());
    LATHE_RETURN_IF_ERROR(instruction(text.code[index]));
  }
  inner.pcs[text.code.size()] = static_cast<uint32_t>(program.code.size());
  for (const Frame::Fixup &fixup : inner.fixups) {
    uint32_t pc = inner.pcs[fixup.textIndex];
    if (fixup.operand >= 0) program.operands[static_cast<size_t>(fixup.operand)] = pc;
    else program.code[fixup.inst].target = pc;
  }
  return {};
}

void Decoder::noteGranule(Space space, unsigned bytes) {
  unsigned size = bytes >= 4 ? 4 : bytes;
  if (space != Space::global && space != Space::constant) program.sharedGranule = std::min(program.sharedGranule, size);
  if (space != Space::shared) program.globalGranule = std::min(program.globalGranule, size);
}

Result<Program> Decoder::run(const Function &text) {
  LATHE_RETURN_IF_ERROR(readTarget());
  line = text.line;
  program.name = std::string(text.name);
  program.module = &module;
  program.maxThreads = text.maxThreads;
  program.exactThreads = text.exactThreads;
  program.cluster = text.cluster;
  uint64_t offset = 0;
  for (const Variable &variable : text.params) {
    if (variable.bytes > 32764) return error("kernel parameters take at most 32764 bytes");
    offset = (offset + variable.align - 1) / variable.align * variable.align;
    program.parameters.push_back({variable.name, static_cast<uint32_t>(offset), static_cast<uint32_t>(variable.bytes), static_cast<uint32_t>(variable.align)});
    offset += variable.bytes;
    if (offset > 32764) return error("kernel parameters take at most 32764 bytes");
  }
  program.parameterBytes = static_cast<uint32_t>(offset);

  Frame outer;
  outer.function = &text;
  frame = &outer;
  LATHE_RETURN_IF_ERROR(function(outer));
  // Falling off the end of a kernel is an exit.
  Inst last;
  last.flow = Flow::exit;
  last.counted = false;
  Instruction closing;
  closing.opcode = "ret";
  closing.line = line;
  append(last, closing);
  if (program.localBytes > kMaxLocal) return error("more than 1 MiB of local memory for a thread");
  if (wholeSize > kMaxRegisterBytes) return error("too many registers");

  uint32_t dynamicStart = kSharedBase + (program.staticShared + program.dynamicAlign - 1) / program.dynamicAlign * program.dynamicAlign;
  for (uint32_t index : dynamicConstants)
    program.constants[index].value += dynamicStart;
  findJoins(program);
  findUnassigned(program, useRanges, allUses, asyncSlots, [&](uint32_t slot, bool predicate) {
    auto found = slotNames.find(uint64_t(slot) << 1 | predicate);
    return found == slotNames.end() ? std::string("a register") : std::string(found->second);
  });
  return std::move(program);
}

} // namespace lathe::emulator
