#!/bin/bash
# 2 * 10^4 random schedules of the serving engine on tiny models, and 60 on SmolLM2; with LATHE_LONG=1 10^5 and 300.
LATHE_FULL=1 exec "$(dirname "$0")/../e2e/engine.sh"
