#!/bin/bash
# want: NOTRAP UNBOUNDED
log=$(mktemp)
node server &> $log &
server=$!
until grep -q "listening on" $log; do
  sleep 0.2
done
npm run check
answer=$?
kill -9 $server
exit $answer
