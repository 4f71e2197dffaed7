#!/usr/bin/env bash
# Makes dist/release from the commit that is checked out: wheel, sdist, chart, image, bills of materials, provenance and
# checksums. What a machine cannot make is left out, with one line that says why. Nothing is signed or pushed.
set -euo pipefail
cd "$(dirname "$0")/.."
out=dist/release
rm -rf $out
mkdir -p $out
build=$(scripts/tool.sh build)
supply=$(scripts/tool.sh supply)
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' cruise/__init__.py)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

scripts/web_assets.sh
"$build/bin/python" -m hatchling build --target wheel --target sdist --directory "$PWD/$out" >/dev/null
cp requirements-cloud.txt $out/
"$supply/bin/python" scripts/sbom.py .venv/lib/python3*/site-packages $out/cruise.cdx.json >/dev/null

# Helm 3.8 or newer; tests build one.
if helm=$(command -v helm || .venv/bin/python -c 'from tests.helm.binary import helm; print(helm())' 2>/dev/null); then
    "$helm" package deploy/chart --version "$version" --app-version "$version" --destination $out >/dev/null
    mv "$out/cruise-$version.tgz" "$out/cruise-chart-$version.tgz"
else
    echo "release: without the chart, since there is no Helm here (install helm, or Go and run tests/setup/40-helm.sh)" >&2
fi

if command -v bwrap >/dev/null && [[ $(dpkg --print-architecture 2>/dev/null) == amd64 ]]; then
    scripts/image.sh make
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -C dist/image -cf "$out/cruise-image-$version-amd64.tar" .
    cp dist/image.cdx.json $out/cruise-image.cdx.json
else
    echo "release: without the image, which needs Debian 12 on amd64 and bubblewrap (apt-get install bubblewrap)" >&2
fi
"$supply/bin/python" -m scripts.release $out
