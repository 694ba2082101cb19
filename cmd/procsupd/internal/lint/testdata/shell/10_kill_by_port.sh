#!/usr/bin/env bash
# want: NOTRAP BROAD
npm start & wait-on http://localhost:4100
npx jest integration
kill $(lsof -t -i:4100)
