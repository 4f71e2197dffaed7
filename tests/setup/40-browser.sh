#!/usr/bin/env bash
# Brings what the dashboard's tests in a browser need: the pages' scripts, axe, and Debian's Chromium. Where one of them
# cannot be had, one line says so, and those tests are skipped.
set -euo pipefail
scripts/web_assets.sh test
if command -v chromium >/dev/null; then exit 0; fi
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }
echo "browser: Debian's chromium"
if ! { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends -o Dpkg::Use-Pty=0 chromium; } >/dev/null 2>&1; then
    echo "browser: chromium cannot be installed here, so the dashboard is not tested in a browser" >&2
fi
