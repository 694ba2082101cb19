#!/bin/bash
# want: WEAKTRAP
trap "killall background" EXIT
cd api && npm ci && npm run start &
cd web && npm ci && npm run start &
wait
