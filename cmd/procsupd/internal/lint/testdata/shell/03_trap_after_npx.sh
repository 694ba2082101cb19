#!/bin/bash
# want: WEAKTRAP NOWAIT
set -ex
cd "$(dirname "$0")/.."
npx gulp serve &
SERVE=$!
finish() {
  kill $SERVE
  wait $SERVE 2>/dev/null
}
trap finish EXIT
npx protractor conf.js
