#!/bin/bash
# want: NOTRAP NOWAIT
MODE=it node server.js &
SERVER=$!
npm test
STATUS=$?
kill -9 $SERVER
exit $STATUS
