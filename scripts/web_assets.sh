#!/usr/bin/env bash
# Installs the scripts of the pages, pinned with hashes in web/package-lock.json, from npm to
# cruise/interfaces/dashboard/vendor, which wheel and image include. `web_assets.sh test` also installs the packages of the
# browser tests. Without Node it prints one line, and pages show tables in place of charts.
set -euo pipefail
cd "$(dirname "$0")/.."
vendor=cruise/interfaces/dashboard/vendor
key=$(cat web/package-lock.json scripts/web_assets.sh | sha256sum | cut -d ' ' -f 1)
stamped() { [[ -f $1 && $(<"$1") == "$key" ]]; }

if stamped $vendor/stamp && { [[ ${1:-} != test ]] || [[ -d web/node_modules/axe-core ]]; }; then exit 0; fi
if ! command -v npm >/dev/null; then
    echo "dashboard: no npm here, so pages have tables in place of charts (apt-get install npm, then scripts/web_assets.sh)" >&2
    exit 0
fi
omit=(--omit=dev)
if [[ ${1:-} == test ]]; then omit=(); fi
if ! (cd web && npm ci --silent "${omit[@]}" >/dev/null 2>&1); then
    echo "dashboard: npm cannot fetch web/package-lock.json here, so pages have tables in place of charts" >&2
    exit 0
fi
mkdir -p $vendor
install -m 644 web/node_modules/htmx.org/dist/htmx.min.js web/node_modules/htmx-ext-sse/dist/sse.min.js $vendor/
install -m 644 web/node_modules/echarts/dist/echarts.common.min.js $vendor/
for package in htmx.org htmx-ext-sse echarts; do
    install -m 644 web/node_modules/$package/LICENSE "$vendor/LICENSE-$package"
done
if [[ -f web/node_modules/echarts/NOTICE ]]; then install -m 644 web/node_modules/echarts/NOTICE $vendor/NOTICE-echarts; fi
printf '%s\n' "$key" >$vendor/stamp
