#!/usr/bin/env bash
# Runs tests/setup/*.sh in order. Each prepares one tier of the tests, is idempotent, prints nothing if there is nothing to
# do, writes to ${XDG_CACHE_HOME:-$HOME/.cache}/cruise, and prints one line and exits 0 if it cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
for step in tests/setup/*.sh; do
    bash "$step" </dev/null
done
