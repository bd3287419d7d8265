#!/bin/sh
# lathe-ptx-emu from outside: arguments in, text and exit codes out. usage: tool-test.sh TOOL FOLDER_OF_THIS_FILE
tool=$1 here=$2 work=$(mktemp -d) failed=0
trap 'rm -rf "$work"' EXIT
expect() { # name, expected exit code, expected piece of the output, command...
  name=$1 code=$2 piece=$3
  shift 3
  out=$("$@" 2>&1)
  found=$?
  if [ "$found" != "$code" ] || ! printf '%s' "$out" | grep -qF -- "$piece"; then
    printf '%s: exit %s (expected %s), expected "%s" in:\n%s\n' "$name" "$found" "$code" "$piece" "$out"
    failed=1
  fi
}
scan="$tool $here/cuda/scan.ptx --kernel scan --block 512 --arg buf:i32:512:iota --arg buf:i32:512 --arg i32:512"
expect help 0 "usage: lathe-ptx-emu" "$tool" --help
expect list 0 "scan(8 bytes, 8 bytes, 4 bytes); 64 bytes of shared memory" "$tool" "$here/cuda/scan.ptx"
expect print 0 "buffer 1: 0 1 3 6 10 ..." $scan --print 1:5
expect save 0 "buffer 1: 0" $scan --print 1:1 --save "1=$work/out"
expect compare 0 "equal" $scan --compare "1=$work/out" --mode eager --seed 3 --race
expect different 1 "different" $scan --compare "0=$work/out"
expect stats 0 "shared: " $scan --stats
expect json 0 '"warp_instructions": ' $scan --json
expect bounds 1 "global access out of bounds: 4 bytes at offset 2048 of 'argument 1'" "$tool" "$here/cuda/scan.ptx" --kernel scan --grid 2 --block 512 --arg buf:i32:1024 --arg buf:i32:512 --arg i32:1024
expect limit 1 "more than 10 instructions" $scan --limit 10
expect kernel 1 "no kernel 'other'; the module has: scan" "$tool" "$here/cuda/scan.ptx" --kernel other
expect arguments 1 "expected 3 arguments, found 0" "$tool" "$here/cuda/scan.ptx" --kernel scan
expect type 1 "expected buf:TYPE:COUNT or TYPE:VALUE" $scan --arg f33:1
expect option 1 "unknown option '--wrong'" $scan --wrong 1
expect target 1 "the emulated device is sm_75" $scan --sm 75
expect file 1 "cannot open" "$tool" "$work/none.ptx"
printf '.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  frob.b32 %%r1;\n}\n' > "$work/bad.ptx"
expect syntax 1 "bad.ptx: ptx line 6: frob.b32: unknown instruction" "$tool" "$work/bad.ptx"
exit $failed
