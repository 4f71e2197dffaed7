"""The usage of a control plane's pods: history in Prometheus blocks, then live scrapes.

Pods' names are random, so usage is generated once they exist. There are no containers: counters follow the stated
usage.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

from tests import cadvisor
from tests.cadvisor import CadvisorDemand, ContainerLifetime, ContainerLocation, RawSeries

Json = dict[str, Any]
MIB = 2**20
HOUR = 3600
MINUTE = 60
# Peaks last two minutes in every twenty: below the 75th percentile, but in every hour.
PERIOD, PEAKS = 20, (11, 12)
FUTURE_MINUTES = 12 * 60


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """The usual usage of a container, and its peaks if they are higher.

    `waiting` is the share of time in which it waits for CPU.
    """

    cores: float
    mebibytes: int
    peak_cores: float = 0.0
    peak_mebibytes: int = 0
    waiting: float = 0.0

    def compute_demand(self, start: int, minutes: int) -> CadvisorDemand:
        """Return the demand minute by minute."""
        peak = np.isin(np.arange(minutes) % PERIOD, PEAKS)
        return CadvisorDemand(
            start,
            np.where(peak, max(self.cores, self.peak_cores), self.cores),
            np.full(minutes, self.waiting),
            np.where(peak, max(self.mebibytes, self.peak_mebibytes), self.mebibytes).astype(np.float64) * MIB,
        )


@dataclass(slots=True)
class ExposedUsage:
    """Containers with their usage, including `hours` of history; `loads` are nodes' load averages.

    `uses` has the usage by (app, container), app being the pods' label. A pod that is added by name belongs to
    `namespace`.
    """

    namespace: str
    uses: Mapping[tuple[str, str], ContainerUse]
    hours: int = 2
    loads: dict[str, float] = field(default_factory=dict)
    began: int = field(default_factory=lambda: int(time.time()) // MINUTE * MINUTE)  # noqa: TID251
    _containers: dict[tuple[str, str], tuple[ContainerLocation, ContainerLifetime, CadvisorDemand]] = field(
        default_factory=dict
    )
    _impostors: list[tuple[ContainerLocation, ContainerLifetime, CadvisorDemand]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    @property
    def start(self) -> int:
        """The start of the history, in Unix seconds."""
        return self.began - self.hours * HOUR

    def run(self, pods: Iterable[Json], since: int | None = None) -> None:
        """Start the usage of pods' containers, from the history's start unless a time is given."""
        for pod in pods:
            metadata, spec = pod["metadata"], pod["spec"]
            sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
            for container in (*spec["containers"], *sidecars):
                use = self.uses.get((metadata.get("labels", {}).get("app", ""), container["name"]))
                if use is not None:
                    self.add(
                        metadata["name"],
                        container["name"],
                        use,
                        spec.get("nodeName", ""),
                        since=since,
                        namespace=metadata["namespace"],
                    )

    def add(
        self,
        pod: str,
        container: str,
        use: ContainerUse,
        node: str = "",
        since: int | None = None,
        until: int | None = None,
        namespace: str = "",
    ) -> None:
        """Add the usage of one container for a time; its pod need not exist."""
        place = ContainerLocation(namespace or self.namespace, pod, container, node, MINUTE, 0.0)
        life = ContainerLifetime(self.start if since is None else since, until or self.began + FUTURE_MINUTES * MINUTE)
        minutes = self.hours * 60 + FUTURE_MINUTES
        with self._lock:
            self._containers.setdefault((pod, container), (place, life, use.compute_demand(self.start, minutes)))

    def impersonate(self, pod: str, container: str, use: ContainerUse) -> None:
        """Expose forged series of a container from another exporter."""
        place, life, demand = self._containers[pod, container]
        other = use.compute_demand(demand.start, len(demand.cores))
        with self._lock:
            # By all labels but one it is the container.
            self._impostors.append((replace(place, node=""), life, other))

    def change(self, pod: str, container: str, use: ContainerUse) -> None:
        """Change a container's usage from now on."""
        with self._lock:
            place, life, before = self._containers[pod, container]
            after, gone = use.compute_demand(before.start, len(before.cores)), (self.now() - before.start) // MINUTE
            joined = CadvisorDemand(
                before.start,
                np.concatenate((before.cores[:gone], after.cores[gone:])),
                np.concatenate((before.waiting[:gone], after.waiting[gone:])),
                np.concatenate((before.memory[:gone], after.memory[gone:])),
            )
            self._containers[pod, container] = (place, life, joined)

    def write_history(self, path: Path) -> None:
        """Write the usage until now in promtool's format."""
        times = np.arange(self.start, self.now() + 1, MINUTE, dtype=np.float64)
        cadvisor.write_openmetrics(self._series(times), path, job="kubelet")

    def exposition(self) -> str:
        """Return the present metrics of cAdvisor and node-exporter."""
        series = self._series(np.array([float(self.now())]))
        lines: list[str] = []
        for one in series:
            labels = f'container="{one.container}",id="{one.id}",namespace="{one.namespace}",node="{one.node}"'
            # Without an instance, as in the history: else there would be two series of a container that do not agree
            # until the history's last samples are five minutes old.
            labels += f',pod="{one.pod}",job="kubelet",instance=""'
            lines.append(f"container_cpu_usage_seconds_total{{{labels}}} {one.cpu[0]:.3f}")
            if one.waiting is not None:
                lines.append(f"container_pressure_cpu_waiting_seconds_total{{{labels}}} {one.waiting[0]:.3f}")
            lines.append(f"container_memory_working_set_bytes{{{labels}}} {int(one.memory[0])}")
        with self._lock:
            # One exporter a node, as node-exporter's DaemonSet has it.
            lines += [
                f'node_load1{{node="{node}",instance="{node}:9100",job="node-exporter"}} {load}'
                for node, load in self.loads.items()
            ]
        return "".join(f"{line}\n" for line in lines)

    def until(self, at: float) -> list[RawSeries]:
        """Return the first measurement of each container, and the last one until a time."""
        return self._series(np.array([float(self.start), float(at // MINUTE * MINUTE)]))

    def _series(self, times: np.ndarray) -> list[RawSeries]:
        with self._lock:
            containers = [*self._containers.values(), *self._impostors]
        return [one for place, life, demand in containers for one in cadvisor.scrape(place, life, demand, times)]

    @staticmethod
    def now() -> int:
        """Return the time in Unix seconds."""
        return int(time.time())  # noqa: TID251  Prometheus stamps what it scrapes with the time of the world


def scrape_config(address: str, seconds: float = 1) -> str:
    """Prometheus' configuration for what `exposed` serves; the series say themselves whose they are."""
    return (
        f"global:\n  scrape_interval: {seconds:g}s\n"
        f"scrape_configs:\n- job_name: cluster\n  honor_labels: true\n  static_configs:\n  - targets: ['{address}']\n"
    )


@contextmanager
def expose_usage(usage: ExposedUsage) -> Iterator[str]:
    """Serve the exposition on a free loopback port; yields HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = usage.exposition().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="exposition")
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
