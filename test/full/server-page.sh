#!/bin/bash
# The built-in page in headless Chromium (Debian's, 100 MB to download).
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
VENV=$BUILD/venv-page
command -v chromium >/dev/null || install_packages chromium
if [ ! -x "$VENV/bin/python" ]; then
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check websockets
fi
"$VENV/bin/python" "$ROOT/test/e2e/server/page.py" "$BUILD/bin/lathe" "$BUILD/test/e2e/server/smollm2.lathe" "$(command -v chromium)" \
  "$BUILD/test/e2e/server/page.png"
