#!/usr/bin/env bash
# want: WEAKTRAP
(
  agentd -config one.hcl | tee one.log
  echo "one is gone"
) &
(
  agentd -config two.hcl | tee two.log
  echo "two is gone"
) &
trap 'kill -SIGTERM $(jobs -pr)' SIGINT SIGTERM
wait
wait
