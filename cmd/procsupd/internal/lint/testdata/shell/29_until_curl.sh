#!/usr/bin/env bash
# want: NOTRAP BROAD UNBOUNDED
set -ex
killall -9 blobd || echo "none was there"
blobd server -s3 -dir=/tmp/s3 &
until curl -s http://127.0.0.1:8333/status; do
  sleep 5
done
until curl -s http://127.0.0.1:9333/cluster; do sleep 5; done
docker run --network host s3-suite
killall -9 blobd
