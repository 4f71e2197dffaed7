"""Services under HPAs on utilization with ten days of drawn or recorded usage: seven of history, three replayed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from cruise.backtest.recordings.recording import load_trace
from cruise.domain.resources import MEBIBYTE
from cruise.simulation.horizontal_autoscaler import MeasuredPod, compute_desired_replicas, compute_replicas_for_metric
from tests.controlplane.manifests import Json, container, pod_template, workload

HOUR = 60
DAY = 24 * HOUR
HISTORY = 7 * DAY
REPLAYED = 3 * DAY
MOST_ROUNDS = 6
"""How often an HPA decides on one use at most: the pods that are left or added share it anew."""


@dataclass(frozen=True)
class Metric:
    """A metric of an HPA: resource, target in percent, and the container if it counts only one."""

    resource: str
    target: int
    container: str = ""

    def manifest(self) -> Json:
        """As in an HPA's spec."""
        target = {"type": "Utilization", "averageUtilization": self.target}
        if self.container:
            named = {"name": self.resource, "container": self.container, "target": target}
            return {"type": "ContainerResource", "containerResource": named}
        return {"type": "Resource", "resource": {"name": self.resource, "target": target}}


@dataclass(frozen=True, kw_only=True)
class Service(ABC):
    """A Deployment and its HPA. Amounts are millicores and MiB."""

    name: str
    metrics: Sequence[Metric]
    minimum: int = 2
    maximum: int = 6
    requests: Mapping[str, tuple[int, int]] | None = None

    @abstractmethod
    def get_shares(self, minute: int) -> tuple[float, float]:
        """The shares of its CPU and memory requests that each of the minimum of pods uses."""

    @property
    def containers(self) -> Mapping[str, tuple[int, int]]:
        """CPU and memory requests of the template by container."""
        return self.requests or {"app": (1000, 1024)}

    def use(self, minute: int, replicas: int) -> dict[str, tuple[int, int]]:
        """The use of one of `replicas` pods by container; the load of all together does not depend on their number."""
        pods = self.minimum / replicas
        cpu_share, memory_share = self.get_shares(minute)
        return {
            name: (max(1, int(cpu * cpu_share * pods)), max(1, int(memory * memory_share * pods)))
            for name, (cpu, memory) in self.containers.items()
        }

    def measure(self, minute: int, replicas: int, resource: str) -> list[MeasuredPod]:
        """The pods of the template as the HPA sees them."""
        at = 0 if resource == "cpu" else 1
        requests = {name: amounts[at] for name, amounts in self.containers.items()}
        use = {name: amounts[at] for name, amounts in self.use(minute, replicas).items()}
        return [MeasuredPod(requests, use)] * replicas

    def desire(self, minute: int, replicas: int) -> int:
        """What the HPA makes of that many pods of the template, without stabilization."""
        wanted = [
            compute_replicas_for_metric(
                self.measure(minute, replicas, one.resource), one.target, one.container, replicas
            )
            for one in self.metrics
        ]
        return compute_desired_replicas(wanted, self.minimum, self.maximum)

    def settle(self, minute: int, replicas: int) -> int:
        """The replicas that the HPA comes to while the use of a minute lasts."""
        for _ in range(MOST_ROUNDS):
            replicas = self.desire(minute, replicas)
        return replicas

    def history(self) -> dict[str, tuple[int, int]]:
        """The largest use of a pod by container in the seven days before the replay."""
        replicas, largest = self.minimum, {name: (0, 0) for name in self.containers}
        for minute in range(-HISTORY, 0, 10):
            for name, (cpu, memory) in self.use(minute, replicas).items():
                largest[name] = max(largest[name][0], cpu), max(largest[name][1], memory)
            replicas = self.desire(minute, replicas)
        return largest

    def manifests(self, namespace: str) -> list[Json]:
        """The Deployment and the HPA."""
        made = [
            container(name, {"cpu": f"{cpu}m", "memory": f"{memory}Mi"})
            for name, (cpu, memory) in self.containers.items()
        ]
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name}
        spec = {
            "scaleTargetRef": target,
            "minReplicas": self.minimum,
            "maxReplicas": self.maximum,
            "metrics": [one.manifest() for one in self.metrics],
        }
        return [
            workload("Deployment", namespace, self.name, pod_template(self.name, *made), self.minimum),
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"namespace": namespace, "name": self.name},
                "spec": spec,
            },
        ]


@dataclass(frozen=True, kw_only=True)
class DrawnService(Service):
    """A service with daily swings and noise.

    `load` is its mean use as a share of what its minimum of pods has below the target. `swing` is by how much the use
    of the hours of a day differs, relative to the mean.
    """

    load: float
    swing: float
    memory_load: float = 0.3

    def get_shares(self, minute: int) -> tuple[float, float]:
        hour = minute / HOUR % 24
        noise = crc32(f"{self.name} {minute // 10}".encode()) % 1000 / 1000 - 0.5
        shape = 1 + self.swing * math.sin(2 * math.pi * (hour - 8) / 24) + 0.1 * noise
        cpu_target, memory_target = (
            next((one.target for one in self.metrics if one.resource == resource), 100) / 100
            for resource in ("cpu", "memory")
        )
        return cpu_target * self.load * shape, memory_target * self.memory_load * shape


@dataclass(frozen=True, kw_only=True)
class RecordedService(Service):
    """A service whose pods use what was recorded: of each hour the largest samples, as shares of the requests."""

    hours: Sequence[tuple[float, float]]

    def get_shares(self, minute: int) -> tuple[float, float]:
        return self.hours[(minute + HISTORY) // HOUR]


CPU, MEMORY = Metric("cpu", 60), Metric("memory", 70)
WITH_PROXY = {"app": (1000, 1024), "proxy": (200, 128)}
SERVICES = (
    *(DrawnService(name=f"idle-{n}", load=0.05 + 0.05 * n, swing=0.4, metrics=[CPU]) for n in range(6)),
    *(DrawnService(name=f"both-{n}", load=0.1 + 0.1 * n, swing=0.3, metrics=[CPU, MEMORY]) for n in range(4)),
    *(
        DrawnService(name=f"proxied-{n}", load=0.15 + 0.2 * n, swing=0.3, metrics=[CPU], requests=WITH_PROXY)
        for n in range(2)
    ),
    *(
        DrawnService(name=f"one-{n}", load=0.2, swing=0.3, metrics=[Metric("cpu", 60, "app")], requests=WITH_PROXY)
        for n in range(2)
    ),
    *(DrawnService(name=f"daily-{n}", load=0.8 + 0.3 * n, swing=0.6, metrics=[CPU]) for n in range(4)),
    DrawnService(name="by-memory", load=0.1, swing=0.5, metrics=[CPU, MEMORY], memory_load=1.6),
    DrawnService(name="at-maximum", load=6.0, swing=0.05, metrics=[CPU], maximum=4),
)


def read_recorded_services(directory: Path, count: int = 20) -> list[RecordedService]:
    """Services that use what virtual machines of a trace directory used; every fourth is scaled by memory as well."""
    recording = load_trace(directory)
    samples = HOUR * 60 // recording.step_seconds
    hours = (HISTORY + REPLAYED) // HOUR
    chosen = np.linspace(0, len(recording.containers) - 1, count).astype(int).tolist()
    services = []
    for number, place in enumerate(chosen):
        one = recording.containers[place]
        shares = [
            np.nanmax(used[: hours * samples, place].reshape(hours, samples), axis=1) / request
            for used, request in (
                (recording.cpu_millicores, one.requests.cpu_millicores),
                (recording.memory_bytes, one.requests.memory_bytes),
            )
        ]
        metrics = [CPU] if number % 4 else [CPU, MEMORY]
        pairs = list(zip(*(share.tolist() for share in shares), strict=True))
        services.append(RecordedService(name=one.pod, metrics=metrics, hours=pairs))
    return services


def to_bytes(memory_mib: int) -> int:
    """MiB as bytes."""
    return memory_mib * MEBIBYTE
