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
env -u LD_LIBRARY_PATH "$WORK/prefix/bin/lathe" compile --help >/dev/null || fail "lathe does not find its compiler in libexec"
for tool in lathe-opt lathe-interp lathe-reduce lathe-lsp-server; do
  env -u LD_LIBRARY_PATH "$WORK/prefix/bin/$tool" --help >/dev/null || fail "the installed $tool does not start"
done
! grep -rIl "$ROOT" "$WORK/prefix/lib/cmake" || fail "the package names the source or build tree"

# pass developers: a plugin
cp -r "$ROOT/examples/out-of-tree-pass" "$WORK/example"
cmake -G Ninja -S "$WORK/example" -B "$WORK/example-build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="${CXX:-clang++-22}" \
  -DCMAKE_C_COMPILER="${CC:-clang-22}" -DCMAKE_PREFIX_PATH="$WORK/prefix" >"$WORK/configure.log" 2>&1 ||
  { cat "$WORK/configure.log" >&2; fail "the example does not configure"; }
ninja -C "$WORK/example-build" check
