#!/bin/bash
# Speculation on SmolLM2 at length: 200 prompts of 128 new tokens for each method, greedy (1, 16 and 200 at a time) and sampled, every token
# compared with the plain answer (all drafts are verified, whether they pay or not); then random schedules with sampling, penalties, forks, aborts and preemption (EngineFuzz).
#   test/full/speculation.sh [SCHEDULES, default 40]      about 45 minutes on 2 cores
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/full/speculation
MODEL=${LATHE_MODEL_DIR:-$BUILD/demo}/SmolLM2-135M-Instruct.Q4_1.gguf
mkdir -p "$WORK"
[ -n "${LATHE_BUILD:-}" ] || build build lathe lathe-compiler EngineFuzz
"$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/smollm2.lathe" --target native --quiet
for method in ngram suffix suffix-tree auto; do
  say "speculation: $method, 200 prompts of 128 new tokens"
  "$BUILD/bin/lathe" bench "$WORK/smollm2.lathe" --speculate $method --draft-cost none -p 24 -n 128 -r 1 -b 1,16,200 --ctx 256
  for temp in 0.7 1; do
    "$BUILD/bin/lathe" bench "$WORK/smollm2.lathe" --speculate $method --draft-cost none -p 24 -n 128 -r 1 -b 200 --ctx 256 --temp $temp --top-p 0.9 \
      --repeat-penalty 1.1 --presence-penalty 0.3 --frequency-penalty 0.2 --seed 7
  done
done
"$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/own.lathe" --speculate "draft:$MODEL" --target native --quiet
"$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/skip.lathe" --speculate layerskip:24 --target native --quiet
for draft in own skip; do
  say "speculation: a draft program, $draft: 200 prompts of 128 new tokens"
  "$BUILD/bin/lathe" bench "$WORK/$draft.lathe" --speculate draft --draft-cost none -p 24 -n 128 -r 1 -b 1,16,200 --ctx 256
done
# Heads that examples/train_medusa.py has trained: LATHE_HEADS is their directory.
if [ -n "${LATHE_HEADS:-}" ]; then
  "$BUILD/bin/lathe" compile "$MODEL" -o "$WORK/heads.lathe" --speculate medusa --speculate-weights "$LATHE_HEADS" --quantize int4-g32 --target native --quiet
  say "speculation: Medusa's heads: 200 prompts of 128 new tokens"
  "$BUILD/bin/lathe" bench "$WORK/heads.lathe" --speculate medusa --draft-cost none -p 24 -n 128 -r 1 -b 1,16,200 --ctx 256
  "$BUILD/test/e2e/EngineFuzz" 400 "${1:-40}" "$WORK/heads.lathe"
fi
say "speculation: random schedules"
"$BUILD/test/e2e/EngineFuzz" 100 "${1:-40}" "$WORK/smollm2.lathe"
# Drafts without regard to cost; those of the model itself are always right.
"$BUILD/test/e2e/EngineFuzz" 200 "${1:-40}" "$WORK/own.lathe" | tee "$WORK/own.log"
grep -q "by the draft program \([1-9][0-9]*\) and \1;" "$WORK/own.log" || fail "a model that drafts for itself is not always right"
"$BUILD/test/e2e/EngineFuzz" 300 "${1:-40}" "$WORK/skip.lathe"
say "speculation: passed"
