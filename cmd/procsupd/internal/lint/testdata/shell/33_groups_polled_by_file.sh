#!/usr/bin/env bash
# want: NOCLEAN UNBOUNDED
out=$(mktemp -d)
{ run_lint >"$out/lint.log" 2>&1; echo $? >"$out/lint.exit"; } &
{ run_unit >"$out/unit.log" 2>&1; echo $? >"$out/unit.exit"; } &
{ agent-cli "/review $1" >"$out/review.log" 2>&1; echo $? >"$out/review.exit"; } &
while true; do
  all=1
  for step in lint unit review; do
    if [ ! -f "$out/$step.exit" ]; then all=0; fi
  done
  if [ "$all" = 1 ]; then break; fi
  sleep 3
done
cat "$out"/*.log
