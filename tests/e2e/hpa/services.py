"""Services under HPAs on utilization with ten days of usage: seven of history, three replayed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from cruise.domain.resources import MEBIBYTE
from cruise.simulation.horizontal_autoscaler import MeasuredPod, desire_replicas, want_replicas
from tests.controlplane.manifests import Json, container, pod_template, workload

HOUR = 60
DAY = 24 * HOUR
HISTORY = 7 * DAY
REPLAYED = 3 * DAY


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


@dataclass(frozen=True)
class Service:
    """A Deployment and its HPA. `load` is its mean use as a share of what its minimum of pods has below the target.

    `swing` is by how much the use of the hours of a day differs, relative to the mean. Amounts are millicores and MiB.
    """

    name: str
    load: float
    swing: float
    metrics: Sequence[Metric]
    minimum: int = 2
    maximum: int = 6
    requests: Mapping[str, tuple[int, int]] | None = None
    memory_load: float = 0.3

    @property
    def containers(self) -> Mapping[str, tuple[int, int]]:
        """CPU and memory requests of the template by container."""
        return self.requests or {"app": (1000, 1024)}

    def use(self, minute: int, replicas: int) -> dict[str, tuple[int, int]]:
        """The use of one of `replicas` pods by container; the load of all together does not depend on their number."""
        hour = minute / HOUR % 24
        noise = crc32(f"{self.name} {minute // 10}".encode()) % 1000 / 1000 - 0.5
        shape = 1 + self.swing * math.sin(2 * math.pi * (hour - 8) / 24) + 0.1 * noise
        pods = self.minimum / replicas
        cpu_target, memory_target = (
            next((one.target for one in self.metrics if one.resource == resource), 100) / 100
            for resource in ("cpu", "memory")
        )
        return {
            name: (
                max(1, int(cpu * cpu_target * self.load * shape * pods)),
                max(1, int(memory * memory_target * self.memory_load * shape * pods)),
            )
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
            want_replicas(self.measure(minute, replicas, one.resource), one.target, one.container, replicas)
            for one in self.metrics
        ]
        return desire_replicas(wanted, self.minimum, self.maximum)

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


CPU, MEMORY = Metric("cpu", 60), Metric("memory", 70)
WITH_PROXY = {"app": (1000, 1024), "proxy": (200, 128)}
SERVICES = (
    *(Service(f"idle-{n}", 0.05 + 0.05 * n, 0.4, [CPU]) for n in range(6)),
    *(Service(f"both-{n}", 0.1 + 0.1 * n, 0.3, [CPU, MEMORY]) for n in range(4)),
    *(Service(f"proxied-{n}", 0.15 + 0.2 * n, 0.3, [CPU], requests=WITH_PROXY) for n in range(2)),
    *(Service(f"one-{n}", 0.2, 0.3, [Metric("cpu", 60, "app")], requests=WITH_PROXY) for n in range(2)),
    *(Service(f"daily-{n}", 0.8 + 0.3 * n, 0.6, [CPU]) for n in range(4)),
    Service("by-memory", 0.1, 0.5, [CPU, MEMORY], memory_load=1.6),
    Service("at-maximum", 6.0, 0.05, [CPU], maximum=4),
)


def to_bytes(memory_mib: int) -> int:
    """MiB as bytes."""
    return memory_mib * MEBIBYTE
