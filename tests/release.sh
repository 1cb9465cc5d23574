#!/bin/sh
# Run what CI does not, one target after another, in hours: `make check NAME=release`, or with ARGS="helm dist" only those.
# build/release gets a log of each, and in rows.md what it ended with, for release.md.
set -u
cd "$(dirname "$0")/.."

all=$(sed -n 's/^check-\([a-z]*\):.*#: .*/\1/p' Makefile | grep -v -x -e release -e worker)
mkdir -p build/release
failed=0
for name in ${*:-$all docs dist simulate fuzz bench chaos}; do
  case " $(echo $all) " in *" $name "*) command="check NAME=$name" ;; *) command=$name ;; esac
  log=build/release/$name.log
  began=$(date +%s)
  make $command >"$log" 2>&1 </dev/null
  status=$?
  [ $status -eq 0 ] || failed=1
  last=$(sed 's/\x1b\[[0-9;]*m//g; s/.*\r//; s/|/\\|/g' "$log" | grep -v '^[[:space:]]*$' | tail -n 1)
  echo "| \`make $command\` | $status | $(($(date +%s) - began)) s | \`$last\` |" | tee -a build/release/rows.md
done
exit $failed
