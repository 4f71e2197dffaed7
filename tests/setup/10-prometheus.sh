#!/usr/bin/env bash
# Unpacks Debian's prometheus and promtool for the tests. Nothing is installed, and no service is started.
set -euo pipefail
home=${XDG_CACHE_HOME:-$HOME/.cache}/cruise/prometheus
[[ -x $home/usr/bin/prometheus && -x $home/usr/bin/promtool ]] && exit 0
for binary in prometheus promtool; do
    command -v "$binary" >/dev/null || missing=yes
done
[[ ${missing:-} ]] || exit 0
give_up() {
    echo "prometheus: not available, its tests are left out: $1"
    exit 0
}
command -v apt-get >/dev/null && command -v dpkg >/dev/null || give_up "no apt-get or dpkg on this machine"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# apt reads packages as its own user, which must be able to enter the directory.
chmod 755 "$work"
cd "$work"
# The package's lists may be missing or old; both show as a failed download.
if ! apt-get -qq download prometheus >"$work/log" 2>&1; then
    { apt-get -qq update && apt-get -qq download prometheus; } >>"$work/log" 2>&1 ||
        give_up "$(grep -m1 '^E:' "$work/log" || echo 'the download failed')"
fi
mkdir -p "$home"
# Unpacked beside its place and moved there whole, so that a run that was stopped leaves nothing half there.
unpacked=$(mktemp -d "$home.XXXXXX")
trap 'rm -rf "$work" "$unpacked"' EXIT
dpkg -x prometheus_*.deb "$unpacked" || give_up "the package cannot be unpacked"
chmod 755 "$unpacked"
rm -rf "$home"
mv "$unpacked" "$home"
