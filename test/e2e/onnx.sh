#!/bin/bash
# ONNX exports of tiny models of every family, compiled: their logits are onnxruntime's, for a prompt and for single tokens with the cache.
# One export of a family is compiled: ONNXRaiseTest shows that all float ones are the same module, and that of the safetensors.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/onnx
FIXTURES=test/fixtures/onnx
mkdir -p "$WORK"

# compare MODEL NAME TOKENS EXPECTED LIMIT
compare() {
  "$BUILD/bin/lathe" compile "$1" -o "$WORK/$2.lathe" --target native --activations f32 --kv f32 2>"$WORK/$2.log" || { cat "$WORK/$2.log" >&2; fail "$2 does not compile"; }
  if grep -q 'general code' "$WORK/$2.log"; then fail "$2 is not raised: $(cat "$WORK/$2.log")"; fi
  for chunk in 33 1; do
    # shellcheck disable=SC2046 # a list of tokens
    "$BUILD/test/e2e/CompareLogits" --chunk $chunk "$WORK/$2.lathe" "$4" "$5" $(tr -d '[],' <"$3") >&2 || fail "$2 differs from onnxruntime with $chunk tokens a step"
  done
}

say "ONNX: exports of tiny models against onnxruntime"
families=0
for family in "$FIXTURES"/*/; do
  name=$(basename "$family")
  model=$(find "$family" -name model.onnx -not -path '*int4*' | sort | head -1)
  [ -n "$model" ] || continue
  compare "$model" "$name" "$family/tokens.json" "$family/expected.f32" 2e-4
  families=$((families + 1))
  # Block-quantized exports: compiled, they are what the interpreter computes with the same weights.
  for model in "$family"/*int4*/model.onnx; do
    [ -f "$model" ] || continue
    "$BUILD/bin/lathe-import" "$model" | "$BUILD/bin/lathe-opt" --onnx-raise "--llm-set-kv=key=f32 value=f32" -o "$WORK/$name.mlir" || fail "$model is not raised"
    "$BUILD/bin/lathe-interp" "$WORK/$name.mlir" --tokens "$(tr -d '[] ' <"$family/tokens.json")" --raw "$WORK/$name-int4.f32"
    compare "$model" "$name-int4" "$family/tokens.json" "$WORK/$name-int4.f32" 1e-4
  done
done
[ $families -ge 8 ] || fail "expected exports of 8 models, found $families"
