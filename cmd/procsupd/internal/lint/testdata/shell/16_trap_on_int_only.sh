#!/bin/bash
# want: WEAKTRAP
trap 'killall' INT

killall() {
  trap '' INT TERM
  kill -TERM 0
  wait
  echo gone
}

(cd one && go run main.go) &
(cd two && go run main.go) &
(cd three && go run main.go) &
cat
