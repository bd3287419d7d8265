#!/bin/bash
# Random small models of every feature: compiled logits equal the interpreter's. LATHE_SEEDS="1 50" chooses a range.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/random
read -r FIRST LAST <<<"${LATHE_SEEDS:-1 10}"
mkdir -p "$WORK"
TOKENS="1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 0 3 3 7 1"
failures=0
for seed in $(seq "$FIRST" "$LAST"); do
  python3 "$ROOT/test/lit/Inputs/random_module.py" "$seed" >"$WORK/$seed.mlir"
  # Without roundings only the order of sums may differ.
  if ! "$BUILD/bin/lathe" compile "$WORK/$seed.mlir" -o "$WORK/$seed.lathe" --max-seq 64 --target native --activations f32 --kv f32 \
    --dump-phases="$WORK/$seed" --quiet 2>"$WORK/$seed.log"; then
    echo "seed $seed: does not compile"
    cat "$WORK/$seed.log"
    failures=$((failures + 1))
    continue
  fi
  "$BUILD/bin/lathe-interp" "$WORK/$seed/fuse.mlir" --tokens "${TOKENS// /,}" --raw "$WORK/$seed.f32"
  # shellcheck disable=SC2086 # TOKENS is a list
  "$BUILD/test/e2e/CompareLogits" "$WORK/$seed.lathe" "$WORK/$seed.f32" 1e-4 $TOKENS || failures=$((failures + 1))
done
[ "$failures" = 0 ] || { echo "$failures models failed"; exit 1; }
