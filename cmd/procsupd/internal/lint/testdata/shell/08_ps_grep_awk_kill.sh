#!/bin/bash
# want: NOTRAP BROAD NOWAIT
npm run start &
npx cypress run
ps axf | grep "react-start" | grep -v grep | awk '{print "kill -9 " $1}' | sh
