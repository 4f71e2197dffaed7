#!/usr/bin/env bash
# Replays traces under every policy and writes docs/backtest-results.md. Usage: scripts/backtest_docs.sh [OPTION…] DIR…
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
while [[ ${1-} == -* ]]; do
    options+=("$1" "${2?"$1 needs a value"}")
    shift 2
done
if [[ $# -eq 0 ]]; then
    echo 'backtest-docs: name trace directories: make backtest-docs TRACES="DIR…"' >&2
    exit 2
fi

# The page is written only once every replay is done.
results=$(mktemp)
page=$(mktemp)
trap 'rm -f "$results" "$page"' EXIT
.venv/bin/cruise backtest "${options[@]}" --trace "$@" --format json >"$results"
.venv/bin/python scripts/backtest_docs.py <"$results" >"$page"
cat "$page" >docs/backtest-results.md
