#!/bin/bash
# GPU code without a GPU: tiny models and SmolLM2's first layers on the PTX emulator against the interpreter, tiny ones against x86
# bit for bit, and P1's fuzz, of steps and of the request engine. LATHE_FULL=1 compares every chip; the fuzz runs one of each family of kernels.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/ptx
CHIPS=${LATHE_FULL:+sm_80,sm_89,sm_90a,sm_100a,sm_120a}
CHIPS=${CHIPS:-sm_80}
FLOATS8=${LATHE_FULL:+sm_89,sm_90a,sm_100a,sm_120a} # chips with 8-bit floats
FLOATS8=${FLOATS8:-sm_90a} # whose launches overlap, too: the emulator checks that they wait for each other
mkdir -p "$WORK"
TOKENS=$(python3 -c "print(*[(7 * i * i + 3 * i) % 301 for i in range(21)])")

# compile ARGUMENTS: a kernel that spills registers, or serialises matrix instructions, is a warning to users and an error here.
compile() {
  local log=$WORK/compile.log
  "$BUILD/bin/lathe" compile "$@" >/dev/null 2>"$log" || { cat "$log" >&2; return 1; }
  cat "$log" >&2
  if grep -E 'warning: (kernel|sm_)' "$log" >&2; then echo "error: ptxas complains of a kernel of: lathe compile $*" >&2; return 1; fi
}
# model TARGET NAME COMPILE-OPTIONS -- MODEL-OPTIONS
model() {
  local target=$1 name=$2 options=()
  shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  python3 "$ROOT/test/e2e/tiny_model.py" --layers 2 --max-seq 64 "$@" >"$WORK/$name.mlir"
  compile "$WORK/$name.mlir" -o "$WORK/$name.lathe" --target "$target" --max-rows "${ROWS:-48}" "${options[@]}" --dump-phases="$WORK/$name" --quiet
}
# compare NAME TOLERANCE: the GPU's fused module on the interpreter against its PTX on the emulator.
compare() {
  local name=$1 tolerance=$2 chip mode
  "$BUILD/bin/lathe-interp" "$WORK/$name/fuse.gpu.mlir" --tokens "${TOKENS// /,}" --raw "$WORK/$name.f32"
  for chip in ${CHIPS//,/ }; do
    for mode in lazy eager; do
      # shellcheck disable=SC2086 # TOKENS is a list
      LATHE_EMULATOR_MODE=$mode "$BUILD/test/e2e/CompareLogits" --device "emulator:$chip" "$WORK/$name.lathe" "$WORK/$name.f32" "$tolerance" $TOKENS
    done
  done
}
interpreted() { # NAME TOLERANCE COMPILE-OPTIONS -- MODEL-OPTIONS
  model "$CHIPS" "$1" "${@:3}"
  compare "$1" "$2"
}
# equal NAME COMPILE-OPTIONS -- MODEL-OPTIONS: x86 and PTX give the same bits.
equal() {
  local name=$1
  model "native,$CHIPS" "$@"
  # shellcheck disable=SC2086
  "$BUILD/test/e2e/CompareDevices" "$WORK/$name.lathe" cpu emulator $TOKENS
}

# bf16 activations: a value near a rounding boundary may fall on the other side, 1/256 of it.
interpreted auto 1e-2 --
interpreted floats 1e-2 --kv bf16 -- --weights bf16,f16,f32,e4m3 --embedding e4m3 --head-norms
interpreted kquants 1e-2 --kv int8 -- --weights q4_0,q8_0 --hidden 128 --head 64 --heads 4 --kv-heads 1 --ffn 192 --window 40
equal int8 --activations int8 -- --head-norms
equal int8z --activations int8z --kv int8 -- --weights q4_0,q8_0,int8,int4_g32 --hidden 128 --ffn 192
CHIPS=$FLOATS8 interpreted kv-e4m3 1e-2 --kv e4m3 -- --weights q4_0,bf16 --window 40
# The newest chips, whose kernels are those of mma.sync and overlap: all of them with LATHE_FULL.
[ "${LATHE_FULL:-}" ] || CHIPS=sm_100a,sm_120a ROWS=32 interpreted newest 1e-2 --kv e4m3 -- --weights q4_0,bf16 --layers 1 --window 40
CHIPS=sm_80${LATHE_FULL:+,$FLOATS8} interpreted e4m3 5e-2 --activations e4m3 -- --weights e4m3,e4m3,bf16
CHIPS=$FLOATS8 equal kv-e4m3-int8 --kv e4m3 --activations int8 -- --head-norms
"$BUILD/bin/lathe" inspect "$WORK/kv-e4m3-int8.lathe" | grep -q '2 layers.*pages of 32 tokens, 9216 bytes a page' # 2 x 2 x 2 x (32 x 32 + 32 x 4)
equal f32 --activations f32 --kv f32 -- --weights int4z_g32,f16,e4m3 --softcap 20 --untied --parallel

# Weights of 256 k and more are for wgmma, the others of the same model (k = 192) for mma.sync.
CHIPS=sm_90a interpreted wgmma 1e-2 -- --weights q4_0,bf16,q8_0,e4m3 --hidden 256 --head 32 --ffn 2048 # down: two segments of K, a cluster each
for family in wgmma.mma_async mma.sync.aligned.m16n8k16; do grep -qa $family "$WORK/wgmma.lathe"; done
"$BUILD/test/e2e/ExactnessFuzz" --device emulator:sm_90a "${LATHE_SEED:-1}" "${LATHE_TRIALS:-2}" "$WORK/wgmma.lathe"
"$BUILD/test/e2e/EngineFuzz" --device emulator:sm_90a --context 64 --prompt 40 --new 8 --requests 6 "${LATHE_SEED:-1}" 1 "$WORK/wgmma.lathe"
# A mix of families fails the fuzz: the same model in a second file whose matmuls are all mma.sync, since bodies of megakernels are.
ROWS=8 model sm_90a families --megakernel -- --weights q4_0,bf16,q8_0,e4m3 --hidden 256 --head 32 --ffn 2048
if "$BUILD/test/e2e/ExactnessFuzz" --device emulator:sm_90a 1 4 "$WORK/wgmma.lathe" "$WORK/families.lathe" >"$WORK/families.log" 2>&1; then
  echo "error: expected the fuzz to fail on a mix of wgmma and mma.sync" >&2; exit 1
fi
grep -q "^error: trial [0-9]*: .*expected .*families.lathe" "$WORK/families.log" || { cat "$WORK/families.log" >&2; exit 1; }
# The same of 8-bit floats, those of few outputs by mma.sync; bf16 beside them.
CHIPS=sm_90a interpreted wgmma-e4m3 5e-2 --activations e4m3 -- --weights e4m3,e4m3,bf16 --hidden 256 --head 32 --ffn 2048
for family in 'wgmma.mma_async.*e4m3.e4m3' 'mma.sync.aligned.m16n8k32.*e4m3'; do grep -qa "$family" "$WORK/wgmma-e4m3.lathe"; done
"$BUILD/test/e2e/ExactnessFuzz" --device emulator:sm_90a "${LATHE_SEED:-1}" "${LATHE_TRIALS:-2}" "$WORK/wgmma-e4m3.lathe"
model "$CHIPS" pages --page 16 -- # auto with another page
"$BUILD/test/e2e/ExactnessFuzz" --device emulator "${LATHE_SEED:-1}" "${LATHE_TRIALS:-6}" "$WORK/auto.lathe" "$WORK/pages.lathe"
"$BUILD/test/e2e/ExactnessFuzz" --device emulator "${LATHE_SEED:-1}" "${LATHE_TRIALS:-2}" "$WORK/floats.lathe"
"$BUILD/test/e2e/ExactnessFuzz" --device emulator:sm_90a "${LATHE_SEED:-1}" "${LATHE_TRIALS:-2}" "$WORK/kv-e4m3.lathe"
# Every other trial does steps of up to 16 rows by megakernels. The same model on sm_90a, where wgmma makes way; one run of each with the race check.
model "$CHIPS" mega --megakernel -- --head-norms
"$BUILD/test/e2e/ExactnessFuzz" --device emulator+megakernel "${LATHE_SEED:-1}" "${LATHE_TRIALS:-4}" "$WORK/mega.lathe" | tee "$WORK/mega.log"
grep -q 'variants any x[0-9]* any megakernel x[1-9]' "$WORK/mega.log"
ROWS=8 model sm_90a mega90 --megakernel --kv e4m3 -- --weights q4_0,bf16 --window 40 --hidden 256 --head 64 --heads 4 --kv-heads 2
if grep -qa wgmma.mma_async "$WORK/mega90.lathe"; then echo "error: a megakernel beside wgmma" >&2; exit 1; fi
"$BUILD/test/e2e/ExactnessFuzz" --device emulator:sm_90a+megakernel "${LATHE_SEED:-1}" "${LATHE_TRIALS:-2}" "$WORK/mega90.lathe"
# In mega90 matmuls of a layer's weights of two types have no barrier between them.
grep -q 'plan.launch.*barrier false' "$WORK/mega90/plan.gpu.mlir" || { echo "error: expected launches without a barrier in mega90" >&2; exit 1; }
for name in mega mega90; do
  said() { "$BUILD/bin/lathe" run "$WORK/$name.lathe" --device emulator --ids --prompt-ids 1,2,3 -n 3 --temp 0 "$@" 2>"$WORK/$name.log"; }
  plain=$(said)
  [ "$(LATHE_EMULATOR_RACES=1 said --device-plan megakernel)" = "$plain" ] || { cat "$WORK/$name.log" >&2; echo "error: $name: a megakernel changes what is said: expected $plain" >&2; exit 1; }
done
EXPECT= TREES= # of so few schedules, with the seed that was tried
if [ -z "${LATHE_SEED:-}${LATHE_SCHEDULES:-}" ]; then EXPECT="--expect recomputed,cached,forks,cancels" TREES="--expect trees"; fi
# shellcheck disable=SC2086
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 64 --prompt 40 --new 16 --requests 8 $EXPECT "${LATHE_SEED:-1}" "${LATHE_SCHEDULES:-12}" "$WORK/pages.lathe" "$WORK/auto.lathe"
model sm_90a long --page 16 --kv e4m3 -- --max-seq 128 # sequences that outgrow the memory: KV to the host and back
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 128 --prompt 8 --new 100 --requests 8 --save 1 "${LATHE_SEED:-1}" 6 "$WORK/long.lathe"
DRAFTS= # as above
if [ -z "${LATHE_SEED:-}${LATHE_SCHEDULES:-}" ]; then DRAFTS="--expect accepted,program,recomputed"; fi
model "${CHIPS%%,*}" skip --page 16 --speculate layerskip:1 -- # a draft program on the step's KV
# shellcheck disable=SC2086
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 64 --prompt 40 --new 16 --requests 14 --new 20 $DRAFTS "${LATHE_SEED:-3}" 5 "$WORK/skip.lathe"
python3 "$ROOT/test/e2e/tiny_model.py" --layers 2 --max-seq 64 >"$WORK/small.mlir" # the model itself as its draft, with KV of its own
model "${CHIPS%%,*}" own --page 16 --speculate "draft:$WORK/small.mlir" --
# shellcheck disable=SC2086
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 64 --prompt 40 --new 16 --requests 14 --new 20 $DRAFTS "${LATHE_SEED:-3}" 5 "$WORK/own.lathe"
rm -rf "$WORK/eagle"
python3 "$ROOT/test/e2e/tiny_eagle.py" "$WORK/eagle" --hidden 96 --vocab 301 --heads 6 --kv-heads 2 --head 32 --ffn 160 --type BF16
model "${CHIPS%%,*}" eagle --page 16 --speculate eagle --speculate-weights "$WORK/eagle" -- --max-seq 128 # and one that saves what it preempts
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 128 --prompt 8 --new 100 --requests 8 --save 1 "${LATHE_SEED:-1}" 3 "$WORK/eagle.lathe"
python3 "$ROOT/test/e2e/tiny_heads.py" "$WORK/medusa" --hidden 96 --vocab 301 --heads 2 --type BF16
model "${CHIPS%%,*}" heads --page 16 --speculate medusa --speculate-weights "$WORK/medusa" -- # a draft over hidden rows
for head in 0 1; do
  "$BUILD/bin/lathe-interp" "$WORK/heads/fuse.gpu.mlir" --function draft --result $head --tokens "${TOKENS// /,}" --raw "$WORK/heads$head.f32"
done
# shellcheck disable=SC2086
"$BUILD/test/e2e/CompareHeads" --device emulator "$WORK/heads.lathe" "$WORK/heads" 1e-2 $TOKENS
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 64 --prompt 40 --new 16 --requests 8 "${LATHE_SEED:-1}" 3 "$WORK/heads.lathe"
python3 "$ROOT/test/e2e/tiny_eagle.py" "$WORK/eagle3" --third --hidden 96 --vocab 301 --draft-vocab 160 --heads 6 --kv-heads 2 --head 32 --ffn 160 --type BF16
model "${CHIPS%%,*}" layer --page 16 --speculate eagle3 --speculate-weights "$WORK/eagle3" -- --layers 3 # a draft over features of the step and its own rows
"$BUILD/bin/lathe-interp" "$WORK/layer/fuse.gpu.mlir" --function draft --tokens "${TOKENS// /,}" --raw "$WORK/layer0.f32"
# shellcheck disable=SC2086
"$BUILD/test/e2e/CompareHeads" --device emulator "$WORK/layer.lathe" "$WORK/layer" 1e-2 $TOKENS
"$BUILD/test/e2e/EngineFuzz" --device emulator --context 64 --prompt 40 --new 16 --requests 8 "${LATHE_SEED:-1}" 3 "$WORK/layer.lathe"

# Drafts of a layer and of heads in trees. With integer products x86 and PTX give the same bits, so the same schedules draft, accept and say the same.
for method in eagle3 medusa; do
  model "native,${CHIPS%%,*}" trees --page 16 --activations int8 --speculate $method --speculate-weights "$WORK/$method" -- --layers 3 --max-seq 128
  for device in cpu emulator; do
    # shellcheck disable=SC2086
    "$BUILD/test/e2e/EngineFuzz" --device $device $TREES --context 128 --prompt 40 --new 24 --requests 8 "${LATHE_SEED:-1}" 3 "$WORK/trees.lathe" | tee "$WORK/trees.$device"
  done
  cmp "$WORK/trees.cpu" "$WORK/trees.emulator" || { echo "error: a schedule drafts otherwise on the emulator" >&2; exit 1; }
done
# A layer that knows what follows: a step of the emulator says several tokens, and the tree's other choices do no harm.
sizes="--hidden 128 --vocab 257 --heads 4 --kv-heads 2 --head 32 --ffn 256"
# shellcheck disable=SC2046,SC2086 # lists
for form in "" --headless; do
  python3 "$ROOT/test/e2e/tiny_model.py" --layers 2 --max-seq 128 --silent-from 0 $sizes $form >"$WORK/still$form.mlir"
  "$BUILD/bin/lathe" compile "$WORK/still$form.mlir" --compile-to=configure --quiet >"$WORK/still$form.configured.mlir"
  "$BUILD/bin/lathe-interp" "$WORK/still$form.configured.mlir" $(seq -f "--tokens %g" 0 256) --raw "$WORK/still$form.f32"
done
rm -rf "$WORK/right"
# shellcheck disable=SC2086
python3 "$ROOT/test/e2e/tiny_eagle.py" "$WORK/right" $sizes --follow "$WORK/still.f32" "$WORK/still--headless.f32"
# shellcheck disable=SC2086
model "${CHIPS%%,*}" right --page 16 --speculate eagle2 --speculate-weights "$WORK/right" -- --max-seq 128 --silent-from 0 $sizes
said() { "$BUILD/bin/lathe" run "$WORK/right.lathe" --device emulator --ids --prompt-ids 1 -n 60 --temp 0 "$@" 2>"$WORK/right.log"; }
plain=$(said)
[ "$(said --speculate eagle2 --draft-cost none)" = "$plain" ] || { echo "error: trees on the emulator change what is said: expected $plain" >&2; exit 1; }
read -r steps drafts accepted < <(sed -n 's/.* \([0-9]*\) steps | \([0-9]*\) drafts, \([0-9]*\) accepted .*/\1 \2 \3/p' "$WORK/right.log") || { cat "$WORK/right.log" >&2; exit 1; }
[ "$steps" -lt 20 ] && [ "$accepted" -gt 40 ] && [ "$drafts" -gt "$accepted" ] || { cat "$WORK/right.log" >&2; exit 1; }

GGUF=${LATHE_MODEL_DIR:-$BUILD/demo}/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -f "$GGUF" ]; then # two layers of thirty
  python3 "$ROOT/test/e2e/shorten_gguf.py" "$GGUF" 2 "$WORK/smollm2.gguf"
  compile "$WORK/smollm2.gguf" -o "$WORK/smollm2.lathe" --target "$CHIPS" --max-rows 32 --max-seq 64 --dump-phases="$WORK/smollm2" --quiet
  TOKENS="504 3575 282 4649 314 7042 30"
  compare smollm2 1e-2
else
  echo "note: '$GGUF' is not there, so SmolLM2 is left out" >&2
fi

# The command a user types, and what the file says of itself.
"$BUILD/bin/lathe" run "$WORK/auto.lathe" --device emulator --prompt-ids 1,2,3 -n 4 --json >"$WORK/run.json"
grep -q '"variant":"sm_80"' "$WORK/run.json"
"$BUILD/bin/lathe" inspect "$WORK/auto.lathe" | grep -q 'ptx *sm_80'
# A weight is there once, however many targets read it.
weights() { ROWS=8 model "$1" once "${@:2}" -- --layers 1 --weights q4_0,bf16,q8_0 && "$BUILD/bin/lathe" inspect "$WORK/once.lathe" | awk '$1 == "weights" { print $2 }'; }
alone=$(weights x86)
all=$(weights x86,sm_80,sm_90a)
[ -n "$alone" ] && [ "$all" = "$alone" ] || { echo "error: weights: expected $alone bytes with three targets, as with x86 alone, found $all" >&2; exit 1; }
# On a terminal it says how far the weights are.
python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device emulator --prompt-ids 1 -n 1 >"$WORK/terminal.log"
grep -q "weights to the device: MB" "$WORK/terminal.log" || { cat "$WORK/terminal.log" >&2; exit 1; }

# Without NVIDIA's driver the message says so; on a machine that has it there is nothing to see here.
if ! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device cuda --prompt-ids 1,2,3 -n 4 >/dev/null 2>"$WORK/cuda.log"; then
  grep -q "device 'cuda'" "$WORK/cuda.log" || { cat "$WORK/cuda.log" >&2; exit 1; }
fi
! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --prompt-ids 1 2>"$WORK/cpu.log"
grep -q "the artifact has no code for x86-64" "$WORK/cpu.log"
! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device tpu --prompt-ids 1 2>"$WORK/device.log"
grep -q "option '--device': expected cpu, cuda or emulator, found 'tpu'" "$WORK/device.log"
! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device cuda --variant sm_80 --prompt-ids 1 2>"$WORK/variant.log"
grep -q "option '--variant': expected none with '--device cuda', which takes the best code its GPU runs, found 'sm_80'" "$WORK/variant.log"
! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device emulator --device-plan megakernel --prompt-ids 1 2>"$WORK/plan.log"
grep -q "the artifact has no megakernels for sm_80, found kernels to launch one by one; compile with '--megakernel', which warns where it makes none" "$WORK/plan.log"
! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device emulator --device-plan grid --prompt-ids 1 2>"$WORK/plan.log"
grep -q "option '--device-plan': expected graph or megakernel, found 'grid'" "$WORK/plan.log"
! "$BUILD/bin/lathe" run "$WORK/auto.lathe" --device-plan graph --prompt-ids 1 2>"$WORK/plan.log"
grep -q "option '--device-plan': expected none with '--device cpu', found 'graph'" "$WORK/plan.log"
! "$BUILD/bin/lathe" explain "$WORK/auto.lathe" --device emulator >/dev/null 2>"$WORK/explain.log"
grep -q "expected device 'cpu', found 'emulator'" "$WORK/explain.log"

# The bundle for a day with a GPU, packed small and run on the emulator out of a folder of its own.
rm -rf "$WORK/bundle" && mkdir -p "$WORK/bundle"
LATHE_BUILD=$BUILD LATHE_BUILT=1 "$ROOT/scripts/gpu.sh" pack --quick "$WORK/bundle.tar.gz"
tar -C "$WORK/bundle" -xzf "$WORK/bundle.tar.gz"
(cd / && env -i PATH=/usr/bin:/bin "$WORK/bundle/gpu.sh" run --device emulator) >"$WORK/bundle.log"
grep -q "bit-equal on cpu and emulator" "$WORK/bundle.log"
grep -q "weights GB/s  of copy" "$WORK/bundle.log"
for said in "by megakernels" "launches one by one" "load: PTX of .* cubin of" "mma.sync in e4m3 .* wgmma in bf16" "^depth batch" "against the emulator"; do
  grep -q "$said" "$WORK/bundle.log" || { echo "error: expected '$said' of the bundle's measurements" >&2; exit 1; }
done
