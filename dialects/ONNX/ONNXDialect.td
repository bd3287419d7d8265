//===- ONNXDialect.td - the onnx dialect ---------------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_ONNX_DIALECT_TD
#define LATHE_ONNX_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def ONNX_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::lathe::onnx";
  let summary = "an ONNX graph as it was imported";
  let description = [{
    One function `main` whose body is the graph: a generic op for every node, constants, and weights by reference. Operators are rows of a table
    (lathe/ONNX/Operators.h), not classes. Functions of the model are inlined; subgraphs are regions. See Rationale.md.

    The arguments and results of `main` carry `onnx.name` and, for named sizes, `onnx.dims` (a list of names, "" for a size
    that has none). The module carries `onnx.model`: producer, ir_version, path; and `onnx.config` and
    `onnx.genai_config`, the texts of config.json and genai_config.json when they lie beside the model.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasConstantMaterializer = 0;
}

def ONNX_AnyType : TypeDef<ONNX_Dialect, "Any"> {
  let mnemonic = "any";
  let summary = "an element type that is not inferred yet";
}

def ONNX_StringType : TypeDef<ONNX_Dialect, "String"> {
  let mnemonic = "string";
  let summary = "an element of a tensor of strings";
}

def ONNX_FileAttr : AttrDef<ONNX_Dialect, "File"> {
  let mnemonic = "file";
  let summary = "bytes of a file: a tensor's elements in row-major order";
  let description = [{
    `#onnx.file<"model.onnx.data", 4096, 2304>`: path, offset, bytes. Little-endian; types below 8 bits are packed from the low
    bits up. The reader has checked that the file is long enough.
  }];
  let parameters = (ins StringRefParameter<"path">:$path, "int64_t":$offset, "int64_t":$bytes);
  let assemblyFormat = "`<` $path `,` $offset `,` $bytes `>`";
}

#endif
