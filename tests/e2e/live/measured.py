"""An environment with two workloads that request far more than they use, and cruise commands on a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.controlplane.api import Json
from tests.e2e.live import programs
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import EndedProgram
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2, peak_mebibytes=150, waiting=0.05)


@dataclass(frozen=True)
class MeasuredStage:
    """A stage, and the address of the Prometheus with its usage."""

    stage: LiveStage
    prometheus: str

    def command(self, *arguments: str, mode: str = "observe", **more: str) -> EndedProgram:
        """Run a command of cruise with the rights of a mode, on a terminal of 80 columns."""
        return self.on_terminal(80, *arguments, mode=mode, **more)

    def on_terminal(self, columns: int, *arguments: str, mode: str = "observe", **more: str) -> EndedProgram:
        """Run a command of cruise with the rights of a mode, on a terminal of some width."""
        settings = programs.environment(self.stage.settings(mode, **more), self.stage.plane.directory)
        return programs.run_in({**settings, "COLUMNS": str(columns)}, arguments)

    def own(self, findings: Iterable[Json]) -> list[Json]:
        """Return a report's findings about this stage."""
        return [one for one in findings if one["namespace"] == self.stage.namespace]


def measure(stage: LiveStage) -> MeasuredStage:
    """Add usage of two workloads for some past hours."""
    stage.node(cpu="4", memory="8Gi")
    stage.create(
        app("Deployment", stage.namespace, "web", "700m", "1Gi", replicas=2),
        app("StatefulSet", stage.namespace, "db", "500m", "1Gi"),
    )
    stage.running(3)
    prometheus = stage.measure({"web": USE, "db": USE})
    stage.mark()
    return MeasuredStage(stage, prometheus)


def list_refused(ended: EndedProgram) -> str:
    """Return the single line on standard error of a command that ended with 2."""
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cruise: ")
    assert ended.err.count("\n") == 1
    return ended.err
