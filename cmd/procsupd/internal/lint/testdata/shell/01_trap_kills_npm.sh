#!/bin/bash
# want: WEAKTRAP NOWAIT
npm run start &
APP=$!
finish() {
  kill "$APP"
}
trap finish EXIT
npm run test
