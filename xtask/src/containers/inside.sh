#!/usr/bin/env bash
# Runs the commands of one row, and prints a line before and after each that the caller reads. The environment gives
# WINDLASS (the binary), MODEL (the script of a model), PROJECT (a folder), and REMOVE_DEVICES (names below /dev).
step() {
  local name=$1
  shift
  printf '\n== begin %s\n' "$name"
  timeout 60 "$@" </dev/null 2>&1
  printf '\n== end %s %s\n' "$name" "$?"
}
for device in $REMOVE_DEVICES; do rm -rf "/dev/$device"; done
step version "$WINDLASS" --version
step demo "$WINDLASS" demo
mkdir -p "$PROJECT" && cd "$PROJECT" || exit 9
[ -d .git ] || git init -q .
step doctor "$WINDLASS" doctor
step sandbox "$WINDLASS" sandbox -- sh -c 'echo held > made-by-sandbox && cat made-by-sandbox'
step run "$WINDLASS" run --script "$MODEL" --validate 'grep -q hello greeting.txt' 'write a greeting'
step landed cat greeting.txt
