#!/bin/sh
# want: WEAKTRAP DAEMON
nginx & pid1="$!"
./profilerd --config /etc/p.conf & pid2="$!"

stop() {
  kill -TERM $pid1 $pid2
}
trap stop TERM
wait $pid1 $pid2
