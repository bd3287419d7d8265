#!/bin/bash
# What the runtime promises about itself: no compiler in it, no model in it, small, and only its C interface visible.
#   check-runtime.sh SOURCE_DIR LATHE LIBLATHE RELEASE
set -u
source=$1 lathe=$2 library=$3 release=$4
failed=0
complain() { echo "$*"; failed=1; }

for file in "$lathe" "$library"; do
  ldd "$file" | grep -E 'LLVM|MLIR' && complain "$file needs the compiler's libraries"
done
others=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^lathe_')
[ -z "$others" ] || [ "$release" = 0 ] || complain "$library exports more than lathe_*: $others"
bytes=$(stat -L -c %s "$library")
[ "$release" = 0 ] || [ "$bytes" -le 3145728 ] || complain "$library has $bytes bytes, expected at most 3 MiB"

cd "$source" || exit 1
wrong=$(grep -rnE '#include [<"](mlir|llvm|dialects|lib)/' runtime tools/lathe)
[ -z "$wrong" ] || complain "the runtime includes compiler headers: $wrong"
wrong=$(grep -rnE '#include "lathe/' runtime tools/lathe | grep -vE '"lathe/(base|artifact)/')
[ -z "$wrong" ] || complain "the runtime includes more than lathe/base and lathe/artifact: $wrong"
# Families, tensors and layers; text processing knows formats of tokenizers and is not searched.
wrong=$(grep -rniE 'llama|gemma|qwen|mistral|phi-?3|gpt|smollm|blk\.|attn|ffn|mlp|swiglu|rmsnorm|\brope' \
  runtime/artifact runtime/device runtime/kv runtime/engine runtime/text runtime/capi runtime/include)
[ -z "$wrong" ] || complain "the runtime names a model, layer or op: $wrong"
exit $failed
