#!/bin/bash
# The ONNX project's own backend node tests, on the interpreter and as compiled code; the list of unsupported cases in the
# documentation is what they say. Then operators of com.microsoft, against onnxruntime. Some of both as kernels for a GPU, on the emulator.
# Last, exports rewritten to older operator sets, other positions and other masks, and damaged models: each compiles or is refused. LATHE_FULL=1: all cases on
# the emulator, all families rewritten, and more damaged models, instead.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/onnx-nodes
VERSION=1.23.0
mkdir -p "$WORK"
if [ ! -f "$WORK/cases-$VERSION-contrib" ]; then
  say "ONNX node tests: writing the cases of onnx $VERSION"
  python3 -m venv "$WORK/venv"
  "$WORK/venv/bin/pip" install -q --disable-pip-version-check "onnx==$VERSION" ml-dtypes==0.6.0 numpy==2.4.6 onnxruntime==1.32.0
  rm -rf "$WORK/node" "$WORK/contrib"
  "$WORK/venv/bin/python" test/onnx/make_contrib_tests.py "$WORK/contrib" >"$WORK/contrib.txt"
  "$WORK/venv/bin/python" -W ignore test/onnx/make_node_tests.py "$WORK/node" >"$WORK/cases-$VERSION-contrib.tmp"
  mv "$WORK/cases-$VERSION-contrib.tmp" "$WORK/cases-$VERSION-contrib"
fi
EVERY=12 MUTANTS=60 PHASE=raise VARIED=llama
if [ -n "${LATHE_FULL:-}" ]; then
  EVERY=1 MUTANTS=200 PHASE=package VARIED="llama qwen2 qwen3 gemma3 phi3 gpt2"
else
  say "ONNX node tests: $(cat "$WORK/cases-$VERSION-contrib"), interpreter and compiled"
  "$BUILD/bin/lathe-onnx-test" "$WORK/node" >"$WORK/results.txt" || { grep -P '\tfail' "$WORK/results.txt" | head -40 >&2; fail "$(tail -1 "$WORK/results.txt")"; }
  tail -1 "$WORK/results.txt" >&2
  python3 test/onnx/operator_list.py "$WORK/results.txt" docs/onnx-operators.md --check
  say "ONNX: $(cat "$WORK/contrib.txt"), interpreter and compiled"
  "$BUILD/bin/lathe-onnx-test" "$WORK/contrib" >"$WORK/contrib-results.txt" || { grep -P '\tfail' "$WORK/contrib-results.txt" | head -40 >&2; fail "$(tail -1 "$WORK/contrib-results.txt")"; }
  tail -1 "$WORK/contrib-results.txt" >&2
fi
say "ONNX: kernels for sm_80 on the emulator, one case of $EVERY"
for cases in node contrib; do
  "$BUILD/bin/lathe-onnx-test" --on=emulator --every=$EVERY "$WORK/$cases" >"$WORK/$cases-emulator.txt" || { grep -P '\tfail' "$WORK/$cases-emulator.txt" | head -40 >&2; fail "$(tail -1 "$WORK/$cases-emulator.txt")"; }
  tail -1 "$WORK/$cases-emulator.txt" >&2
done
say "ONNX: older operator sets, other positions and masks"
"$WORK/venv/bin/python" test/onnx/vary_models.py "$BUILD" "$WORK/variations" $VARIED >&2
say "ONNX: damaged models"
(cd "$WORK" && venv/bin/python "$ROOT/test/onnx/mutate_models.py" "$BUILD/libexec/lathe-compiler" $MUTANTS --to $PHASE \
  "$ROOT"/test/fixtures/onnx/{llama/dynamo18-sdpa,llama-genai/genai-int4,qwen3/dynamo23-sdpa,gpt2/torchscript}/model.onnx "$ROOT/test/fixtures/onnx/small-graph.onnx") >&2
