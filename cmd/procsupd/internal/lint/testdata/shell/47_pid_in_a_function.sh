#!/usr/bin/env bash
# want: NOWAIT
set -o errexit
trap cleanup EXIT
cleanup() {
  if [ -n "$chain_pid" ] && ps -p $chain_pid > /dev/null; then
    kill -9 $chain_pid
  fi
}
chain_up() {
  nc -z localhost "$port"
}
start_chain() {
  node_modules/.bin/ganache-cli --gasLimit 0xfff --port "$port" > /dev/null &
  chain_pid=$!
}
if chain_up; then
  echo "using the chain that runs"
else
  start_chain
fi
node_modules/.bin/truffle test "$@"
