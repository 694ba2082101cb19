#!/bin/bash
# want: NOTRAP BROAD SLEEP
set -e
graphd --dir p --port 8080 &
sleep 2
go test -bench . ./query
killall graphd
