#!/bin/bash
# want: NOCLEAN BROAD SLEEP
killall -9 objectd
./objectd server /tmp/a{1...4} &
sleep 10s
./client put one
killall -9 objectd
./objectd server /tmp/b{1...4} &
sleep 10s
./client put two
killall -9 objectd
./objectd server /tmp/c{1...4} &
sleep 10s
./client put three
