"""Builds programs of VPA's Go module, each once, into the cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

MODULE = "k8s.io/autoscaler/vertical-pod-autoscaler"
SOURCES = Path(__file__).parent / "vpa"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cruise" / "vpa"


def built(name: str, command: Sequence[str], package: str, sources: Sequence[str] = ("go.mod", "go.sum")) -> Path:
    """Return a program; if the cache lacks it, build it with the lowest priority, which takes some minutes."""
    content = b"\0".join((SOURCES / source).read_bytes() for source in sources)
    place = _CACHE / hashlib.sha256(content).hexdigest()[:20] / name
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = _CACHE / "building"
            go(*command, "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", str(made), package)
            place.parent.mkdir(exist_ok=True)
            made.rename(place)
    return place


def go(*arguments: str) -> str:
    """Run go in the module's directory and return its output."""
    program = shutil.which("go")
    if program is None:
        raise RuntimeError("this benchmark builds programs of VPA, and needs Go 1.26 or newer")
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
    command = ["nice", "-n", "19", program, *arguments]
    return subprocess.run(
        command, check=True, cwd=SOURCES, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
