#!/bin/bash
# Everything for a day with a GPU, prepared without one.
#   scripts/gpu.sh pack [--quick] [FILE.tar.gz]   builds and packs programs, artifacts and reference results (at most 60 MiB; build/lathe-gpu.tar.gz)
#   scripts/gpu.sh run [--device cuda|emulator]   checks the device against the interpreter, x86 and itself, then measures
# The bundle holds this script: unpack it anywhere and say `./gpu.sh run`. It needs the NVIDIA driver, nothing else, and no
# network. --quick leaves out the large shapes, whose weights the runtime makes up; the emulator measures none of them either.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
say() { printf '\n== %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

pack() {
  local quick='' out='' root build work chips=sm_80,sm_89,sm_90a,sm_100a,sm_120a tokens
  while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 chips=sm_80 ;;
    *) out=$1 ;;
    esac
    shift
  done
  root=$(cd "$HERE/.." && pwd)
  build=${LATHE_BUILD:-$root/build}
  work=$build/gpu-bundle
  out=${out:-$build/lathe-gpu.tar.gz}
  rm -rf "$work"
  mkdir -p "$work/tiny"
  [ "${LATHE_BUILT:-}" ] || ninja -C "$build" -j"${LATHE_JOBS:-2}" lathe-compiler lathe-interp lathe-gpu-bench CompareLogits CompareDevices ExactnessFuzz EngineFuzz >&2
  cp "$HERE/gpu.sh" "$build/bin/lathe-gpu-bench" "$build"/test/e2e/{CompareLogits,CompareDevices,ExactnessFuzz,EngineFuzz} "$work"
  strip "$work"/lathe-gpu-bench "$work"/Compare* "$work"/{Exactness,Engine}Fuzz
  local program library newest
  for program in lathe-gpu-bench CompareLogits CompareDevices ExactnessFuzz EngineFuzz; do
    for library in $(ldd "$work/$program" | awk '{print $1}'); do
      case $(basename "$library") in
      linux-vdso.so.1 | libc.so.6 | libm.so.6 | ld-linux-x86-64.so.2) ;;
      *) fail "$program needs $library; expected the C library alone" ;;
      esac
    done
  done

  # A driver is loaded with dlopen, so the C library stays dynamic; the machine's may be as old as Ubuntu 22.04's.
  for program in lathe-gpu-bench CompareLogits CompareDevices ExactnessFuzz EngineFuzz; do
    newest=$(objdump -T "$work/$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    [ "$(printf '%s\nGLIBC_2.35\n' "$newest" | sort -V | tail -1)" = GLIBC_2.35 ] || fail "$program needs $newest; expected GLIBC_2.35 or earlier"
  done

  say "bundle: tiny models and what the interpreter makes of them"
  tokens=$(python3 -c "print(*[(7 * i * i + 3 * i) % 301 for i in range(21)])")
  echo "$tokens" >"$work/tiny/tokens"
  # tiny NAME TARGET COMPILE-OPTIONS -- MODEL-OPTIONS
  tiny() {
    local name=$1 target=$2 options=()
    shift 2
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    python3 "$root/test/e2e/tiny_model.py" --layers 2 --max-seq 64 "$@" >"$build/gpu-bundle.mlir"
    "$build/libexec/lathe-compiler" compile "$build/gpu-bundle.mlir" -o "$work/tiny/$name.lathe" --target "$target" --max-rows 48 "${options[@]}" --dump-phases="$build/gpu-bundle.phases" --quiet
  }
  reference() {
    "$build/bin/lathe-interp" "$build/gpu-bundle.phases/fuse.gpu.mlir" --tokens "${tokens// /,}" --raw "$work/tiny/$1.f32"
  }
  tiny auto "$chips" --
  reference auto
  tiny megakernel "$chips" --megakernel -- --head-norms
  reference megakernel
  tiny equal-int8 "avx2,$chips" --activations int8 -- --head-norms
  if [ ! "$quick" ]; then
    tiny floats "$chips" --kv bf16 -- --weights bf16,f16,f32 --embedding bf16 --head-norms
    reference floats
    tiny kquants "$chips" --kv int8 -- --weights q4_0,q8_0 --hidden 128 --head 64 --heads 4 --kv-heads 1 --ffn 192 --window 40
    reference kquants
    tiny kv-e4m3 sm_89,sm_90a,sm_100a,sm_120a --kv e4m3 --
    reference kv-e4m3
    tiny wgmma sm_90a -- --weights q4_0,bf16,q8_0 --hidden 256 --head 32 --ffn 2048 # K of 256 and more, and in two segments
    reference wgmma
    tiny equal-int8z "avx2,$chips" --activations int8z --kv int8 -- --weights q4_0,q8_0,int8,int4_g32 --hidden 128 --ffn 192
    say "bundle: layers of a model of 7 billion weights, in bf16, 8 and 4 bits"
    local weights more target
    for weights in bf16 q8_0 int4_g32 int4_g32-megakernel e4m3; do
      more=() target=$chips
      [[ $weights != *-megakernel ]] || more=(--megakernel)
      [ "$weights" != e4m3 ] || more=(--activations e4m3 --kv e4m3) target=sm_89,sm_90a,sm_100a,sm_120a
      python3 "$root/test/e2e/tiny_model.py" --layers 4 --hidden 4096 --heads 32 --kv-heads 8 --head 128 --ffn 14336 --vocab 32000 --max-seq 8192 \
        --weights "${weights%-*}" --embedding "${weights%-*}" >"$build/gpu-bundle.mlir"
      "$build/libexec/lathe-compiler" compile "$build/gpu-bundle.mlir" -o "$work/large-$weights.lathe" --target "$target" --max-rows 2048 --weights synthetic:1 "${more[@]}" --quiet
    done
  fi
  tar -C "$work" -czf "$out" .
  local bytes
  bytes=$(stat -c %s "$out")
  [ "$bytes" -le $((60 << 20)) ] || fail "expected a bundle of at most 60 MiB, found $bytes bytes"
  say "$out: $bytes bytes"
}

run() {
  local device=cuda
  [ "${1:-}" != --device ] || device=$2
  cd "$HERE"
  [ -f tiny/tokens ] || fail "'$HERE' is no unpacked bundle: pack one with 'scripts/gpu.sh pack', unpack it and run its gpu.sh"
  local tokens file name plan here capability='' chip=''
  here=$(mktemp -d)/emulator
  if [ "$device" = cuda ]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1) || true
    case $capability in # whose code the device takes, and so the emulator beside it
    12.*) chip=:sm_120a ;;
    10.*) chip=:sm_100a ;;
    9.0) chip=:sm_90a ;;
    8.9) chip=:sm_89 ;;
    *) chip=:sm_80 ;;
    esac
  fi
  tokens=$(cat tiny/tokens)
  say "checks: the interpreter's tokens, x86's bits, the emulator's values, promise P1"
  for file in tiny/*.lathe; do
    name=${file%.lathe}
    if [ "$name" = tiny/kv-e4m3 ] && [ "$chip" = :sm_80 ]; then
      say "$name left out: a GPU without 8-bit floats"
      continue
    fi
    if [ "$name" = tiny/wgmma ] && [ "$device" = cuda ] && [ "$chip" != :sm_90a ]; then
      say "$name left out: a GPU without wgmma"
      continue
    fi
    # shellcheck disable=SC2086 # a list
    case $name in
    tiny/equal-*) ./CompareDevices "$file" cpu "$device" $tokens ;;
    *)
      ./CompareLogits --device "emulator$chip" --save "$here.f32" "$file" "$name.f32" 1e-2 $tokens
      ./CompareLogits --device "$device" "$file" "$name.f32" 1e-2 $tokens
      # The device against the emulator itself, of the code that the device takes: what is left is the rounding of sums in mma.
      ./CompareLogits --device "$device" "$file" "$here.f32" 1e-2 $tokens | sed 's/$/, against the emulator/'
      ;;
    esac
    plan=
    [ "$name" != tiny/megakernel ] || plan=+megakernel # every other trial, against launches one by one
    ./ExactnessFuzz --device "$device$plan" 1 "$([ "$device" = emulator ] && echo 2 || echo 20)" "$file"
    # The engine over it: prefix hits, forks, aborts, preemption by recomputing and by copies to the host and back.
    ./EngineFuzz --device "$device" --context 64 --prompt 40 --new 16 --requests 8 1 "$([ "$device" = emulator ] && echo 1 || echo 90)" "$file"
    [ "$device" = emulator ] || ./EngineFuzz --device "$device" --context 64 --prompt 8 --new 50 --requests 8 --save 1 1 90 "$file" # ptx.sh has it there
  done
  say "measurements"
  if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,memory.total --format=csv,noheader; fi
  local files=()
  for file in large-*.lathe; do
    [ "$chip$file" = :sm_80large-e4m3.lathe ] || files+=("$file")
  done
  # The emulator would take days for large shapes.
  [ -f "${files[0]}" ] && [ "$device" != emulator ] || files=(tiny/auto.lathe tiny/megakernel.lathe)
  ./lathe-gpu-bench --device "$device" --seconds "$([ "$device" = emulator ] && echo 0 || echo 2)" "${files[@]}"
  if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    say "PyTorch: bf16 products of the same shapes"
    python3 - <<'PY'
import torch, time
for m in (1, 8, 2048):
    w, x = torch.randn(28672, 4096, device="cuda", dtype=torch.bfloat16), torch.randn(m, 4096, device="cuda", dtype=torch.bfloat16)
    best = 1e9
    for _ in range(50):
        torch.cuda.synchronize(); t = time.perf_counter(); x @ w.T; torch.cuda.synchronize(); best = min(best, time.perf_counter() - t)
    print(f"{m:5} rows: {best * 1e6:9.1f} us, {w.numel() * 2 / best / 1e9:8.1f} GB/s of weights, {2 * m * w.numel() / best / 1e12:7.2f} TFLOP/s")
PY
  fi
  if command -v llama-bench >/dev/null && [ "${LATHE_GGUF:-}" ]; then
    say "llama.cpp on $LATHE_GGUF"
    llama-bench -m "$LATHE_GGUF" -ngl 99
  fi
}

case ${1:-} in
pack) shift; pack "$@" ;;
run) shift; run "$@" ;;
*) fail "expected pack or run, found '${1:-}'" ;;
esac
