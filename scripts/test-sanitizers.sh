#!/bin/bash
# Runtime, file readers and what the compiler does with ONNX graphs under AddressSanitizer and UBSan, the runtime under ThreadSanitizer; every fuzz target for a moment.
#   scripts/test-sanitizers.sh [SECONDS a fuzz target, default 5; twelve times as long for whole exports] [--fuzz-only]
. "$(dirname "$0")/common.sh"
SECONDS_EACH=${1:-5}
install_packages libclang-rt-22-dev
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
configure asan build-asan
build build-asan all
if [ "${2:-}" != --fuzz-only ]; then
  say "tests: asan"
  ctest --test-dir build-asan --output-on-failure -j2 --timeout 900
  configure tsan build-tsan
  build build-tsan threaded-tests # the others have one thread
  say "tests: tsan"
  ctest --test-dir build-tsan --output-on-failure -j2 --timeout 900 -L threads
fi
[ -f build-asan/test/unit/toy.lathe ] || (cd build-asan/test/unit && ./MakeToyArtifact toy.lathe)
fuzz() { # fuzz PROGRAM
  local fuzzer=$1 name corpus seeds count options=() seconds=$SECONDS_EACH bytes=200000 patience=20
  name=$(basename "$fuzzer")
  corpus=build-asan/corpus/$name seeds=build-asan/seeds/$name
  mkdir -p "$corpus"
  count=$(python3 test/fixtures/fuzz_seeds.py "$name" "$seeds" build-asan/test/unit/toy.lathe)
  [ "$name" = fuzz_template ] && options=(-dict=test/fixtures/template/jinja.dict)
  if [ "$name" = FuzzONNXRaise ]; then # it takes the exports itself, damages and compiles models of up to 300 KB
    seconds=$((SECONDS_EACH < 300 ? 12 * SECONDS_EACH : SECONDS_EACH)) bytes=400000 patience=120
  elif [ "$count" = 0 ]; then
    fail "expected seeds for $name in test/fixtures/fuzz_seeds.py, found none"
  fi
  say "fuzz: $name for $seconds s, from $count seeds"
  timeout "$((seconds + 600))" "$fuzzer" -max_total_time="$seconds" -max_len=$bytes -rss_limit_mb=2048 -timeout=$patience -artifact_prefix="$corpus/crash-" \
    "${options[@]}" "$corpus" "$seeds" >"$corpus.log" 2>&1 || { tail -40 "$corpus.log" >&2; fail "$name found something, see $corpus.log"; }
}
# The one that takes longest beside all others.
longest=
if [ -x build-asan/test/fuzz/FuzzONNXRaise ]; then
  (fuzz build-asan/test/fuzz/FuzzONNXRaise) &
  longest=$!
  trap 'pkill -P $longest 2>/dev/null || true' EXIT
fi
for fuzzer in build-asan/test/fuzz/*; do
  [ -x "$fuzzer" ] && [ -f "$fuzzer" ] && [ "$(basename "$fuzzer")" != FuzzONNXRaise ] || continue
  fuzz "$fuzzer"
done
[ -z "$longest" ] || wait "$longest" || fail "FuzzONNXRaise failed"
say "sanitizers: nothing found"
