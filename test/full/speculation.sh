#!/bin/bash
# Speculation on SmolLM2 at length, every method: 200 prompts of 128 new tokens over HTTP, greedy and sampled with penalties, 1 to 16 at a time, every
# token and log-probability compared with the plain answer, drafts verified whatever they cost (speculation_sweep.py); the same by `lathe bench`, 1 and 16 at a
# time; then random schedules with sampling, penalties, forks, aborts, deadlines and preemption (EngineFuzz), where drafts cost nothing either. Heads and
# layers are random, unless LATHE_HEADS and LATHE_EAGLE are directories that examples/train_*.py wrote.
#   test/full/speculation.sh [SCHEDULES, default 10] [PROMPTS, default 200]      about 25 minutes on 2 cores
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/full/speculation
MODEL=${LATHE_MODEL_DIR:-$BUILD/demo}/SmolLM2-135M-Instruct.Q4_1.gguf
LATHE=$BUILD/bin/lathe
SCHEDULES=${1:-10} PROMPTS=${2:-200}
mkdir -p "$WORK"
[ -n "${LATHE_BUILD:-}" ] || build build lathe lathe-compiler EngineFuzz

HEADS=${LATHE_HEADS:-$WORK/heads} EAGLE=${LATHE_EAGLE:-$WORK/eagle}
SIZES="--hidden 576 --vocab 49152 --heads 9 --kv-heads 3 --head 64 --ffn 1536 --type F16"
[ -n "${LATHE_HEADS:-}" ] || python3 test/full/random_heads.py "$HEADS"
# shellcheck disable=SC2086 # a list
[ -n "${LATHE_EAGLE:-}" ] || python3 test/e2e/tiny_eagle.py "$EAGLE" $SIZES --without embed_tokens.weight
UNTRAINED=eagle3
[ -n "${LATHE_HEADS:-}" ] || UNTRAINED+=,medusa
[ -n "${LATHE_EAGLE:-}" ] || UNTRAINED+=,eagle,eagle2
# shellcheck disable=SC2086
python3 test/e2e/tiny_eagle.py "$WORK/eagle3" $SIZES --third --draft-vocab 2000 --features 2,15,27

say "speculation: compiling"
compile() { "$LATHE" compile "$MODEL" -o "$WORK/$1.lathe" --target native --quiet "${@:2}"; }
compile smollm2
compile own --speculate "draft:$MODEL"
compile skip --speculate layerskip:24
# The model's own weights stay as they are: its plain answers are the oracle of all.
drafts() { compile "$1" --speculate "$1" --speculate-weights "$2" --quantize int4-g32 --quantize-skip '^layers' --quantize-skip '^embedding'; }
drafts medusa "$HEADS"
drafts eagle "$EAGLE"
drafts eagle2 "$EAGLE"
drafts eagle3 "$WORK/eagle3"

say "speculation: $PROMPTS prompts of 128 new tokens by every method"
python3 test/full/speculation_sweep.py "$LATHE" "$WORK" "$WORK/smollm2.lathe=ngram,suffix,suffix-tree,auto" "$WORK/own.lathe=draft" "$WORK/skip.lathe=draft" \
  "$WORK/medusa.lathe=medusa" "$WORK/eagle.lathe=eagle" "$WORK/eagle2.lathe=eagle2" "$WORK/eagle3.lathe=eagle3" --prompts "$PROMPTS" --random "$UNTRAINED" --texts docs/design.md docs/engine.md README.md

say "speculation: drafts whatever they cost, 1 and 16 at a time"
bench() { # bench ARTIFACT METHOD...
  local artifact=$1 method
  for method in "${@:2}"; do
    for options in "--temp 0" "--temp 0.7 --top-p 0.9 --repeat-penalty 1.1 --presence-penalty 0.3 --frequency-penalty 0.2 --seed 7" "--temp 1 --top-p 0.9 --frequency-penalty 0.4 --seed 8"; do
      # shellcheck disable=SC2086 # a list
      "$LATHE" bench "$WORK/$artifact.lathe" --speculate "$method" --draft-cost none -p 24 -n 64 -r 1 -b 1,16 --ctx 256 $options | tee "$WORK/bench.log"
      [ "$options" != "--temp 0" ] || grep -q '^batch 16: .*; [1-9][0-9]* drafts, ' "$WORK/bench.log" || fail "$method drafted nothing"
    done
  done
}
bench smollm2 synthetic ngram suffix suffix-tree
bench own draft
bench skip draft
# The server drafts by other layers when that pays, which is seldom here.
for artifact in own skip; do "$LATHE" bench "$WORK/$artifact.lathe" --speculate draft --draft-cost none -p 24 -n 32 -r 1 -b 200 --ctx 256; done
# Random heads are never right, and nobody asks them for long; those that were trained are.
[ -z "${LATHE_HEADS:-}" ] || bench medusa medusa
[ -z "${LATHE_EAGLE:-}" ] || { bench eagle eagle; bench eagle2 eagle2; }

say "speculation: random schedules"
fuzz() { "$BUILD/test/e2e/EngineFuzz" "$1" "$SCHEDULES" "$WORK/$2.lathe" | tee "$WORK/$2.log"; }
fuzz 100 smollm2
# Drafts without regard to cost; those of the model itself are always right.
fuzz 200 own
grep -q "by the draft program \([1-9][0-9]*\) and \1 (" "$WORK/own.log" || fail "a model that drafts for itself is not always right"
fuzz 300 skip
fuzz 400 medusa
fuzz 500 eagle
fuzz 600 eagle2
fuzz 700 eagle3
say "speculation: passed"
