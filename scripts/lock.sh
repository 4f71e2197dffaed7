#!/usr/bin/env bash
# Pins every dependency of pyproject.toml, for every platform and Python that it allows, with the hashes of all files.
# Versions already pinned stay unless a constraint forces them; `lock.sh --upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(scripts/tool.sh lock)

compile() {
    "$tool/bin/uv" pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
        --no-emit-find-links --no-annotate "$@"
}

# Each set is constrained by the one before, so that all four agree on every version that they share.
compile "$@" pyproject.toml --output-file requirements.txt
compile "$@" pyproject.toml --extra dask --constraint requirements.txt --output-file requirements-dask.txt
compile "$@" pyproject.toml --group dev --constraint requirements-dask.txt --output-file requirements-dev.txt
compile "$@" --group build --constraint requirements-dev.txt --output-file requirements-build.txt
# Tools see nothing of cruise's own environment, and need not agree with it.
compile "$@" --group lock --output-file requirements-lock.txt
compile "$@" --group supply --output-file requirements-supply.txt
