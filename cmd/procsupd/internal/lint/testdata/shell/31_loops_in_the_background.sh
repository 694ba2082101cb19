#!/bin/bash
# want: NOTRAP
run_suite() (
  while true; do dump_logs >>all.log; sleep 5; done &
  while true; do report_memory; sleep 5; done &
  build_and_run "$@"
  status=$?
  jobs -p | xargs kill
  return $status
)
run_suite "$@"
