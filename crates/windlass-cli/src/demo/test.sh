#!/usr/bin/env bash
# The project's tests.
failed=0
check() {
  expect=$1; shift
  got=$(bash median.sh "$@")
  if [ "$got" != "$expect" ]; then
    echo "FAIL: median $* is $got, expected $expect"
    failed=1
  fi
}
check 2 3 1 2        # median 3 1 2
check 9 10 9 2
check 7 7
[ "$failed" = 0 ] && echo "all tests passed"
exit "$failed"
