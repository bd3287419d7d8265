#!/bin/bash
# What `lathe serve` promises in seconds: start, /health beside stalled readers, early refusals; prints goodput at overload, first tokens beside a flood.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
ARTIFACT=$BUILD/test/e2e/server/smollm2.lathe
[ -f "$ARTIFACT" ] || fail "expected '$ARTIFACT', which test/e2e/server.sh makes"
say "full: how long the server may take"
python3 "$ROOT/test/e2e/server/times.py" "$BUILD/bin/lathe" "$ARTIFACT"
