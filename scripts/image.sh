#!/usr/bin/env bash
# Makes the image, its bill of materials and its provenance in dist/; `image.sh pin` pins Debian's present packages.
# Debian 12 on amd64, with apt-get, dpkg-deb, git and bubblewrap; neither root nor a container engine.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cruise/image
supply=$(scripts/tool.sh supply)
if [[ ${1:-make} == pin ]]; then exec "$supply/bin/python" -m scripts.image pin; fi

if ! command -v bwrap >/dev/null; then
    echo "image: bubblewrap is missing (apt-get install bubblewrap)" >&2
    exit 2
fi
lock=$(scripts/tool.sh lock)
build=$(scripts/tool.sh build)
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
scripts/web_assets.sh
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$build/bin/python" -m hatchling build --target wheel --directory "$wheels" >/dev/null
"$supply/bin/python" -m scripts.image make --uv "$lock/bin/uv" --wheels "$wheels" --out dist --cache "$cache"
