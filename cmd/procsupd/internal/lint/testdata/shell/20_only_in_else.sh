#!/bin/bash
# want: NOCLEAN SLEEP
if pidof -s meshd >/dev/null; then
  echo "mesh is up"
else
  meshd --no-dns &
fi
if [ -f /run/agent.up ]; then
  echo "agent is up"
else
  sudo agentd -dev &
  sleep 5
fi
agent-run job.hcl
