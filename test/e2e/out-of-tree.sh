#!/bin/bash
# Installs Lathe, then builds and tests examples/out-of-tree-pass against what was installed, away from the tree.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${LATHE_BUILD:-$ROOT/build}
WORK=$BUILD/test/e2e/out-of-tree
fail() { echo "error: $*" >&2; exit 1; }
rm -rf "$WORK"
mkdir -p "$WORK"
cmake --install "$BUILD" --prefix "$WORK/prefix" >"$WORK/install.log" || fail "the installation failed, see $WORK/install.log"

# The installed programs stand alone.
python3 "$ROOT/test/e2e/tiny_model.py" >"$WORK/tiny.mlir"
env -u LD_LIBRARY_PATH "$WORK/prefix/bin/lathe" compile "$WORK/tiny.mlir" -o "$WORK/tiny.lathe" --target native --activations f32 --quiet 2>"$WORK/compile.log" || fail "the installed lathe does not compile"
for tool in lathe-opt lathe-interp lathe-reduce lathe-lsp-server; do
  env -u LD_LIBRARY_PATH "$WORK/prefix/bin/$tool" --help >/dev/null || fail "the installed $tool does not start"
done
! grep -rIl "$ROOT" "$WORK/prefix/lib/cmake" || fail "the package names the source or build tree"

# build NAME SOURCE TARGET: a copy, so that nothing beside it is found by a relative path
build() {
  cp -r "$ROOT/$2" "$WORK/$1"
  { cmake -G Ninja -S "$WORK/$1" -B "$WORK/$1-build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="${CC:-clang-22}" \
      -DCMAKE_CXX_COMPILER="${CXX:-clang++-22}" -DCMAKE_PREFIX_PATH="$WORK/prefix" && ninja -C "$WORK/$1-build" "$3"; } \
    >"$WORK/$1.log" 2>&1 || { cat "$WORK/$1.log" >&2; fail "target $3 of $2 failed"; }
}

# A pass as a plugin, with its lit test.
build plugin examples/out-of-tree-pass check
grep -q 'Passed: 1' "$WORK/plugin.log" || fail "the plugin's test did not run, see $WORK/plugin.log"

# A tool of one's own over the static libraries.
build tool test/e2e/out-of-tree all
params=$("$WORK/tool-build/parse-tool" "$ROOT/examples/out-of-tree-pass/test/merge-scales.mlir")
[ "$params" = e ] || fail "parse-tool: expected the parameter 'e', found '$params'"

# A program that only runs artifacts: no LLVM, no MLIR.
build c examples/c all
! ldd "$WORK/c-build/generate" | grep -E 'LLVM|MLIR|not found' || fail "the C example needs more than the runtime"
"$BUILD/test/unit/MakeToyArtifact" "$WORK/toy.lathe"
answer=$("$WORK/c-build/generate" "$WORK/toy.lathe" "say a" 2>"$WORK/generate.log") || { cat "$WORK/generate.log" >&2; fail "the C example failed"; }
expected=$("$WORK/prefix/bin/lathe" run "$WORK/toy.lathe" --chat -p "say a" -n 200 --temp 0 2>/dev/null)
[ "$answer" ] && [ "$answer" = "$expected" ] || fail "the C example answered '$answer', lathe run '$expected'"
echo "installation: plugin, tool and C program build and run"
