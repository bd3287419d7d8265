#!/bin/bash
# The scheduler at length: 10^4 random schedules (LATHE_LONG=1: 10^5), 10^6 operations of the KV manager, policies at ten times the load.
. "$(dirname "$0")/../../scripts/common.sh"
export LATHE_FULL=1 LATHE_SCHEDULES=$([ "${LATHE_LONG:-}" ] && echo 100000 || echo 10000)
for name in KVSharingTest PolicyTest ScheduleFuzzTest; do
  say "full: $name"
  GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0 build/test/unit/$name --gtest_brief=1 &
  other=$!
  failed=0
  GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 build/test/unit/$name --gtest_brief=1 || failed=1
  wait $other || failed=1
  [ $failed = 0 ] || fail "$name failed"
done
say "full: a step of the scheduler within 20 us, a block operation within 100 ns, of processor time"
build/bin/lathe-scheduler-bench --check
