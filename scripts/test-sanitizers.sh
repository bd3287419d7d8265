#!/bin/bash
# Runtime and file readers under AddressSanitizer, UBSan and ThreadSanitizer; every fuzz target for a moment.
#   scripts/test-sanitizers.sh [SECONDS a fuzz target, default 5]
. "$(dirname "$0")/common.sh"
SECONDS_EACH=${1:-5}
install_packages libclang-rt-22-dev
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
configure asan build-asan
build build-asan all
say "tests: asan"
ctest --test-dir build-asan --output-on-failure -j2 --timeout 900
configure tsan build-tsan
build build-tsan threaded-tests # the others have one thread
say "tests: tsan"
ctest --test-dir build-tsan --output-on-failure -j2 --timeout 900 -L threads
for fuzzer in build-asan/test/fuzz/*; do
  [ -x "$fuzzer" ] && [ -f "$fuzzer" ] || continue
  name=$(basename "$fuzzer")
  corpus=build-asan/corpus/$name
  mkdir -p "$corpus"
  [ "$name" = FuzzArtifact ] && cp build-asan/test/unit/toy.lathe "$corpus/" 2>/dev/null || true
  say "fuzz: $name for $SECONDS_EACH s"
  "$fuzzer" -max_total_time="$SECONDS_EACH" -max_len=65536 -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$corpus/crash-" \
    "$corpus" >"$corpus.log" 2>&1 || { tail -40 "$corpus.log" >&2; fail "$name found something, see $corpus.log"; }
done
say "sanitizers: nothing found"
