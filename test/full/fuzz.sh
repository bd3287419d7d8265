#!/bin/bash
# Every libFuzzer target at length, from the seeds and from what earlier runs found (build-asan/corpus): 15 s each and twelve times as long
# for the one that compiles whole ONNX models, which is 6 minutes; LATHE_LONG=1: two minutes each, 46 in all.
#   test/full/fuzz.sh [SECONDS a target, default LATHE_FUZZ_SECONDS]
exec "$(dirname "$0")/../../scripts/test-sanitizers.sh" "${1:-${LATHE_FUZZ_SECONDS:-$([ "${LATHE_LONG:-}" ] && echo 120 || echo 15)}}" --fuzz-only
