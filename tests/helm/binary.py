"""Helm, built once from its Go module and kept in the cache."""

import fcntl
import hashlib
import tempfile
from pathlib import Path

from tests.controlplane import binaries
from tests.controlplane.binaries import NotAvailable, go_program, run_go

CACHE = binaries.CACHE.parent / "helm"
MODULE = Path(__file__).parent
COMMAND = "helm.sh/helm/v4/cmd/helm"


def helm() -> Path:
    """Find the built program. Raises NotAvailable."""
    place = _place(go_program())
    if not place.is_file():
        raise NotAvailable("Helm is not built: tests/setup/40-helm.sh builds it")
    return place


def build() -> None:
    """Build Helm where the cache lacks it, at the lowest priority. Raises NotAvailable."""
    go = go_program()
    place = _place(go)
    if place.is_file():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_file():
            return
        print("helm: building it once, about 3 minutes on two cores", flush=True)
        made = Path(work) / "helm"
        flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        run_go(["nice", "-n", "19", go, "build", *flags, "-o", str(made), COMMAND], MODULE)
        made.rename(place)


def _place(go: str) -> Path:
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts.append(run_go([go, "env", "GOVERSION"], MODULE).encode())
    return CACHE / hashlib.sha256(b"\0".join(parts)).hexdigest()[:20] / "helm"


if __name__ == "__main__":
    try:
        build()
    except NotAvailable as missing:
        print(f"helm: not available, its tests are left out: {missing}")
