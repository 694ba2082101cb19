#!/bin/bash
# want: NOCLEAN SLEEP
set -e
bin/queue-server-stop.sh || true
sleep 5 # the stop script does not wait
bin/queue-server-start.sh config/server.conf 1>>/tmp/queue.log 2>>/tmp/queue.log &
