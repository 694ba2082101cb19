#!/bin/bash
# want: CLEAN
set -e
SERVER_PID=""
cleanup() {
  if [ -n "$SERVER_PID" ]; then
    kill "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" 2>/dev/null || true
  fi
}
trap cleanup EXIT
go build -o bin/everything ./server
bin/everything -http=":$PORT" &
SERVER_PID=$!
timeout 15 bash -c "until curl -s http://localhost:$PORT/mcp; do sleep 0.5; done"
npx conformance server --url "http://localhost:$PORT/mcp"
