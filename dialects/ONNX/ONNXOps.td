//===- ONNXOps.td - operations of the onnx dialect -----------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_ONNX_OPS_TD
#define LATHE_ONNX_OPS_TD

include "dialects/ONNX/ONNXDialect.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/BuiltinTypes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class ONNX_Op<string mnemonic, list<Trait> traits = []> : Op<ONNX_Dialect, mnemonic, traits>;

/// A tensor, or none for what is absent.
def ONNX_Value : AnyTypeOf<[AnyTensor, NoneType], "a tensor or none">;

def ONNX_NodeOp : ONNX_Op<"op", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "a node of the graph";
  let description = [{
    Applies version `version` (the operator set that introduced it) of operator `op_type` of `domain` ("" is the standard's). Absent
    optional inputs are `onnx.none`; an absent output in the middle has type none and no use. Attributes of the node are in
    `attrs`; those that are graphs are regions, ended by `onnx.yield`, that see the values around them: If has the then branch first.

    The verifier consults the table of operators: the version exists, arity and attributes fit.

    Example:
    ```mlir
    func.func @main(%a: tensor<?x4xf32>, %b: tensor<4x2xf32>) -> tensor<?x2xf32> {
      %c = onnx.op "MatMul"(%a, %b) {version = 13 : i64} : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
      return %c : tensor<?x2xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$op_type, Variadic<ONNX_Value>:$inputs, DefaultValuedAttr<StrAttr, "\"\"">:$domain, I64Attr:$version,
                       DefaultValuedAttr<DictionaryAttr, "{}">:$attrs);
  let results = (outs Variadic<ONNX_Value>:$outputs);
  let regions = (region VariadicRegion<AnyRegion>:$bodies);
  let assemblyFormat = "$op_type `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs) ($bodies^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// An attribute of the node, or null.
    mlir::Attribute getNodeAttr(llvm::StringRef name) { return getAttrs().get(name); }
    int64_t getInt(llvm::StringRef name, int64_t fallback);
    double getFloat(llvm::StringRef name, double fallback);
    llvm::StringRef getString(llvm::StringRef name, llvm::StringRef fallback);
    /// Empty when absent.
    llvm::ArrayRef<int64_t> getInts(llvm::StringRef name);
    /// Input |i|; null when it is absent.
    mlir::Value input(unsigned i);
  }];
}

def ONNX_NoneOp : ONNX_Op<"none", [Pure]> {
  let summary = "an absent optional input";
  let description = "Example: `%n = onnx.none : none`.";
  let results = (outs NoneType:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def ONNX_ConstantOp : ONNX_Op<"constant", [Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "a small constant tensor";
  let description = [{
    At most 64 KiB; larger ones are `onnx.weight`. Example: `%c = onnx.constant dense<[1, 2]> : tensor<2xi64>`.
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$value attr-dict";
}

def ONNX_ParamOp : ONNX_Op<"param", [Symbol]> {
  let summary = "declare a weight by reference";
  let description = [{
    Names the bytes of an initializer or of a large constant: a `#onnx.file`, or the values themselves where the model's file does not hold them
    as raw data.

    Example: `onnx.param @w : tensor<4x2xf32> = #onnx.file<"model.onnx.data", 0, 32>`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, AnyAttr:$value, TypeAttr:$type);
  let assemblyFormat = "$sym_name `:` $type `=` $value attr-dict";
  let hasVerifier = 1;
}

def ONNX_WeightOp : ONNX_Op<"weight", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value of a param";
  let description = "The tensor that `onnx.param` declares; the types must be equal. Example: `%w = onnx.weight @w : tensor<4x2xf32>`.";
  let arguments = (ins FlatSymbolRefAttr:$param);
  let results = (outs AnyTensor:$result);
  let assemblyFormat = "$param attr-dict `:` type($result)";
}

def ONNX_YieldOp : ONNX_Op<"yield", [Pure, Terminator, ReturnLike, HasParent<"NodeOp">]> {
  let summary = "outputs of a subgraph";
  let description = "Ends a region of `onnx.op`.";
  let arguments = (ins Variadic<ONNX_Value>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

#endif
