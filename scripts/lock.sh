#!/usr/bin/env bash
# Pins every dependency of pyproject.toml, for every platform and Python that it allows, with the hashes of all files.
# Versions already pinned stay unless a constraint forces them; `lock.sh --upgrade` takes the newest.
# The tool lives outside the checkout, so that nothing but its answer comes in.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=${XDG_CACHE_HOME:-$HOME/.cache}/cruise/lock

if [[ ! -x $tool/bin/uv ]]; then
    scripts/install.sh runtime
    .venv/bin/python -m venv "$tool"
    "$tool/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r requirements-lock.txt
fi

compile() {
    "$tool/bin/uv" pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
        --no-emit-find-links --no-annotate "$@"
}

# Each set is constrained by the one before, so that all three agree on every version that they share.
compile "$@" pyproject.toml --output-file requirements.txt
compile "$@" pyproject.toml --group dev --constraint requirements.txt --output-file requirements-dev.txt
compile "$@" --group build --constraint requirements-dev.txt --output-file requirements-build.txt
compile "$@" --group lock --output-file requirements-lock.txt
