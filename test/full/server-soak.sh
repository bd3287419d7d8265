#!/bin/bash
# Mixed load on `lathe serve`: memory stays flat, no block and no request is left. LATHE_SOAK_SECONDS is half an hour by default.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
BUILD=${LATHE_BUILD:-$ROOT/build}
say "full: ten thousand clients that leave"
python3 "$ROOT/test/e2e/server/aborts.py" "$BUILD/bin/lathe" "$BUILD/test/unit/driver-words.lathe" 10000
say "full: mixed load"
python3 "$ROOT/test/e2e/server/soak.py" "$BUILD/bin/lathe" "$BUILD/test/e2e/server/smollm2.lathe" "${LATHE_SOAK_SECONDS:-1800}"
