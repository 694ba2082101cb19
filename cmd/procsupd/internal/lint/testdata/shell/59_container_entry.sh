#!/bin/bash
# want: note:NOCLEAN
blobd mount -dir=/mnt/share -filer="$FILER" &
MOUNT=$!
for i in $(seq 1 120); do
  if mountpoint -q /mnt/share; then break; fi
  if ! kill -0 "$MOUNT" 2>/dev/null; then
    echo "the mount ended" >&2
    exit 1
  fi
  sleep 1
done
exec smbd -F --no-process-group
