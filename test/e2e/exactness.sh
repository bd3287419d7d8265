#!/bin/bash
# Small models of many shapes: compiled logits equal the interpreter's (docs/exactness.md allows another order of float32 sums), and
# exact tokens as bits (ExactnessFuzz). LATHE_FULL=1 runs 200 trials a model, with LATHE_LONG=1 1,000.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/exactness
TRIALS=12
[ -z "${LATHE_FULL:-}" ] || TRIALS=$([ "${LATHE_LONG:-}" ] && echo 1000 || echo 200)
SEED=${LATHE_SEED:-1}
fail() { echo "error: $*" >&2; exit 1; }
mkdir -p "$WORK"
TOKENS=$(python3 -c "print(*[(7 * i * i + 3 * i) % 301 for i in range(70)])")

# model NAME OPTIONS: makes a model and says where: of GGUF's storage types with --types, else a module with weights made up.
model() {
  local name=$1
  shift
  if [ "${1:-}" = --types ]; then
    python3 "$ROOT/test/e2e/tiny_gguf.py" "$@" "$WORK/$name.gguf"
    echo "$WORK/$name.gguf"
  else
    python3 "$ROOT/test/e2e/tiny_model.py" "$@" >"$WORK/$name.mlir"
    echo "$WORK/$name.mlir"
  fi
}

# compare NAME TOLERANCE COMPILE-OPTIONS -- MODEL-OPTIONS: the fused module on the interpreter against the artifact.
compare() {
  local name=$1 tolerance=$2 options=()
  shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  local file
  file=$(model "$name" "$@")
  "$BUILD/bin/lathe" compile "$file" -o "$WORK/$name.lathe" "${options[@]}" --dump-phases="$WORK/$name" --quiet 2>/dev/null >/dev/null ||
    { "$BUILD/bin/lathe" compile "$file" -o "$WORK/$name.lathe" "${options[@]}"; return 1; }
  "$BUILD/bin/lathe-interp" "$WORK/$name/fuse.mlir" --tokens "${TOKENS// /,}" --raw "$WORK/$name.f32"
  "$BUILD/test/e2e/CompareLogits" "$WORK/$name.lathe" "$WORK/$name.f32" "$tolerance" $TOKENS
}

# fewer_bytes NAME OTHER: a step of 64 rows moves fewer bytes by the first artifact; the time of both is told.
fewer_bytes() {
  local name
  for name in "$@"; do "$BUILD/bin/lathe" explain "$WORK/$name.lathe" --rows 64 -r 5 --threads 1 --json >"$WORK/$name.explain"; done
  python3 - "$WORK/$1.explain" "$WORK/$2.explain" "$2" <<'PY'
import json, sys
one, two = ([row for row in map(json.loads, open(path)) if row.get("kernel") == "total"][0] for path in sys.argv[1:3])
print(f"{sys.argv[3]}: {two['bytes']:.0f} bytes against {one['bytes']:.0f}, {1e6 * two['measured_seconds']:.0f} us against {1e6 * one['measured_seconds']:.0f}")
sys.exit(not one["bytes"] < two["bytes"])
PY
}

# pages NAME OPTIONS -- MODEL-OPTIONS: one model with every page size of $PAGES, fuzzed.
PAGES="16 32 64"
pages() {
  local name=$1 options=() files=() file page
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  file=$(model "$name" "$@" --layers 2)
  for page in $PAGES; do
    "$BUILD/bin/lathe" compile "$file" -o "$WORK/$name-$page.lathe" --page "$page" "${options[@]}" --quiet
    files+=("$WORK/$name-$page.lathe")
  done
  "$BUILD/test/e2e/ExactnessFuzz" "$SEED" "$TRIALS" "${files[@]}"
}

# Float arithmetic: nothing but the order of sums. Quantized activations: a sum near a rounding boundary may fall on the other
# side, which costs one step of 1/127 in one value.
compare f32 1e-4 --activations f32 --kv f32 --target native --
compare int8 2e-2 --target native --
compare kv-int8 2e-2 --kv int8 --activations f32 --target native --
compare kv-e4m3 2e-2 --kv e4m3 --activations f32 --target native -- --head 80 --window 40
compare parallel 1e-4 --activations f32 --kv f32 --target native -- --parallel --no-rope-every 2 --softcap 20 --heads 3 --kv-heads 3 --untied
compare gemma 1e-4 --activations f32 --kv f16 --target native -- --window 40 --head-norms --post-norms --activation gelu_tanh --softcap 30 --head 64 --heads 4 --kv-heads 1
compare bf16 2e-2 --activations bf16 --kv bf16 --target native -- --weights bf16,q4_0 --embedding bf16
compare odd 1e-4 --activations f32 --kv f32 --target native -- --hidden 100 --head 22 --heads 5 --kv-heads 1 --ffn 77 --weights f16,bf16,f32 --embedding f16 --bias
compare e4m3 1e-4 --activations f32 --kv f32 --target native -- --weights e4m3,f16 --embedding e4m3 --head 40 --heads 4 --kv-heads 4 --hidden 100
compare e4m3-bf16 2e-2 --target native -- --weights e4m3,q4_0
compare e4m3-e4m3 5e-2 --activations e4m3 --target native -- --weights e4m3,bf16,e4m3
compare mixed 2e-2 --target native -- --weights q8_0,q4_0,int4_g32,int8 --hidden 128 --ffn 192
# Weights that the compiler rounds, in groups wider than a file's: what is packed is what the interpreter rounds to.
compare round-int4z-g64 1e-4 --quantize int4z-g64 --activations f32 --kv f32 --target native -- --weights f32 --embedding f32 --hidden 128 --ffn 192
grep -q 'q<int4z_g64>' "$WORK/round-int4z-g64/fuse.mlir" || fail "nothing was rounded to int4z_g64"
# Every fusion left out in turn: the same logits, and more bytes to move (the head's second form saves those of logits, which `explain` counts apart).
compare fused 1e-4 --activations f32 --kv f32 --target native -- --head-norms
for pass in llm-fuse-norm llm-fuse-glu llm-fuse-residual llm-fuse-rope-append llm-fuse-attention-quantize llm-merge-linears llm-fuse-head; do
  compare "without-$pass" 1e-4 --activations f32 --kv f32 --target native --disable $pass -- --head-norms
  [ $pass = llm-fuse-head ] || fewer_bytes fused "without-$pass"
done
# What the head's second form saves, and that there must be one.
for greedy in "" --greedy; do
  "$BUILD/bin/lathe" bench "$WORK/fused.lathe" -p 0 -n 2 -r 1 -b 3 $greedy --json >"$WORK/bench$greedy.json"
  "$BUILD/bin/lathe" explain "$WORK/fused.lathe" -r 1 --threads 1 $greedy --json >"$WORK/explain$greedy.json"
done
python3 - "$WORK" <<'PY'
import json, sys
def total(option):
    return [row for row in map(json.loads, open(f"{sys.argv[1]}/explain{option}.json")) if row.get("kernel") == "total"][0]
plain, greedy = total(""), total("--greedy")
assert greedy["bytes"] < plain["bytes"], (plain, greedy)
plain, greedy = (json.load(open(f"{sys.argv[1]}/bench{option}.json")) for option in ("", "--greedy"))
assert (plain["greedy"], greedy["greedy"]) == (False, True) and greedy["decode_tokens_per_second"] > 0, (plain, greedy)
PY
for command in bench explain; do
  if message=$("$BUILD/bin/lathe" $command "$WORK/without-llm-fuse-head.lathe" --greedy 2>&1); then fail "'$command' found a second form"; fi
  [[ $message == *"option '--greedy': expected an artifact with the entry 'head_choices', which '"*"' lacks; compile it with llm-fuse-head"* ]] || fail "found: $message"
done
if message=$("$BUILD/bin/lathe" bench "$WORK/fused.lathe" --greedy --speculate ngram 2>&1); then fail "'bench' took --greedy with --speculate"; fi
[[ $message == *"option '--greedy': expected without '--speculate', whose steps take the largest logit where that is all they need, found both"* ]] || fail "found: $message"
# Linears with a bias have no epilogue for an activation, which then is a row program of its own.
compare fused-bias 1e-4 --activations f32 --kv f32 --target native -- --bias
compare without-llm-fuse-activate 1e-4 --activations f32 --kv f32 --target native --disable llm-fuse-activate -- --bias
fewer_bytes fused-bias without-llm-fuse-activate

# Every storage type of GGUF through import, merging and packing: the rows of q and k are put back in order, gate and up interleaved.
for type in f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl; do
  compare "gguf-$type" 1e-4 --activations f32 --kv f32 --max-rows 64 --target native -- --types $type
done
# Several types within one merged matrix, and the default arithmetic.
compare gguf-mixed 2e-2 --max-rows 64 --target native -- --types q4_k,q6_k,q5_k --untied

pages exact-int8 --
pages exact-int8z --activations int8z -- --window 40 --weights q4_0,q8_0
pages exact-f32 --activations f32 --kv f32 -- --weights int4z_g32,f16 --head 40 --heads 4 --kv-heads 4 --hidden 96
PAGES="16 64"
pages exact-bf16 --activations bf16 --kv bf16 -- --weights bf16,q4_0 --embedding bf16
pages exact-e4m3 -- --weights e4m3,q4_0,bf16 --embedding e4m3
pages exact-e4m3-e4m3 --activations e4m3 --kv e4m3 -- --weights e4m3,e4m3,bf16
pages exact-gguf-kv-int8 --kv int8 -- --types q6_k,q4_k,q4_k,q6_k
pages exact-gguf-k --kv e4m3 -- --types q3_k,q2_k,q5_k
pages exact-gguf-z --activations int8z -- --types iq4_nl,q5_0,q5_1,q4_1 --untied
