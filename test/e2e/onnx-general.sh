#!/bin/bash
# A small exported graph with a layer that nobody recognises: general code, whose logits are those of onnxruntime, for a whole prompt,
# for single tokens with the cache, and for pieces; on x86, and as kernels for a GPU on the emulator. The fixture is test/onnx/make_small_graph.py's.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/onnx-general
LATHE=$BUILD/bin/lathe
FIXTURE=test/fixtures/onnx/small-graph
mkdir -p "$WORK"

# served ARTIFACT TOKENS [OPTION...]: serves it and asks for what run said.
served() {
  "$LATHE" serve "$WORK/$1.lathe" --port 0 --served-name small "${@:3}" >"$WORK/serve.out" 2>"$WORK/serve.log" &
  server=$!
  trap 'kill $server 2>/dev/null || true' EXIT
  for _ in $(seq 200); do
    grep -q 'listening on' "$WORK/serve.out" && break
    kill -0 $server 2>/dev/null || fail "the server does not start: $(cat "$WORK/serve.log")"
    sleep 0.1
  done
  grep -q 'model small: a general graph: one request at a time' "$WORK/serve.log" || fail "the server does not say that it is a general graph: $(cat "$WORK/serve.log")"
  grep -q 'prefix cache off' "$WORK/serve.log" && grep -q 'compiled with activations f32, kv f32, max_rows [0-9]*, quantize none' "$WORK/serve.log" || fail "the server says something else of the artifact than what is: $(cat "$WORK/serve.log")"
  python3 test/e2e/general_server.py "$(sed -n 's/^listening on //p' "$WORK/serve.out")" "$2" >&2 || fail "the server answers something else than run: $(cat "$WORK/serve.log")"
  kill $server
  wait $server || true
}

say "ONNX: a graph that is not raised, against onnxruntime"
"$LATHE" compile $FIXTURE.onnx -o "$WORK/small.lathe" --target native --max-seq 64 --max-rows 32 2>"$WORK/compile.log" || { cat "$WORK/compile.log" >&2; fail "it does not compile"; }
grep -q 'warning: the graph was not recognised and runs as general code' "$WORK/compile.log" || fail "expected a warning, found: $(cat "$WORK/compile.log")"
"$LATHE" inspect --verify "$WORK/small.lathe" >"$WORK/inspect.txt"
grep -q 'general_graph: {"cache":"contiguous","exact_tokens":false,"sequences":1}' "$WORK/inspect.txt" || fail "inspect does not say that it is a general graph: $(cat "$WORK/inspect.txt")"
for chunk in 12 1 5; do
  "$BUILD/test/e2e/CompareLogits" --chunk $chunk "$WORK/small.lathe" $FIXTURE.f32 2e-4 3 14 15 92 65 35 89 79 32 38 46 26 >&2 || fail "logits differ from onnxruntime's with $chunk tokens a step"
done
"$LATHE" bench "$WORK/small.lathe" -p 8 -n 4 --batch 1 >/dev/null || fail "bench does not run it"
if message=$("$LATHE" bench "$WORK/small.lathe" -p 8 -n 4 --batch 2 2>&1); then fail "expected two sequences to be refused"; fi
[[ $message == *"serves one sequence at a time: expected 1 sequence, found 2"* ]] || fail "expected a message that names the limit, found: $message"

say "ONNX: the same graph as kernels for a GPU, on the emulator"
"$LATHE" compile $FIXTURE.onnx -o "$WORK/gpu.lathe" --target native,sm_80 --max-seq 64 --max-rows 32 --quiet 2>"$WORK/gpu.log" || { cat "$WORK/gpu.log" >&2; fail "it does not compile for a GPU"; }
"$LATHE" inspect --verify "$WORK/gpu.lathe" >/dev/null
for chunk in 12 1 5; do
  "$BUILD/test/e2e/CompareLogits" --device emulator --chunk $chunk "$WORK/gpu.lathe" $FIXTURE.f32 2e-4 3 14 15 92 65 35 89 79 32 38 46 26 >&2 || fail "logits on the emulator differ from onnxruntime's with $chunk tokens a step"
done
"$BUILD/test/e2e/CompareLogits" "$WORK/gpu.lathe" $FIXTURE.f32 2e-4 3 14 15 92 65 35 89 79 32 38 46 26 >&2 || fail "logits on x86 differ from onnxruntime's"
"$LATHE" compile $FIXTURE.onnx -o "$WORK/gpu-only.lathe" --target sm_90a --max-seq 64 --quiet 2>/dev/null
for artifact in gpu gpu-only; do
  found=$("$LATHE" run "$WORK/$artifact.lathe" --device emulator --prompt-ids 3,14,15,92 -n 6 --temp 0 --ids 2>"$WORK/run.log") || { cat "$WORK/run.log" >&2; fail "it does not run on the emulator"; }
  want=$("$LATHE" run "$WORK/small.lathe" --prompt-ids 3,14,15,92 -n 6 --temp 0 --ids 2>/dev/null)
  [ "$found" = "$want" ] || fail "$artifact: expected the tokens of x86, $want, found $found"
done
if message=$("$LATHE" run "$WORK/gpu-only.lathe" --prompt-ids 3,14 -n 2 --ids 2>&1); then fail "a GPU's code ran on the CPU"; fi
[[ $message == *"the artifact has no code for x86-64"* ]] || fail "expected a message that says so, found: $message"
if message=$("$LATHE" run "$WORK/small.lathe" --device emulator --prompt-ids 3,14 -n 2 --ids 2>&1); then fail "x86 code ran on the emulator"; fi
[[ $message == *"the artifact has no code for a GPU"* ]] || fail "expected a message that says so, found: $message"
served gpu "$want" --device emulator

say "ONNX: run of a general graph; wrong results"
plain=$("$LATHE" run "$WORK/small.lathe" --prompt-ids 3,14,15,92 -n 6 --temp 0 --ids 2>"$WORK/run.log") || { cat "$WORK/run.log" >&2; fail "it does not run"; }
[ "$(wc -w <<<"$plain")" = 6 ] || fail "expected 6 tokens, found: $plain"
for refused in "serve $WORK/small.lathe --port 0 --speculate ngram:drafts" "serve $WORK/small.lathe --port 0 --saved-kv 8:saved KV blocks"; do
  if message=$(timeout 20 "$LATHE" ${refused%%:*} 2>&1); then fail "'$refused' was taken"; fi
  [[ $message == *"this artifact holds a general graph, whose one cache has no KV blocks: expected no ${refused##*:}"* ]] || fail "expected a message that says so, found: $message"
done
if message=$(timeout 20 "$LATHE" run "$WORK/small.lathe" --prompt-ids 3,14 -n 2 --speculate auto 2>&1); then fail "drafts were taken"; fi
[[ $message == *"speculate: expected off, because the model is a general graph"* ]] || fail "expected a message that says so, found: $message"
if message=$(timeout 20 "$LATHE" serve "$WORK/small.lathe" --port 0 --max-seqs 2 2>&1); then fail "two sequences were taken"; fi
[[ $message == *"serves one sequence at a time: expected 1 sequence, found 2"* ]] || fail "expected a message that names the limit, found: $message"
grep -q '^memory: .*no peak is known$' "$WORK/inspect.txt" && grep -q '^KV cache: .*contiguous' "$WORK/inspect.txt" || fail "inspect states what is not planned: $(cat "$WORK/inspect.txt")"

say "ONNX: a general graph served, several clients"
served small "$plain"
if message=$("$LATHE" explain "$WORK/small.lathe" 2>&1); then fail "explain took a general graph"; fi
[[ $message == *"expected a model raised to llm ops, found a general graph"* ]] || fail "expected a message that says so, found: $message"
# This graph's cache does not grow: its second step would read what is not there.
"$LATHE" compile test/lit/Driver/general-graph.mlir -o "$WORK/stuck.lathe" --target native --quiet 2>/dev/null
if message=$("$LATHE" run "$WORK/stuck.lathe" --prompt-ids 1,2 -n 2 --ids 2>&1); then fail "expected a cache of the wrong length to be refused"; fi
[[ $message == *"result 'present.0.key': expected a cache of 2 tokens, found 0"* ]] || fail "expected a message about the cache, found: $message"
