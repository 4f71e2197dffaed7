"""Runs kube-scheduler's own test tables once, and caches their results."""

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.controlplane import binaries
from tests.controlplane.binaries import NotAvailable, go_environment, go_program, run_go

CACHE = binaries.CACHE.parent / "scheduler-tables"
MODULE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "patch/main.go", "record/known.go", "record/record.go")
# The plugins of kube-scheduler whose tests decide whether a pod may be scheduled, or on which node.
PLUGINS = (
    "dynamicresources",
    "gangscheduling",
    "interpodaffinity",
    "nodeaffinity",
    "nodedeclaredfeatures",
    "nodename",
    "nodeports",
    "noderesources",
    "nodeunschedulable",
    "nodevolumelimits",
    "podtopologyspread",
    "schedulinggates",
    "tainttoleration",
    "volumebinding",
    "volumerestrictions",
    "volumezone",
)


def verdicts() -> Path:
    """Find the file of the verdicts. Raises NotAvailable."""
    place = _place(go_program())
    if not place.is_file():
        raise NotAvailable("the tables are not built: tests/setup/50-scheduler-tables.sh builds them")
    return place


def build() -> None:
    """Build what the cache lacks, at the lowest priority.

    Raises NotAvailable where Go or the modules cannot be had; that tests cannot be patched any more is an error.
    """
    go = go_program()
    place = _place(go)
    if place.is_file():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_file():
            return
        print("scheduler tables: building kube-scheduler's tests once, about 4 minutes on two cores", flush=True)
        made = _write_down(go, Path(work))
        place.parent.mkdir(exist_ok=True)
        made.rename(place)


def _write_down(go: str, module: Path) -> Path:
    for name in SOURCES:
        (module / name).parent.mkdir(exist_ok=True)
        shutil.copy(MODULE / name, module / name)
    run_go([go, "mod", "download", "k8s.io/kubernetes"], module)
    kubernetes = run_go([go, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"], module)
    _must([go, "run", "./patch", kubernetes, ".", *PLUGINS], module)
    # Only this downloads modules, so that whatever fails afterwards is a fault of ours.
    run_go([go, "list", "-deps", "-test", "."], module)
    _must([go, "test", "-c", "-trimpath", "-vet=off", "-ldflags", "-s -w", "-o", "tables", "."], module)
    _must(["./tables", "-test.failfast"], module)
    return module / "verdicts.jsonl"


def _must(command: list[str], directory: Path) -> None:
    niced = ["nice", "-n", "19", *command]
    done = subprocess.run(
        niced, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory,
        env=go_environment(),
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"scheduler tables: {' '.join(command[:3])} failed:\n{done.stdout[-4000:]}")


def _place(go: str) -> Path:
    parts = [(MODULE / name).read_bytes() for name in SOURCES]
    parts += [" ".join(PLUGINS).encode(), run_go([go, "env", "GOVERSION"]).encode()]
    return CACHE / hashlib.sha256(b"\0".join(parts)).hexdigest()[:20] / "verdicts.jsonl"


if __name__ == "__main__":
    try:
        build()
    except NotAvailable as missing:
        print(f"scheduler tables: not available, their tests are left out: {missing}")
