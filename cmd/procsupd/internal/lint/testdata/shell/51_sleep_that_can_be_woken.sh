#!/usr/bin/env bash
# want: CLEAN
stop=0
trap 'stop=1' TERM INT
while [ "$stop" = 0 ]; do
  ps -o rss= -p "$1" >>"$2" || break
  sleep 1 &
  wait $!
done
