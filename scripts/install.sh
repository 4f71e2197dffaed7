#!/usr/bin/env bash
# Makes .venv with cruise: `install.sh runtime`, `install.sh demo` without its bytecode, which Python writes as it imports,
# or `install.sh dev` with the tools for tests and checks.
# With a stamp keyed by its inputs, so that a second call returns immediately.
set -euo pipefail
cd "$(dirname "$0")/.."
tier=${1:-runtime}

case $tier in
runtime | demo) requirements=(requirements-build.txt requirements.txt) ;;
dev) requirements=(requirements-build.txt requirements-dev.txt) ;;
*)
    echo "install.sh: the tier is runtime, demo or dev, not '$tier'" >&2
    exit 2
    ;;
esac

# The checkout's path counts too: a virtual environment does not survive a move.
fingerprint() {
    { pwd && cat pyproject.toml requirements-build.txt requirements.txt requirements-dev.txt scripts/install.sh; } |
        sha256sum | cut -d ' ' -f 1
}

stamped() {
    [[ -f .venv/stamp-$1 && $(<".venv/stamp-$1") == "$key" ]]
}

# The newest interpreter that runs; a name on PATH may be a stub for a missing version.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "install: no Python 3.11 or newer was found (apt-get install python3, or set PYTHON)" >&2
    return 1
}

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

# Debian's package of the interpreter lacks venv and ensurepip.
ensure_venv_module() {
    local python=$1 package
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then return; fi
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    echo "install: Debian's $package"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 \
        "$package" >/dev/null
}

# Runs a command, and prints its purpose and its seconds.
step() {
    local begun=$SECONDS
    printf 'install: %s ... ' "$1"
    "${@:2}"
    echo "$((SECONDS - begun)) s"
}

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile "$@"
}

# On all processors; pip would use one. Some packages have files for other versions of Python.
compile_bytecode() {
    .venv/bin/python -m compileall -qq -j 0 .venv/lib || true
}

key=$(fingerprint)
scripts/web_assets.sh
if stamped dev || stamped "$tier" || { [[ $tier == demo ]] && stamped runtime; }; then exit 0; fi

rm -f .venv/stamp-*
if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || [[ ! -f .venv/path || $(<.venv/path) != "$PWD" ]]; then
    python=$(find_python)
    ensure_venv_module "$python"
    rm -rf .venv
    step ".venv with $("$python" --version) ($python)" "$python" -m venv .venv
    pwd >.venv/path
fi

for file in "${requirements[@]}"; do
    step "$file, $(grep -c '==' "$file") packages" pip_install --require-hashes --only-binary :all: -r "$file"
done
step "cruise" pip_install --no-deps --no-index --no-build-isolation --editable .
if [[ $tier != demo ]]; then step "bytecode" compile_bytecode; fi
printf '%s\n' "$key" >".venv/stamp-$tier"
