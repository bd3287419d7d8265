#!/bin/bash
# lathe simulate and lathe replay from outside: same trace out, errors named.
#   simulate.sh LATHE
set -e
lathe=$1
"$lathe" simulate --requests 60 --kv-tokens 6000 --policy fair --tenants 3 --aborts 0.2 --rate 20 --check --trace simulate.trace >simulate.out
grep -q "^requests        60, " simulate.out
"$lathe" replay simulate.trace | grep -q "all the same"
"$lathe" simulate --requests 60 --kv-tokens 6000 --policy fair --tenants 3 --aborts 0.2 --rate 20 >simulate.again
cmp simulate.out simulate.again # the same input, the same report
sed 's/ decode$/ prefill/' simulate.trace >changed.trace
if "$lathe" replay changed.trace >changed.out; then exit 1; fi
grep -q "differs" changed.out
"$lathe" simulate --requests 5 --json | grep -q '"answered": 5'
printf '1 0.01\n100 0.1\n' >cost.txt
"$lathe" simulate --requests 5 --cost cost.txt >/dev/null
expect() { # message, arguments
  local message=$1
  shift
  if "$lathe" "$@" 2>error.txt >/dev/null; then
    echo "no error from: $*" >&2
    exit 1
  fi
  grep -qF -e "$message" error.txt || { cat error.txt >&2; exit 1; }
}
expect "cannot open 'no-such.trace'" replay no-such.trace
expect "cost.txt: expected a trace that begins with 'lathe-trace 5'" replay cost.txt
expect "unknown policy 'lifo', expected fcfs, priority, fair or deadline" simulate --policy lifo
expect "--preemption: expected automatic, recompute or save, found 'swap'" simulate --preemption swap
expect "changed.out: line 1 of the step times: expected rising 'ROWS SECONDS'" simulate --cost changed.out
expect "unexpected argument 'x'" simulate x
expect "--shared: expected less than the context of 512 tokens, found 512" simulate --ctx 512 --groups 2 --shared 512
expect "cannot write 'no-such-folder/t'" simulate --trace no-such-folder/t
