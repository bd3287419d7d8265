#!/bin/bash
# Every libFuzzer target at length, from the seeds and from what earlier runs found (build-asan/corpus): two minutes each, which is 46 minutes with
# the one that compiles whole ONNX models and gets twelve times as long.
#   test/full/fuzz.sh [SECONDS a target, default LATHE_FUZZ_SECONDS or 120]
exec "$(dirname "$0")/../../scripts/test-sanitizers.sh" "${1:-${LATHE_FUZZ_SECONDS:-120}}" --fuzz-only
