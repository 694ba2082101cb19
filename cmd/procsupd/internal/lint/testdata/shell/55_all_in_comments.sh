#!/bin/bash
# want: CLEAN
# npm run serve &
# SERVER=$!
# sleep 10
# kill $SERVER
npx start-server-and-test 'npm run serve' http://localhost:8080 'npx cypress run'
