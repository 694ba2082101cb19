#!/usr/bin/env bash
# want: CLEAN
set -euo pipefail
cleanup() {
  for f in "$RUN"/*.pid; do
    [ -f "$f" ] || continue
    pid=$(cat "$f")
    kill -TERM "$pid" 2>/dev/null || true
  done
  sleep 2
  for f in "$RUN"/*.pid; do
    kill -KILL "$(cat "$f")" 2>/dev/null || true
  done
}
[ "${KEEP:-0}" = 1 ] || trap cleanup EXIT INT TERM
launch() {
  local name=$1; shift
  "$@" >"$RUN/$name.log" 2>&1 &
  echo $! >"$RUN/$name.pid"
}
await_http() {
  for _ in $(seq 1 60); do
    curl -fs "$1" >/dev/null && return 0
    sleep 1
  done
  return 1
}
launch master blobd master -port=9333
launch volume blobd volume -port=8080
await_http http://localhost:9333/status
EXTRA=1 terraform test
