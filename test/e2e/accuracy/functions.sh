# What the scripts that measure a model's accuracy share. Sourced behind scripts/common.sh, with BUILD, LATHE (the driver) and WORK (a folder with text.txt) set.
compile() { "$LATHE" compile "$1" -o "$2" --quiet "${@:3}" 2>>"$WORK/compile.log" || { tail -5 "$WORK/compile.log" >&2; exit 1; }; }

# reference MODEL: the float32 artifact that arithmetic is held against, made again when model or compiler is newer.
reference() {
  REFERENCE=$WORK/$(basename "$1" .gguf)-f32.lathe
  [ "$REFERENCE" -nt "$1" ] && [ "$REFERENCE" -nt "$BUILD/libexec/lathe-compiler" ] || compile "$1" "$REFERENCE" --activations f32 --kv f32 --target native "${@:2}"
}
# kld FILE LIMIT: mean KL divergence of an artifact against $REFERENCE.
kld() {
  "$LATHE" eval "$1" --text "$WORK/text.txt" --ctx 512 --against "$REFERENCE" --json >"$WORK/eval.json"
  python3 - "$WORK/eval.json" "$(basename "$1" .lathe)" "$2" <<'PY'
import json, sys
e = json.load(open(sys.argv[1]))
print(f"{sys.argv[2]}: {e['tokens']} tokens, mean KLD {e['mean_kld']:.5f} (limit {sys.argv[3]}), 99 % {e['kld_p99']:.4f}, top token equal {100 * e['top1_agreement']:.1f} %, perplexity {e['perplexity']:.2f}")
sys.exit(not e["mean_kld"] <= float(sys.argv[3]))
PY
}
# against_interpreter MODEL TOKENS: the reference itself, fused module on the interpreter against compiled code.
against_interpreter() {
  local name=$WORK/interp ids
  ids=$(python3 -c "print(*[(7 * i * i + 3 * i + 1) % 40000 for i in range($2)])")
  "$LATHE" compile "$1" -o "$name.lathe" --activations f32 --kv f32 --max-seq 1024 --target native --dump-phases="$name" --quiet
  "$BUILD/bin/lathe-interp" "$name/fuse.mlir" --tokens "${ids// /,}" --raw "$name.f32"
  # shellcheck disable=SC2086 # ids are a list
  "$BUILD/test/e2e/CompareLogits" "$name.lathe" "$name.f32" 1e-4 $ids
  rm "$name.f32" "$name.lathe"
}
