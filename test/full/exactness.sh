#!/bin/bash
# P1 at length: 1,000 trials of the exactness fuzz for every model of test/e2e/exactness.sh, 60 random modules, and PTX for every chip on the emulator.
# The fuzz takes about 0.15 s of CPU time a trial, 20 minutes in all; a random module 2 s. Estimated as a whole: 40 minutes on two quiet cores.
#   test/full/exactness.sh [SEED, default: the day]
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1 LATHE_SEED=${1:-$(date +%Y%m%d)} LATHE_SEEDS="1 60"
say "exactness: seed $LATHE_SEED"
for name in exactness random_models ptx; do
  say "full: $name"
  test/e2e/$name.sh
done
