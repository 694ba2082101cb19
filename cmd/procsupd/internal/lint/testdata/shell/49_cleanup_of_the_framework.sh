#!/bin/sh
# want: CLEAN
. "${srcdir=.}/tests/init.sh"; path_prepend_ ./src
print_ver_ tool
cleanup_() { kill $pid 2>/dev/null && wait $pid; }
mkfifo pipe || framework_failure_
tool -f pipe & pid=$!
retry_delay_ check_it .1 6 || fail=1
Exit $fail
