"""Two copies of each service on a real control plane: cruise sizes one, and the HPA controller scales both."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from cruise.decisions.admission.admission import MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import TRACKING
from tests.controlplane.api import ApiError, Json, conditions, wait_until
from tests.controlplane.control_plane import CONTROLLER_MANAGER, ControlPlane
from tests.e2e.hpa.metrics_api import PodMetrics
from tests.e2e.hpa.services import MOST_ROUNDS, Service, to_bytes

SIZED, TWINS = "sized", "twins"
STABILIZATION_SECONDS = 5
"""The controller's window before it removes pods: meanwhile the use of those that are left is written."""
POLICY = Policy(
    mode=Mode.RESIZE,
    rules=TRACKING,
    new_workload_age=timedelta(0),
    excluded_namespaces=frozenset({TWINS, "kube-system"}),
)
KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "replicasets.apps": ("apps/v1", "ReplicaSet"),
    "deployments.apps": ("apps/v1", "Deployment"),
    "horizontalpodautoscalers.autoscaling": ("autoscaling/v2", "HorizontalPodAutoscaler"),
}


@dataclass
class ReplayResult:
    """Replicas of each service by step, sized and not, and what the sized ones request of CPU at each step."""

    replicas: list[Mapping[str, tuple[int, int]]] = field(default_factory=list)
    requested: list[Mapping[str, int]] = field(default_factory=list)
    resizes: int = 0

    @property
    def differences(self) -> list[tuple[int, str, tuple[int, int]]]:
        """Step, service and replicas where the two differ."""
        return [
            (step, name, pair)
            for step, counts in enumerate(self.replicas)
            for name, pair in counts.items()
            if pair[0] != pair[1]
        ]


class Replay:
    """Replays the use of services in steps, each until the real HPA controller has settled."""

    def __init__(self, control_plane: ControlPlane, metrics: PodMetrics, services: Sequence[Service]) -> None:
        self._control_plane = control_plane
        self._admin = control_plane.api()
        self._services = {one.name: one for one in services}
        self._histories = {one.name: one.history() for one in services}
        self._metrics = metrics
        self._seen: set[str] = set()

    def create(self) -> None:
        """Create both twins of every service, and wait until their pods run."""
        for namespace in (SIZED, TWINS):
            self._admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for service in self._services.values():
                for manifest in service.manifests(namespace):
                    self._admin.create(manifest)
        expected = 2 * sum(one.minimum for one in self._services.values())
        wait_until(lambda: len(self._ready_pods()) == expected, "all pods run")

    def run(self, minutes: Sequence[int]) -> ReplayResult:
        """Replay the given minutes: metrics, a sync of every HPA, then cruise."""
        result = ReplayResult()
        for minute in minutes:
            self._settle(minute)
            result.resizes += self._size(minute)
            result.replicas.append(self._count_replicas())
            result.requested.append(self._sum_requests())
        return result

    def _settle(self, minute: int) -> None:
        """Show every HPA the use of a minute until none changes its replicas: the pods left or added share it anew."""
        for _ in range(MOST_ROUNDS):
            # Otherwise a sync might see the new use of some pods of a service, and the former use of others.
            self._control_plane.pause(CONTROLLER_MANAGER)
            expected = self._write_metrics(minute)
            before = self._count_replicas()
            self._control_plane.resume(CONTROLLER_MANAGER)
            wait_until(partial(self._have_synced, expected), "every HPA has seen the use", longest_pause=1)
            if not self._await_change(before):
                return
            wait_until(lambda: len(self._ready_pods()) == self._count_pods(), "all pods run")

    def _await_change(self, before: Mapping[str, tuple[int, int]]) -> bool:
        """Wait for as long as the controller delays the removal of pods; return whether any number changed."""
        end = time.monotonic() + STABILIZATION_SECONDS + 3
        while time.monotonic() < end:
            if self._count_replicas() != before:
                return True
            time.sleep(0.3)
        return False

    def _have_synced(self, expected: Mapping[tuple[str, str], int]) -> bool:
        """Return whether every HPA reports the utilization of CPU that follows from what was written."""
        for one in self._admin.items("horizontalpodautoscalers.autoscaling"):
            metrics = one.get("status", {}).get("currentMetrics") or [{}]
            measured = metrics[0].get("resource") or metrics[0].get("containerResource") or {}
            percent = measured.get("current", {}).get("averageUtilization")
            if percent != expected[one["metadata"]["namespace"], one["metadata"]["name"]]:
                return False
        return True

    def _count_pods(self) -> int:
        return sum(sum(pair) for pair in self._count_replicas().values())

    def _ready_pods(self) -> list[Json]:
        pods = [pod for namespace in (SIZED, TWINS) for pod in self._admin.items("pods", namespace)]
        return [
            pod
            for pod in pods
            if conditions(pod).get("Ready", {}).get("status") == "True" and "deletionTimestamp" not in pod["metadata"]
        ]

    def _write_metrics(self, minute: int) -> Mapping[tuple[str, str], int]:
        """Write the use of all pods; return the utilization of CPU by service, in percent, of what its HPA counts."""
        pods: dict[tuple[str, str], list[Json]] = {}
        for pod in self._ready_pods():
            pods.setdefault((pod["metadata"]["namespace"], pod["metadata"]["labels"]["app"]), []).append(pod)
        expected = {}
        for (namespace, name), members in pods.items():
            service = self._services[name]
            use = service.use(minute, len(members))
            used = requested = 0
            for pod in members:
                self._metrics.write(pod, use)
                for one in pod["spec"]["containers"]:
                    if service.metrics[0].container in ("", one["name"]):
                        used += use[one["name"]][0]
                        requested += _millicores(one["resources"]["requests"]["cpu"])
            expected[namespace, name] = used * 100 // requested
        return expected

    def _size(self, minute: int) -> int:
        """Size the pods as a node pass does, new ones first as the webhook would have; return the resizes."""
        now = datetime.now(UTC)  # noqa: TID251 - the server's clock
        snapshot = self._snapshot()
        table = self._statistics(snapshot, minute, now)
        done = 0
        eligibility = Eligibility(snapshot, table, {}, POLICY, now)
        for pod in snapshot.pods:
            if pod.namespace == SIZED and pod.uid not in self._seen and pod.phase == "Running":
                self._seen.add(pod.uid)
                pending = replace(pod, node=None, phase="Pending")
                decision = decide_admission(pending, eligibility, table, NodeIndex(snapshot.nodes), (), POLICY)
                done += isinstance(decision, MutatePod) and self._resize(pod, decision.containers)
        snapshot = self._snapshot()
        pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        for plan in decide_node_plans(snapshot, self._statistics(snapshot, minute, now), POLICY, now):
            for action in plan.resize:
                done += self._resize(pods[action.namespace, action.pod], action.containers)
        return done

    def _resize(self, pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
        sizes = {
            one.container: {
                "requests": {"cpu": f"{one.requests.cpu_millicores}m", "memory": str(one.requests.memory_bytes)}
            }
            for one in targets
        }
        try:
            self._admin.resize(pod.namespace, pod.name, sizes)
        except ApiError:
            # The pod may have been removed since; the next step decides again.
            return False
        return True

    def _snapshot(self) -> ClusterSnapshot:
        items = [
            {**one, "apiVersion": version, "kind": kind}
            for resource, (version, kind) in KINDS.items()
            for one in self._admin.items(resource)
        ]
        return read_snapshot([json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()], "cluster")

    def _statistics(self, snapshot: ClusterSnapshot, minute: int, now: datetime) -> StatisticsTable:
        """What usage passes would know: the maxima of the history, and the use of this minute."""
        rows = []
        at, since = int(now.timestamp()), int((now - timedelta(days=8)).timestamp())
        members: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            if pod.namespace == SIZED and pod.workload is not None:
                members.setdefault(pod.workload.name, []).append(pod)
        for name, pods in members.items():
            use = self._services[name].use(minute, len(pods))
            largest = self._histories[name]
            for container, (cpu, memory) in use.items():
                largest[container] = max(largest[container][0], cpu), max(largest[container][1], memory)
                most_cpu, most_memory = largest[container]
                for owner in ["", *(one.name for one in pods)]:
                    key = StatisticKey(SIZED, owner, f"Deployment/{name}", container)
                    rows.append(
                        Statistic(
                            key, at, since, cpu, cpu, to_bytes(memory), to_bytes(memory), to_bytes(most_memory),
                            memory_last_bytes=to_bytes(memory), cpu_7d_max_millicores=most_cpu,
                        )
                    )  # fmt: skip
        return StatisticsTable.from_rows(rows)

    def _count_replicas(self) -> Mapping[str, tuple[int, int]]:
        counts = [
            {
                one["metadata"]["name"]: one["spec"]["replicas"]
                for one in self._admin.items("deployments.apps", namespace)
            }
            for namespace in (SIZED, TWINS)
        ]
        return {name: (counts[0][name], counts[1][name]) for name in self._services}

    def _sum_requests(self) -> Mapping[str, int]:
        sums = dict.fromkeys(self._services, 0)
        for pod in self._admin.items("pods", SIZED):
            for one in pod["spec"]["containers"]:
                sums[pod["metadata"]["labels"]["app"]] += _millicores(one["resources"]["requests"]["cpu"])
        return sums


def _millicores(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)
