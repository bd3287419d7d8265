#!/bin/bash
# Mixed load on `lathe serve`: memory stays flat, no block and no request is left. LATHE_SOAK_SECONDS is half an hour by default.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
ARTIFACT=$BUILD/test/e2e/server/smollm2.lathe
[ -f "$ARTIFACT" ] || fail "expected '$ARTIFACT', which test/e2e/server.sh makes"
say "full: mixed load"
python3 "$ROOT/test/e2e/server/soak.py" "$BUILD/bin/lathe" "$ARTIFACT" "${LATHE_SOAK_SECONDS:-1800}"
