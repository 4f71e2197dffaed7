#!/usr/bin/env bash
# Runs tests/setup/*.sh in order. Each prepares one tier of the tests, is idempotent, quiet when there is nothing to do,
# keeps what it makes under ${XDG_CACHE_HOME:-$HOME/.cache}/cruise, and where it cannot run prints one line and exits 0.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
for step in tests/setup/*.sh; do
    bash "$step" </dev/null
done
