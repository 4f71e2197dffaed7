#!/usr/bin/env bash
# Installs Debian's spin, and the C compiler that it needs, for the model of the write protocol (docs/protocol). Where
# they cannot be had, one line says so, and the model is not checked.
set -euo pipefail
packages=()
command -v spin >/dev/null || packages+=(spin)
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
[[ ${#packages[@]} == 0 ]] && exit 0
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }
echo "spin: Debian's ${packages[*]}"
if ! { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends -o Dpkg::Use-Pty=0 "${packages[@]}"; } >/dev/null 2>&1; then
    echo "spin: ${packages[*]} cannot be installed here, so the model of the write protocol is not checked" >&2
fi
