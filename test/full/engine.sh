#!/bin/bash
# 10^5 random schedules of the serving engine on tiny models, and 300 on SmolLM2. Takes about 25 minutes on two cores.
LATHE_FULL=1 exec "$(dirname "$0")/../e2e/engine.sh"
