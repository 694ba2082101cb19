#!/bin/bash
# want: CLEAN
set -e
pids=()
for n in 1 2 4 8; do
  (
    measure --threads "$n" >"out.$n"
    summarise "out.$n"
  ) &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid"
done
