//===- LLMDialect.cpp - types, attributes, weight expressions --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "dialects/LLM/LLM.h"
#include "lathe/weights/Storage.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace lathe::llm;

#include "dialects/LLM/LLMDialect.cpp.inc"
#include "dialects/LLM/LLMEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/LLM/LLMTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/LLM/LLMAttrs.cpp.inc"

static_assert(int(Storage::q4_0) == int(lathe::StorageType::q4_0) && int(Storage::iq4_nl) == int(lathe::StorageType::iq4_nl) &&
              int(Storage::int4z_g128) == int(lathe::StorageType::int4z_g128) && int(Storage::e4m3) == int(lathe::StorageType::e4m3));

void LLMDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/LLM/LLMOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/LLM/LLMTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/LLM/LLMAttrs.cpp.inc"
      >();
}

Storage lathe::llm::storageOf(Type tensor) {
  Type element = cast<RankedTensorType>(tensor).getElementType();
  if (auto q = dyn_cast<QType>(element)) return q.getStorage();
  if (element.isF16()) return Storage::f16;
  if (element.isBF16()) return Storage::bf16;
  return Storage::f32;
}

Type lathe::llm::elementType(MLIRContext *context, Storage s) {
  switch (s) {
  case Storage::f32: return Float32Type::get(context);
  case Storage::f16: return Float16Type::get(context);
  case Storage::bf16: return BFloat16Type::get(context);
  default: return QType::get(context, s);
  }
}

/// Elements that one block of |s| covers along the last dimension.
static int64_t blockElements(Storage s) {
  switch (s) {
  case Storage::f32: case Storage::f16: case Storage::bf16: case Storage::int8: case Storage::e4m3: return 1;
  case Storage::q2_k: case Storage::q3_k: case Storage::q4_k: case Storage::q5_k: case Storage::q6_k: return 256;
  case Storage::int4_g64: case Storage::int4z_g64: return 64;
  case Storage::int4_g128: case Storage::int4z_g128: return 128;
  default: return 32;
  }
}

FailureOr<ExpressionType> lathe::llm::inferExpression(Attribute expression,
                                                      llvm::function_ref<InFlightDiagnostic()> emitError) {
  auto leaf = [&](ArrayRef<int64_t> shape, Storage storage) -> FailureOr<ExpressionType> {
    if (shape.empty() || shape.size() > 2 || llvm::any_of(shape, [](int64_t d) { return d <= 0; }))
      return emitError() << "expected a weight of 1 or 2 positive dimensions, found " << shape.size();
    if (shape.back() % blockElements(storage))
      return emitError() << "expected rows of a multiple of " << blockElements(storage) << " elements for "
                         << stringifyStorage(storage) << ", found " << shape.back();
    return ExpressionType{llvm::to_vector(shape), storage};
  };
  auto isFloat = [](Storage s) { return s == Storage::f32 || s == Storage::f16 || s == Storage::bf16; };
  return llvm::TypeSwitch<Attribute, FailureOr<ExpressionType>>(expression)
      .Case<FileAttr>([&](FileAttr a) { return leaf(a.getShape(), a.getStorage()); })
      .Case<NBitsAttr>([&](NBitsAttr a) -> FailureOr<ExpressionType> {
        if (a.getShape().size() != 2) return emitError() << "expected a matrix, found " << a.getShape().size() << " axes";
        // Where no group fits the columns, the type of whole blocks says what they should be.
        auto storage = nbitsStorage(static_cast<int>(a.getBits()), a.getShape()[1], a.getBlock(), !a.getZeros().empty());
        if (!storage) storage = nbitsStorage(static_cast<int>(a.getBits()), a.getBlock(), !a.getZeros().empty());
        if (!storage)
          return emitError() << "expected a matrix of 4 bits in blocks of 32, 64 or 128, or of 8 bits in blocks of 32 without zero points";
        return leaf(a.getShape(), static_cast<Storage>(*storage));
      })
      .Case<QDQAttr>([&](QDQAttr a) -> FailureOr<ExpressionType> {
        bool bytes = a.getCode() == "int8" || a.getCode() == "uint8";
        if (!bytes && a.getCode() != "int4" && a.getCode() != "uint4") return emitError() << "expected codes of int8, uint8, int4 or uint4, found '" << a.getCode() << "'";
        if (a.getShape().size() != 2 || a.getBlock().size() != 2 || a.getBlock()[0] < 1 || a.getBlock()[1] < 1 || (a.getRowAxis() != 0 && a.getRowAxis() != 1))
          return emitError() << "expected a matrix whose rows are on axis 0 or 1, and two positive blocks";
        int64_t middle = a.getCode() == "uint8" ? 128 : a.getCode() == "uint4" ? 8 : 0;
        bool zeros = !a.getZeros().empty() || a.getZeroValues().asArrayRef() != ArrayRef<int64_t>(middle);
        StorageType made = qdqStorage(bytes ? 8 : 4, a.getShape()[1], a.getBlock()[1 - a.getRowAxis()], zeros);
        if (a.getStorage() != Storage::f32 && a.getStorage() != static_cast<Storage>(made))
          return emitError() << "expected f32" << (made == StorageType::f32 ? "" : " or ") << (made == StorageType::f32 ? "" : stringifyStorage(static_cast<Storage>(made)))
                             << " for these codes, found " << stringifyStorage(a.getStorage());
        return leaf(a.getShape(), a.getStorage());
      })
      .Case<ScaledAttr>([&](ScaledAttr a) -> FailureOr<ExpressionType> {
        if (a.getShape().size() != 2 || !isFloat(a.getScaleStorage())) return emitError() << "expected a matrix of e4m3 with scales of f32, f16 or bf16";
        return leaf(a.getShape(), Storage::e4m3);
      })
      .Case<SyntheticAttr>([&](SyntheticAttr a) { return leaf(a.getShape(), a.getStorage()); })
      .Case<DenseElementsAttr>([&](DenseElementsAttr a) -> FailureOr<ExpressionType> {
        if (!a.getElementType().isF32()) return emitError() << "expected a constant of f32, found " << a.getElementType();
        return leaf(a.getType().getShape(), Storage::f32);
      })
      .Case<ConcatAttr>([&](ConcatAttr a) -> FailureOr<ExpressionType> {
        if (a.getParts().empty()) return emitError() << "expected at least one part in a concat";
        FailureOr<ExpressionType> all;
        for (Attribute part : a.getParts()) {
          auto type = inferExpression(part, emitError);
          if (failed(type)) return failure();
          if (failed(all)) {
            all = type;
            continue;
          }
          if (type->storage != all->storage || type->shape.size() != all->shape.size() ||
              ArrayRef(type->shape).drop_front() != ArrayRef(all->shape).drop_front())
            return emitError() << "parts of a concat differ in storage or width";
          all->shape[0] += type->shape[0];
        }
        return all;
      })
      .Case<InterleaveAttr>([&](InterleaveAttr a) -> FailureOr<ExpressionType> {
        auto first = inferExpression(a.getFirst(), emitError), second = inferExpression(a.getSecond(), emitError);
        if (failed(first) || failed(second)) return failure();
        if (first->storage != second->storage || first->shape != second->shape)
          return emitError() << "parts of an interleave differ in storage or shape";
        if (a.getBlock() <= 0) return emitError() << "expected a positive interleave block, found " << a.getBlock();
        first->shape[0] = (first->shape[0] + a.getBlock() - 1) / a.getBlock() * a.getBlock() * 2;
        return first;
      })
      .Case<UnropeAttr>([&](UnropeAttr a) -> FailureOr<ExpressionType> {
        auto type = inferExpression(a.getSource(), emitError);
        if (failed(type)) return failure();
        if (a.getHeads() <= 0 || type->shape[0] % (2 * a.getHeads()))
          return emitError() << "expected rows that divide into " << a.getHeads() << " heads of even size, found " << type->shape[0];
        return type;
      })
      .Case<SliceAttr>([&](SliceAttr a) -> FailureOr<ExpressionType> {
        auto type = inferExpression(a.getSource(), emitError);
        if (failed(type)) return failure();
        if (a.getBegin() < 0 || a.getEnd() <= a.getBegin() || a.getEnd() > type->shape[0])
          return emitError() << "slice " << a.getBegin() << " .. " << a.getEnd() << " is outside " << type->shape[0] << " rows";
        type->shape[0] = a.getEnd() - a.getBegin();
        return type;
      })
      .Case<ColumnsAttr>([&](ColumnsAttr a) -> FailureOr<ExpressionType> {
        auto type = inferExpression(a.getSource(), emitError);
        if (failed(type)) return failure();
        if (type->shape.size() != 2 || !isFloat(type->storage)) return emitError() << "expected an unquantized matrix to take columns of";
        if (a.getBegin() < 0 || a.getEnd() <= a.getBegin() || a.getEnd() > type->shape[1])
          return emitError() << "columns " << a.getBegin() << " .. " << a.getEnd() << " are outside " << type->shape[1] << " columns";
        type->shape[1] = a.getEnd() - a.getBegin();
        return type;
      })
      .Case<TransposeAttr>([&](TransposeAttr a) -> FailureOr<ExpressionType> {
        auto type = inferExpression(a.getSource(), emitError);
        if (failed(type)) return failure();
        if (type->shape.size() != 2 || !isFloat(type->storage))
          return emitError() << "expected an unquantized matrix to transpose";
        std::swap(type->shape[0], type->shape[1]);
        return type;
      })
      .Case<AddOneAttr>([&](AddOneAttr a) -> FailureOr<ExpressionType> {
        auto type = inferExpression(a.getSource(), emitError);
        if (failed(type)) return failure();
        if (!isFloat(type->storage)) return emitError() << "expected an unquantized weight to add one to";
        type->storage = Storage::f32;
        return type;
      })
      .Case<RoundAttr>([&](RoundAttr a) -> FailureOr<ExpressionType> {
        auto type = inferExpression(a.getSource(), emitError);
        if (failed(type)) return failure();
        return leaf(type->shape, a.getStorage());
      })
      .Default([&](Attribute a) -> FailureOr<ExpressionType> {
        return emitError() << "expected a weight expression, found " << a;
      });
}

KVGroupOp lathe::llm::lookupGroup(Operation *from, FlatSymbolRefAttr group) {
  return SymbolTable::lookupNearestSymbolFrom<KVGroupOp>(from, group);
}

KVLayerAttr lathe::llm::lookupLayer(KVGroupOp group, int64_t layer) {
  if (layer < 0 || layer >= int64_t(group.getLayers().size())) return nullptr;
  return dyn_cast<KVLayerAttr>(group.getLayers()[layer]);
}
