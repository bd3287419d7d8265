#!/bin/bash
# Mixed load on `lathe serve`: memory stays flat, no block and no request is left. Five minutes; LATHE_LONG=1: half an hour; or LATHE_SOAK_SECONDS.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
ARTIFACT=$BUILD/test/e2e/server/smollm2.lathe
[ -f "$ARTIFACT" ] || fail "expected '$ARTIFACT', which test/e2e/server.sh makes"
say "full: mixed load"
python3 "$ROOT/test/e2e/server/soak.py" "$BUILD/bin/lathe" "$ARTIFACT" "${LATHE_SOAK_SECONDS:-$([ "${LATHE_LONG:-}" ] && echo 1800 || echo 300)}"
