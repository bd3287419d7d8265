#!/bin/bash
# Speculation on compiled models: every method says what the plain run says. The fuzz of engine.sh mixes it with everything else.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/speculation
MODEL=${LATHE_MODEL_DIR:-$BUILD/demo}/SmolLM2-135M-Instruct.Q4_1.gguf
LATHE=$BUILD/bin/lathe
say() { printf '\n== %s\n' "$*" >&2; }
fail() { echo "error: $*" >&2; exit 1; }
mkdir -p "$WORK"

declare -A drafts=([auto]=0 [ngram]=0 [suffix]=0 [suffix-tree]=0)
declare -A accepted
METHODS="auto ngram suffix suffix-tree"

# same FILE RUN-OPTIONS...: the ids of the plain run and of each method, by the single-caller engine and the serving engine. Every draft is
# verified: which ones pay is measured, and on a busy machine none may. That the rule of cost changes no token is seen once more, without asking for drafts.
same() {
  local file=$1 plain ids
  shift
  plain=$("$LATHE" run "$file" --ids "$@" 2>/dev/null)
  [ "$(wc -w <<<"$plain")" -gt 8 ] || fail "the plain run says too little: $plain"
  for method in $METHODS; do
    ids=$("$LATHE" run "$file" --ids --speculate $method --draft-cost none "$@" 2>"$WORK/run.log") || { cat "$WORK/run.log" >&2; exit 1; }
    [ "$ids" = "$plain" ] || fail "$method with $*: expected '$plain', found '$ids'"
    drafts[$method]=$((${drafts[$method]:-0} + $(sed -n 's/.* | \([0-9]*\) drafts, .*/\1/p' "$WORK/run.log")))
    accepted[$method]=$((${accepted[$method]:-0} + $(sed -n 's/.* drafts, \([0-9]*\) accepted .*/\1/p' "$WORK/run.log")))
  done
  ids=$("$LATHE" run "$file" --ids --speculate "${METHODS%% *}" "$@" 2>/dev/null)
  [ "$ids" = "$plain" ] || fail "$METHODS with $* and the measured cost: expected '$plain', found '$ids'"
}

say "speculation: a tiny model"
python3 "$ROOT/test/e2e/tiny_model.py" --layers 3 --hidden 64 --heads 4 --kv-heads 2 --head 16 --ffn 96 --vocab 97 --max-seq 512 --window 40 >"$WORK/tiny.mlir"
"$LATHE" compile "$WORK/tiny.mlir" -o "$WORK/tiny.lathe" --target native --quiet
for seed in 1 2 3; do
  same "$WORK/tiny.lathe" --prompt-ids 1,2,3,4,5,1,2,3,4,5,1,2,3 -n 200 --temp 0
  same "$WORK/tiny.lathe" --prompt-ids 1,2,3,$seed,5,1,2,3 -n 200 --temp 0.7 --top-p 0.9 --seed $seed --repeat-penalty 1.1
done
"$LATHE" bench "$WORK/tiny.lathe" --speculate synthetic --draft-cost none --acceptance 0.7 -p 20 -n 60 -r 2 -b 1,4 --json >"$WORK/synthetic.json"
python3 - "$WORK/synthetic.json" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["batch"] for row in rows] == [1, 4], rows
for row in rows:
    assert [p["drafts"] for p in row["break_even"]] == [1, 3, 7, 15], row
    # Right with 0.7 until the first wrong one, so 1.77 of 4 are accepted; every round drafts 4 tokens, but those at the end of an answer.
    answers = 2 * row["batch"]
    assert 4 * row["rounds"] - 6 * answers <= row["drafted"] <= 4 * row["rounds"], row
    # Each token behind the first is an accepted one or a round's own, but for a last one that nothing was drafted for.
    assert 58 * answers <= row["accepted"] + row["rounds"] <= 59 * answers, row
    assert 0.3 < row["accepted"] / row["drafted"] < 0.6, row
PY

for method in $METHODS; do
  [ "${drafts[$method]}" -gt 20 ] || fail "$method drafted ${drafts[$method]} tokens only: nothing was tested"
done

say "speculation: a draft program"
"$LATHE" compile "$WORK/tiny.mlir" -o "$WORK/own.lathe" --speculate "draft:$WORK/tiny.mlir" --target native --quiet
METHODS="draft auto"
drafts[draft]=0 accepted[draft]=0
for seed in 1 2 3; do
  same "$WORK/own.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0
  same "$WORK/own.lathe" --prompt-ids 1,2,3,$seed,5,1,2,3 -n 200 --temp 0.7 --top-p 0.9 --seed $seed --repeat-penalty 1.1
done
[ "${drafts[draft]}" = "${accepted[draft]}" ] || fail "a model that drafts for itself: ${drafts[draft]} drafts, ${accepted[draft]} accepted"
# Other rules than the exact one: at temperature 0 they say the same, and a model accepts itself always.
for rule in rejection typical; do
  METHODS=draft same "$WORK/own.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0 --draft-acceptance $rule
done
sampled() { "$LATHE" run "$WORK/own.lathe" --ids --speculate draft --draft-cost none --prompt-ids 1,2,3,4,5 -n 200 --temp 0.9 --seed 3 --draft-acceptance rejection 2>"$WORK/run.log"; }
first=$(sampled)
grep -q ' | \([0-9]\{3,\}\) drafts, \1 accepted ' "$WORK/run.log" || { cat "$WORK/run.log" >&2; fail "rejection sampling refuses what has the model's own law"; }
# Its tokens depend on what was drafted, which here depends on no measurement.
[ "$(sampled)" = "$first" ] || fail "an answer by rejection sampling is not repeated by its seed"
# Its weights are in the file once.
[ "$(stat -c %s "$WORK/own.lathe")" -lt $(($(stat -c %s "$WORK/tiny.lathe") * 3 / 2)) ] || fail "weights are there twice"
[[ $("$LATHE" inspect "$WORK/own.lathe") == *"KV group of the draft program: "* ]] || fail "inspect says nothing of the draft's KV"

"$LATHE" compile "$WORK/tiny.mlir" -o "$WORK/skip.lathe" --speculate layerskip:2 --target native --quiet
[[ $("$LATHE" inspect "$WORK/skip.lathe") == *"draft program: context 512, the first layers (layerskip)"* ]] || fail "inspect does not say what drafts"
[[ $("$LATHE" inspect "$WORK/own.lathe") == *"draft program: context 512, a model of its own"* ]] || fail "inspect does not say what drafts"
METHODS=draft
same "$WORK/skip.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0
same "$WORK/skip.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0.7 --top-p 0.9 --seed 4 --frequency-penalty 0.3
# Where the other layers add nothing, the first ones are always right.
python3 "$ROOT/test/e2e/tiny_model.py" --layers 12 --hidden 256 --heads 4 --kv-heads 2 --head 64 --ffn 512 --vocab 997 --max-seq 512 --silent-from 1 >"$WORK/silent.mlir"
"$LATHE" compile "$WORK/silent.mlir" -o "$WORK/silent.lathe" --speculate layerskip:1 --target native --quiet
drafts[draft]=0 accepted[draft]=0
same "$WORK/silent.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0
same "$WORK/silent.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0.7 --top-p 0.9 --seed 4 --frequency-penalty 0.3
[ "${drafts[draft]}" -gt 300 ] || fail "layers that add nothing drafted nothing"
[ "${drafts[draft]}" = "${accepted[draft]}" ] || fail "layers that add nothing: ${drafts[draft]} drafts, ${accepted[draft]} accepted"

say "speculation: heads"
tokens() { seq -s' ' 0 $(($1 - 1)); }
heads() { python3 "$ROOT/test/e2e/tiny_heads.py" "$@"; }
rm -rf "$WORK/heads" && heads "$WORK/heads" --heads 3 --type F16
compiled() { "$LATHE" compile "$WORK/tiny.mlir" --speculate medusa --speculate-weights "$WORK/heads" --quiet "$@"; }
compiled -o "$WORK/heads.lathe" --target native
[[ $("$LATHE" inspect "$WORK/heads.lathe") == *"draft program: context 512, 3 heads over hidden rows"* ]] || fail "inspect says nothing of heads"
METHODS="medusa auto"
same "$WORK/heads.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0
same "$WORK/heads.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0.7 --top-p 0.9 --seed 4 --frequency-penalty 0.3
# What they compute: compiled as interpreted, and interpreted as a script of a few lines has it.
TOKENS=$(tokens 40)
for options in "2e-2 --quantize int8" "1e-4 --activations f32 --kv f32"; do # 8-bit activations: a value near a rounding boundary may fall on the other side
  read -r tolerance options <<<"$options"
  # shellcheck disable=SC2086 # lists
  compiled -o "$WORK/checked.lathe" --target native $options
  # shellcheck disable=SC2086
  compiled --compile-to=configure $options >"$WORK/heads.mlir"
  for head in 0 1 2; do
    "$BUILD/bin/lathe-interp" "$WORK/heads.mlir" --function draft --result $head --tokens "${TOKENS// /,}" --raw "$WORK/heads$head.f32"
  done
  # shellcheck disable=SC2086
  "$BUILD/test/e2e/CompareHeads" "$WORK/checked.lathe" "$WORK/heads" $tolerance $TOKENS
done
python3 "$ROOT/test/e2e/tiny_model.py" --layers 3 --hidden 64 --heads 4 --kv-heads 2 --head 16 --ffn 96 --vocab 97 --max-seq 512 --window 40 --headless >"$WORK/headless.mlir"
"$LATHE" compile "$WORK/headless.mlir" --compile-to=configure --activations f32 --kv f32 --quiet >"$WORK/headless-f32.mlir"
"$BUILD/bin/lathe-interp" "$WORK/headless-f32.mlir" --tokens "${TOKENS// /,}" --raw "$WORK/rows.f32"
python3 "$ROOT/test/e2e/check_heads.py" "$WORK/heads/medusa_lm_head.safetensors" "$WORK/rows.f32" "$WORK/heads" 1e-4
# Heads that know what follows are always right, and so only if each is given its sequence's row.
python3 "$ROOT/test/e2e/tiny_model.py" --layers 12 --hidden 128 --heads 4 --kv-heads 2 --head 32 --ffn 256 --vocab 257 --max-seq 512 --silent-from 0 >"$WORK/still.mlir"
python3 "$ROOT/test/e2e/tiny_model.py" --layers 12 --hidden 128 --heads 4 --kv-heads 2 --head 32 --ffn 256 --vocab 257 --max-seq 512 --silent-from 0 --headless >"$WORK/still-headless.mlir"
each=$(for t in $(tokens 257); do echo "--tokens $t"; done)
for file in still still-headless; do
  "$LATHE" compile "$WORK/$file.mlir" --compile-to=configure --quiet >"$WORK/$file.configured.mlir"
  "$BUILD/bin/lathe-interp" "$WORK/$file.configured.mlir" $each --raw "$WORK/$file.f32"
done
rm -rf "$WORK/right" && heads "$WORK/right" --hidden 128 --vocab 257 --heads 4 --blocks 0 --follow "$WORK/still.f32" "$WORK/still-headless.f32"
"$LATHE" compile "$WORK/still.mlir" -o "$WORK/still.lathe" --speculate medusa --speculate-weights "$WORK/right" --target native --quiet
METHODS=medusa
drafts[medusa]=0 accepted[medusa]=0
steps() { sed -n 's/.* tokens\/s, \([0-9]*\) steps .*/\1/p' "$WORK/run.log"; }
same "$WORK/still.lathe" --prompt-ids 1 -n 200 --temp 0 --draft-acceptance rejection # drafts are chains then
# Before the cycle and where its tokens come for the first time a head may be wrong.
[ $((${drafts[medusa]} - ${accepted[medusa]})) -le 40 ] || fail "heads that know what follows: ${drafts[medusa]} drafts, ${accepted[medusa]} accepted"
[ "${accepted[medusa]}" -gt 100 ] || fail "heads that know what follows were hardly ever right"
chain=$(steps) drafts[medusa]=0 accepted[medusa]=0
same "$WORK/still.lathe" --prompt-ids 1 -n 200 --temp 0
# A tree holds the chain; its other choices cost no step.
[ "${accepted[medusa]}" -gt 100 ] && [ "$(steps)" -le $((chain + 4)) ] ||
  fail "a tree of heads that know what follows: ${drafts[medusa]} drafts, ${accepted[medusa]} accepted, $(steps) steps against $chain of chains"

say "speculation: EAGLE's layers"
eagle() { python3 "$ROOT/test/e2e/tiny_eagle.py" "$@"; }
layer() { "$LATHE" compile "$WORK/tiny.mlir" --speculate "$1" --speculate-weights "$WORK/$1" --quiet "${@:2}"; }
TOKENS=$(tokens 30)
rm -rf "$WORK/eagle" "$WORK/eagle3" && eagle "$WORK/eagle" && eagle "$WORK/eagle3" --third --draft-vocab 61
for method in eagle eagle3; do
  # What they compute: compiled as interpreted, and interpreted as a script of a few lines has it.
  for options in "2e-2 --quantize int8" "1e-4 --activations f32 --kv f32"; do
    read -r tolerance options <<<"$options"
    # shellcheck disable=SC2086 # lists
    layer $method -o "$WORK/$method.lathe" --target native $options
    # shellcheck disable=SC2086
    layer $method --compile-to=configure $options >"$WORK/$method.mlir"
    "$BUILD/bin/lathe-interp" "$WORK/$method.mlir" --function draft --tokens "${TOKENS// /,}" --raw "$WORK/${method}_0.f32"
    # shellcheck disable=SC2086
    "$BUILD/test/e2e/CompareHeads" "$WORK/$method.lathe" "$WORK/${method}_" $tolerance $TOKENS
  done
done
"$BUILD/bin/lathe-interp" "$WORK/headless-f32.mlir" --tokens "${TOKENS// /,}" --raw "$WORK/rows.f32"
# shellcheck disable=SC2046
"$BUILD/bin/lathe-interp" "$WORK/eagle3.mlir" $(for t in $(tokens 97); do echo "--tokens $t"; done) --result 1 --raw "$WORK/table.f32"
for place in 1 2 3; do "$BUILD/bin/lathe-interp" "$WORK/eagle3.mlir" --tokens "${TOKENS// /,}" --result $place --raw "$WORK/feature$place.f32"; done
python3 "$ROOT/test/e2e/check_eagle.py" "$WORK/eagle" "${TOKENS// /,}" "$WORK/table.f32" "$WORK/rows.f32" "$WORK/eagle_0.f32" 1e-4 --head-scale 0.125
python3 "$ROOT/test/e2e/check_eagle.py" "$WORK/eagle3" "${TOKENS// /,}" "$WORK/table.f32" "$WORK/feature1.f32,$WORK/feature2.f32,$WORK/feature3.f32" "$WORK/eagle3_0.f32" 1e-4
# A layer that knows what follows is always right: each run gives it the features of its sequence, and its own rows behind them.
sizes="--hidden 128 --vocab 257 --heads 4 --kv-heads 2 --head 32 --ffn 256"
# shellcheck disable=SC2086
rm -rf "$WORK/right" && eagle "$WORK/right" $sizes --third
"$LATHE" compile "$WORK/still.mlir" --speculate eagle3 --speculate-weights "$WORK/right" --compile-to=configure --quiet >"$WORK/still3.mlir"
# shellcheck disable=SC2086
"$BUILD/bin/lathe-interp" "$WORK/still3.mlir" $each --result 1 --raw "$WORK/still3.f32"
for method in eagle eagle2 eagle3; do
  rm -rf "$WORK/right"
  # shellcheck disable=SC2086
  if [ $method != eagle3 ]; then
    eagle "$WORK/right" $sizes --follow "$WORK/still.f32" "$WORK/still-headless.f32"
  else
    eagle "$WORK/right" $sizes --third --draft-vocab 150 --follow "$WORK/still.f32" "$WORK/still3.f32"
  fi
  "$LATHE" compile "$WORK/still.mlir" -o "$WORK/right.lathe" --speculate $method --speculate-weights "$WORK/right" --target native --quiet
  METHODS=$method drafts[$method]=0 accepted[$method]=0
  same "$WORK/right.lathe" --prompt-ids 1 -n 200 --temp 0
  # A tree has other choices besides, which are wrong.
  [ "${accepted[$method]}" -gt 60 ] || fail "a layer that knows what follows: ${drafts[$method]} drafts, ${accepted[$method]} accepted"
  [ $method != eagle ] || [ $((${drafts[$method]} - ${accepted[$method]})) -le 40 ] || fail "a layer that knows what follows: ${drafts[$method]} drafts, ${accepted[$method]} accepted"
  [[ $("$LATHE" inspect "$WORK/right.lathe") == *"draft program: context 512, a layer over features of "* ]] || fail "inspect says nothing of the layer"
  METHODS="$method auto"
  same "$WORK/right.lathe" --prompt-ids 1,2,3,4,5 -n 200 --temp 0.7 --top-p 0.9 --seed 4 --frequency-penalty 0.3
done
METHODS="auto ngram suffix"

# refused PATTERN COMPILE-OPTIONS...: what lathe compile says instead of compiling.
refused() {
  local pattern=$1 message
  shift
  if message=$("$LATHE" compile "$WORK/tiny.mlir" -o "$WORK/refused.lathe" --target native --quiet "$@" 2>&1); then fail "compile took $*"; fi
  [[ $message == *$pattern* ]] || fail "compile $*: found: $message"
}
python3 "$ROOT/test/e2e/tiny_model.py" --layers 1 --hidden 64 --heads 4 --kv-heads 2 --head 16 --ffn 96 --vocab 98 >"$WORK/larger.mlir"
refused "expected a vocabulary of 97 tokens, found 98" --speculate "draft:$WORK/larger.mlir"
refused "expected draft:MODEL, layerskip:LAYERS of at least 1, medusa, eagle, eagle2, eagle3, ngram, suffix or suffix-tree" --speculate eagle9
refused "layers in 1 .. 2 of a model of 3, found 3" --speculate layerskip:3
refused "cannot open it" --speculate "draft:$WORK/none.mlir"
echo "module {" >"$WORK/broken.mlir"
refused "it is not a valid module" --speculate "draft:$WORK/broken.mlir"
echo "module { }" >"$WORK/empty.mlir"
refused "expected a language model with a function 'step'" --speculate "draft:$WORK/empty.mlir"
if message=$("$LATHE" run "$WORK/own.lathe" --prompt-ids 1,2 -n 4 --speculate medusa 2>&1); then fail "run took an artifact without heads"; fi
[[ $message == *"the artifact has a draft program of another kind; compile it with '--speculate medusa"* ]] || fail "found: $message"
if message=$("$LATHE" run "$WORK/tiny.lathe" --prompt-ids 1,2 -n 4 --speculate draft 2>&1); then fail "run took an artifact without a draft program"; fi
[[ $message == *"the artifact has no draft program; compile it with"* ]] || fail "found: $message"

say "speculation: refused"
for wrong in "run $WORK/tiny.lathe -p x --speculate eagle9" "bench $WORK/tiny.lathe --speculate off" "serve $WORK/tiny.lathe --speculate fast"; do
  if "$LATHE" $wrong >/dev/null 2>"$WORK/refused.log"; then fail "'$wrong' was taken"; fi
  grep -q "option '--speculate': expected .*ngram.*found" "$WORK/refused.log" || { cat "$WORK/refused.log" >&2; exit 1; }
done

for command in "run $WORK/tiny.lathe -p x --draft-acceptance lax" "bench $WORK/tiny.lathe --speculate auto --draft-acceptance lax"; do
  if message=$("$LATHE" $command 2>&1); then fail "'$command' was taken"; fi
  [[ $message == *"option '--draft-acceptance': expected exact, rejection or typical, found 'lax'"* ]] || fail "found: $message"
done

for command in "run $WORK/tiny.lathe -p x --draft-cost free" "bench $WORK/tiny.lathe --draft-cost free" "serve $WORK/tiny.lathe --port 0 --draft-cost free"; do
  if message=$("$LATHE" $command 2>&1); then fail "'$command' was taken"; fi
  [[ $message == *"option '--draft-cost': expected measured or none, found 'free'"* ]] || fail "found: $message"
done
if message=$("$LATHE" bench "$WORK/tiny.lathe" --speculate auto -n 1 2>&1); then fail "bench took one new token"; fi
[[ $message == *"option '-n': expected at least 2 new tokens to compare answers by, found 1"* ]] || fail "found: $message"
if message=$("$LATHE" bench "$WORK/tiny.lathe" --speculate auto -p 500 -n 100 2>&1); then fail "bench took more than the context"; fi
[[ $message == *"expected a context of at most 512 tokens, found 600"* ]] || fail "found: $message"

[ -f "$MODEL" ] || { echo "note: '$MODEL' is not there, so SmolLM2 is left out" >&2; exit 0; }
say "speculation: SmolLM2"
"$LATHE" compile "$MODEL" -o "$WORK/smollm2.lathe" --target native --quiet
TEXT="def area(width, height): return width * height
def volume(width, height, depth): return width * height * depth
def area(width, height): return width * height
def volume(width, height,"
same "$WORK/smollm2.lathe" -p "$TEXT" -n 96 --ignore-eos --temp 0
same "$WORK/smollm2.lathe" -p "$TEXT" -n 96 --ignore-eos --temp 0.7 --top-p 0.9 --seed 5 --frequency-penalty 0.2
printf '%s' "$TEXT" >"$WORK/text.txt"
"$LATHE" bench "$WORK/smollm2.lathe" --speculate auto --prompt-file "$WORK/text.txt" -n 64 -r 1 -b 1,4
say "speculation: passed"
