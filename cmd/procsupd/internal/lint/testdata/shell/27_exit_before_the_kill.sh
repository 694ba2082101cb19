#!/bin/bash
# want: NOTRAP BROAD
pkill -f "blobd server" || true
blobd server -dir=/tmp/d >server.log 2>&1 &
SERVER_PID=$!
blobd gateway -port=9093 >gateway.log 2>&1 &
GATEWAY_PID=$!
for i in $(seq 1 30); do
  nc -z localhost 9093 && break
  sleep 1
done
if ! ./registry_check; then
  echo "check failed"
  exit 1
fi
kill $GATEWAY_PID $SERVER_PID
