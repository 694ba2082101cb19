#!/bin/bash
# want: BROAD
set -e
cleanup() {
  pkill containerd || true
  rm -rf "$DIR"
}
trap cleanup EXIT
DIR=$(mktemp -d)
bin/containerd -a "$DIR/c.sock" --log-level debug &>"$DIR/c.log" &
set +e
n=1
while [ $n -le 30 ]; do
  crictl --runtime-endpoint "unix://$DIR/c.sock" info && break
  n=$((n + 1))
  sleep 1
done
critest --runtime-endpoint "unix://$DIR/c.sock"
