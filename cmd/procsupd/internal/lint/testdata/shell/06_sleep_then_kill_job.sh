#!/bin/sh
# want: NOTRAP SLEEP
npm start &
sleep 10
kill %1
