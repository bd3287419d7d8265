#!/bin/bash
# P1 at length: 200 trials of the exactness fuzz for every model of test/e2e/exactness.sh (LATHE_LONG=1: 1,000), 30 random modules (60), and PTX for
# every chip on the emulator.
#   test/full/exactness.sh [SEED, default: the day]
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1 LATHE_SEED=${1:-$(date +%Y%m%d)} LATHE_SEEDS="1 $([ "${LATHE_LONG:-}" ] && echo 60 || echo 30)"
say "exactness: seed $LATHE_SEED"
for name in exactness random_models ptx; do
  say "full: $name"
  test/e2e/$name.sh
done
