#!/usr/bin/env bash
# Installs the tools of requirements-NAME.txt, pinned by hash, outside the checkout, and prints the directory:
# `tool.sh lock`.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
home=${XDG_CACHE_HOME:-$HOME/.cache}/cruise/$name
key=$(sha256sum "requirements-$name.txt" | cut -d ' ' -f 1)

if [[ ! -f $home/stamp || $(<"$home/stamp") != "$key" ]]; then
    scripts/install.sh runtime >&2
    rm -rf "$home"
    .venv/bin/python -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r "requirements-$name.txt" >&2
    printf '%s\n' "$key" >"$home/stamp"
fi
echo "$home"
