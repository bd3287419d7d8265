#!/bin/bash
# The scheduler at length: 10^5 random schedules, 10^6 operations of the KV manager, policies at ten times the load.
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1 LATHE_SCHEDULES=100000
for name in KVSharingTest PolicyTest ScheduleFuzzTest; do
  say "full: $name"
  build/test/unit/$name --gtest_brief=1
done
say "full: a step of the scheduler within 20 us, a block operation within 100 ns, of processor time"
build/bin/lathe-scheduler-bench --check
