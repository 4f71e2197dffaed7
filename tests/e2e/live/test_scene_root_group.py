"""Node load without load averages: from the root control group of each node."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.api import wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_scene_overload import OFTEN, OWN, seen, taints
from tests.e2e.live.usage import ContainerUse, ExposedUsage, expose_usage, scrape_config
from tests.prometheus_server import make_blocks, running_prometheus


@dataclass
class RootedUsage(ExposedUsage):
    """Usage whose cAdvisor also reports whole nodes: cores in use, and the share of time waited, None without it."""

    roots: dict[str, tuple[float, float | None]] = field(default_factory=dict)

    def exposition(self) -> str:
        """Return what cAdvisor would expose at this moment."""
        passed = time.time() - self.start  # noqa: TID251  what is scraped is of the real time
        lines = [super().exposition()]
        for node, (cores, waiting) in self.roots.items():
            labels = f'id="/",node="{node}",job="kubelet"'
            lines.append(f"container_cpu_usage_seconds_total{{{labels}}} {cores * passed}\n")
            if waiting is not None:
                lines.append(f"container_pressure_cpu_waiting_seconds_total{{{labels}}} {waiting * passed}\n")
        return "".join(lines)


@contextmanager
def measured(usage: ExposedUsage, directory: Path) -> Iterator[str]:
    """A Prometheus that has the usage of the last hours and continues to scrape it."""
    make_blocks(usage.write_history, directory / "blocks")
    with expose_usage(usage) as target, running_prometheus(directory / "blocks", config=scrape_config(target)) as url:
        yield url


def test_a_node_whose_tasks_wait_is_tainted_without_a_load_average(stage: LiveStage, tmp_path: Path):
    waiting, busy, silent, calm = (stage.node(name) for name in ("waiting", "busy", "silent", "calm"))
    # Of ten nodes two may bear the taint.
    for number in range(6):
        stage.node(f"spare{number}")
    stage.create(app("Deployment", stage.namespace, "web", "100m", "128Mi"))
    stage.running(1)
    usage = RootedUsage(stage.namespace, {("web", "app"): ContainerUse(cores=0.1, mebibytes=100)})
    usage.run(stage.pods())
    # Four cores each: as busy as can be and waiting, as busy and without pressure figures, and half idle.
    usage.roots.update({waiting: (3.9, 0.5), busy: (4.0, None), calm: (2.0, 0.1)})
    stage.admin.patch("nodes", None, calm, {"spec": {"taints": [OWN]}}, kind="merge")
    stage.admin.patch("nodes", None, silent, {"spec": {"taints": [OWN]}}, kind="merge")
    with measured(usage, tmp_path) as url, stage.serving("full", prometheus_url=url, **OFTEN) as serving:
        wait_until(lambda: OWN in taints(stage, waiting), "the node whose tasks wait is tainted")
        wait_until(lambda: OWN not in taints(stage, calm), "the half idle one is not any more")
        passes = seen(serving.get("/metrics")[1])
        wait_until(lambda: seen(serving.get("/metrics")[1]) >= passes + 4, "more readings")
        assert taints(stage, busy) == []
        assert taints(stage, silent) == [OWN]
        assert OWN in taints(stage, waiting)
