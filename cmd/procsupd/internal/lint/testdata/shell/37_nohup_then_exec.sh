#!/bin/sh
# want: NOCLEAN SLEEP
set -e
nohup redis-server --save "" 2>&1&
sleep 2
exec "$@"
