"""The programs of a Kubernetes control plane, built from their Go modules and cached."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cruise" / "control-plane"
MODULE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go")
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
GO_NEEDED = (1, 26)
# The locations of Go's archive and Debian's packages, which may not be in PATH.
GO_PLACES = ("/usr/local/go/bin", *(f"/usr/lib/go-1.{minor}/bin" for minor in range(40, 25, -1)))


class NotAvailable(Exception):
    """The control plane cannot run on this machine; the message is the reason in one line."""


def programs() -> Path:
    """Return the directory of the built programs. Raises NotAvailable."""
    place = _place(go_program())
    if not place.is_dir():
        raise NotAvailable("the control plane is not built: tests/setup/20-control-plane.sh builds it")
    return place


def build() -> None:
    """Build the programs that the cache lacks, at the lowest priority. Raises NotAvailable."""
    go = go_program()
    place = _place(go)
    if place.is_dir():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with _alone(), tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as work:
        if place.is_dir():
            return
        version = _kubernetes_version()
        print(f"control plane: building Kubernetes {version} once, about 10 minutes on two cores", flush=True)
        made = Path(work) / "programs"
        made.mkdir()
        _compile(go, made / "controlplane", version)
        for name in PROGRAMS:
            (made / name).symlink_to("controlplane")
        made.rename(place)


def kubernetes_minor() -> str:
    """Return the version of the programs, such as `1.36`."""
    return ".".join(_kubernetes_version().lstrip("v").split(".")[:2])


def go_program() -> str:
    """Find a Go version that Kubernetes' modules support. Raises NotAvailable."""
    searched = os.pathsep.join((os.environ.get("PATH", os.defpath), *GO_PLACES))
    newest = "none"
    for directory in searched.split(os.pathsep):
        go = shutil.which("go", path=directory)
        if go is None:
            continue
        newest = run_go([go, "env", "GOVERSION"])
        found = re.match(r"go(\d+)\.(\d+)", newest)
        if found and (int(found[1]), int(found[2])) >= GO_NEEDED:
            return go
    raise NotAvailable(f"it needs Go {'.'.join(map(str, GO_NEEDED))} or newer, found {newest}")


def _place(go: str) -> Path:
    parts = [(MODULE / name).read_bytes() for name in SOURCES]
    parts.append(run_go([go, "env", "GOVERSION"]).encode())
    return CACHE / hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _kubernetes_version() -> str:
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _compile(go: str, binary: Path, version: str) -> None:
    major, minor = version.lstrip("v").split(".")[:2]
    # Without these the server reports version v0.0.0, and clients treat it as an ancient one.
    stated = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = ["-s", "-w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stated.items())]
    command = ["nice", "-n", "19", go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    run_go([*command, "-ldflags", " ".join(flags), "-o", str(binary), "."])


def run_go(command: list[str], directory: Path = MODULE) -> str:
    """Run a Go command in a module's directory, and return its output. Raises NotAvailable."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=directory, env=go_environment())
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"{command[0]} ended with {done.returncode}"]
        raise NotAvailable(said[-1])
    return done.stdout.strip()


def go_environment() -> dict[str, str]:
    """Return the environment for reproducible Go builds."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, so that only one process builds."""
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        build()
    except NotAvailable as missing:
        print(f"control plane: not available, its tests are left out: {missing}")
