#!/usr/bin/env bash
# Pins every dependency of pyproject.toml, for every platform and Python that it allows, with the hashes of all files.
# Pinned versions stay unless a constraint forces a change; `lock.sh --upgrade` pins the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(scripts/tool.sh lock)

compile() {
    "$tool/bin/uv" pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
        --no-emit-find-links --no-annotate "$@"
}

# Each set is constrained by the one before, so that all agree on every version that they share.
compile "$@" pyproject.toml --output-file requirements.txt
compile "$@" pyproject.toml --extra aws --extra google --extra azure --constraint requirements.txt \
    --output-file requirements-cloud.txt
compile "$@" pyproject.toml --extra dask --constraint requirements-cloud.txt --output-file requirements-dask.txt
compile "$@" pyproject.toml --group dev --constraint requirements-dask.txt --output-file requirements-dev.txt
compile "$@" --group build --constraint requirements-dev.txt --output-file requirements-build.txt
# Tools have environments of their own, with other versions.
compile "$@" --group lock --output-file requirements-lock.txt
compile "$@" --group supply --output-file requirements-supply.txt
