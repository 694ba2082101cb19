#!/usr/bin/env bash
# want: CLEAN
set -euo pipefail
cleanup() {
  local code=$?
  pkill -TERM -P $$ || true
  exit $code
}
trap cleanup EXIT TERM INT
CMD="vllm serve $MODEL --port $PORT"
bash -c "$CMD" &
PID=$!
wait $PID
