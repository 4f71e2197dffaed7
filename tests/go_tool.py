"""Third-party Go programs for tests, built once from their modules and cached."""

import fcntl
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import binaries
from tests.controlplane.binaries import NotAvailable, go_program, run_go


@dataclass(frozen=True, slots=True)
class GoTool:
    """The `command` of a module whose go.mod and go.sum are in `module`."""

    name: str
    module: Path
    command: str
    minutes: int

    def place(self) -> Path:
        """Find the built program. Raises NotAvailable."""
        place = self._place(go_program())
        if not place.is_file():
            raise NotAvailable(f"{self.name} is not built")
        return place

    def build(self) -> Path:
        """Build it where the cache lacks it, at the lowest priority. Raises NotAvailable."""
        go = go_program()
        place = self._place(go)
        if place.is_file():
            return place
        place.parent.mkdir(parents=True, exist_ok=True)
        cache = place.parents[1]
        with (cache / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix="building-", dir=cache) as work:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if place.is_file():
                return place
            print(f"{self.name}: building it once, about {self.minutes} minutes on two cores", flush=True)
            made = Path(work) / self.name
            flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
            run_go(["nice", "-n", "19", go, "build", *flags, "-o", str(made), self.command], self.module)
            made.rename(place)
        return place

    def _place(self, go: str) -> Path:
        parts = [(self.module / name).read_bytes() for name in ("go.mod", "go.sum")]
        parts.append(run_go([go, "env", "GOVERSION"], self.module).encode())
        key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]
        return binaries.CACHE.parent / self.name / key / self.name
