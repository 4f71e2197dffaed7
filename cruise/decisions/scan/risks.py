"""Which containers are at risk with their present sizes: killed, close to it, throttled, or without requests."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import numpy as np

from cruise.decisions.pod_policy.container_bounds import get_template_memory_limits, get_workload_memory_limits
from cruise.decisions.pod_policy.heap_floors import compute_heap_excess_over_limit, get_heap_bound
from cruise.decisions.sizing.memory_limit import compute_limit_ceiling
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.oom_records import find_relevant_oom_kills
from cruise.domain.cluster import ClusterSnapshot, Container, ContainerRole, OomKill, Pod, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable


class UserRemedy(StrEnum):
    """What a user must do about kills that cruise does not prevent."""

    RAISE_TEMPLATE_LIMIT = "raise-template-limit"  # the limit is at its ceiling
    SIZE_INIT_CONTAINER = "size-init-container"  # cruise does not size init containers
    SIZE_TEMPLATE = "size-template"  # the pod finished, and the next one is created from the template
    SIZE_OWNER = "size-owner"  # the same for a kind whose template cruise does not read
    SIZE_MANIFEST = "size-manifest"  # the pod finished, and no controller creates another one


class UserRemedyFinder:
    """Finds what a user must do about a kill."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._nodes = {node.name: node.allocatable.memory_bytes for node in snapshot.nodes}

    def get_for_kill(self, kill: OomKill) -> UserRemedy | None:
        """Return the remedy for a container that does not run any more."""
        workload = kill.workload
        limits = None if workload is None else get_workload_memory_limits(kill.namespace, workload, self._snapshot)
        template = None if limits is None else limits.get(kill.container)
        found = self._find_remedy(kill.role, kill.memory_limit_bytes, template)
        if found is not None or not kill.runs_to_completion:
            return found
        if workload is None:
            return UserRemedy.SIZE_MANIFEST
        is_read = (kill.namespace, workload) in self._snapshot.workloads
        return UserRemedy.SIZE_TEMPLATE if is_read else UserRemedy.SIZE_OWNER

    def get_for_running_pod(self, pod: Pod, container: Container) -> UserRemedy | None:
        """Return the remedy for a container that runs again."""
        limits = get_template_memory_limits(pod, self._snapshot)
        template = None if limits is None else limits.get(container.name)
        return self._find_remedy(
            container.role, container.limits.memory_bytes, template, self._nodes.get(pod.node or "")
        )

    def _find_remedy(
        self, role: ContainerRole, limit: int | None, template: int | None, allocatable: int | None = None
    ) -> UserRemedy | None:
        if role is ContainerRole.INIT:
            return UserRemedy.SIZE_INIT_CONTAINER
        at_ceiling = limit is not None and limit >= compute_limit_ceiling(template, allocatable, self._policy)
        return UserRemedy.RAISE_TEMPLATE_LIMIT if at_ceiling else None


NEAR_LIMIT_SHARE = 0.9
_Container = tuple[str, str, str]  # namespace, pod, container


class ContainerRiskKind(StrEnum):
    """What threatens a container, worst first."""

    OOM_KILLED = "oom-killed"
    MEMORY_LEAK_SUSPECTED = "memory-leak-suspected"
    MEMORY_NEAR_LIMIT = "memory-near-limit"
    HEAP_ABOVE_LIMIT = "heap-above-limit"
    MEMORY_UNDER_REQUESTED = "memory-under-requested"
    CPU_THROTTLED = "cpu-throttled"
    CPU_STARVED = "cpu-starved"
    NO_REQUESTS = "no-requests"


# Risks only on nodes whose pods together use more than they request.
_NODE_RISKS = {
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: ResourceName.MEMORY,
    ContainerRiskKind.CPU_STARVED: ResourceName.CPU,
}
_ORDER = {kind: place for place, kind in enumerate(ContainerRiskKind)}


@dataclass(frozen=True, slots=True)
class ContainerRisk:
    """One risk of one container of a workload, over all of its pods that share it.

    `observed` and `allowed` are the worst pod's, in bytes or millicores by kind: the limit at the kill (0: none) and
    nothing; the largest use and the limit, or what the heap lets the process take; base and request. `heap` is the
    option that states the heap. `killed_at`, `restarts` and `remedy` belong to kills,
    `missing` names missing requests. `worst_pod` is empty if the killed pods no longer exist.
    """

    kind: ContainerRiskKind
    namespace: str
    workload: str
    container: str
    worst_pod: str
    observed: int = 0
    allowed: int = 0
    killed_at: datetime | None = None
    restarts: int = 0
    remedy: UserRemedy | None = None
    missing: tuple[str, ...] = ()
    heap: str = ""
    affected_pods: int = 1
    total_pods: int = 1

    @property
    def ratio(self) -> float:
        """By what factor the observed value exceeds the allowed one."""
        return self.observed / self.allowed if self.allowed else float(self.observed)


def rank_risks(
    snapshot: ClusterSnapshot, statistics: StatisticsTable, plans: Sequence[NodePlan], policy: Policy, now: datetime
) -> tuple[ContainerRisk, ...]:
    """Return all risks, one per kind and container of a workload, worst first.

    Statistics older than `policy.max_age` are ignored. Without statistics a container may still have been killed, or
    have no requests. Kills of init containers and of finished pods count: their successors have the same limit.
    """
    nodes_under_pressure = frozenset(plan.node for plan in plans if plan.is_full)
    suspected_leaks = {
        (leak.namespace, leak.pod, name)
        for plan in plans
        for leak in plan.suspected_leaks
        for name in leak.detail.split(", ")
    }
    kills = _get_latest_kills(find_relevant_oom_kills(snapshot, now))
    remedies = UserRemedyFinder(snapshot, policy)
    assessment = _RiskAssessment(statistics, nodes_under_pressure, suspected_leaks, kills, remedies, policy, now)
    running = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished and not pod.terminating]
    counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    found: dict[tuple[ContainerRiskKind, str, str, str], ContainerRisk] = {}
    over_requests: list[tuple[str | None, ContainerRisk]] = []

    def add(risk: ContainerRisk) -> None:
        key = _get_key(risk)
        found[key] = _combine(found[key], risk) if key in found else risk

    for pod in running:
        workload = pod.workload_name
        for container in pod.sized_containers:
            key = (pod.namespace, workload, container.name)
            counts[key] += 1
            for risk in assessment.find_risks(pod, workload, container):
                if risk.kind in _NODE_RISKS:
                    over_requests.append((pod.node, risk))
                else:
                    add(risk)
    # Pods share their node's requests: one above its own is at risk only if all together use more than they request.
    for node, risk in over_requests:
        if assessment.is_short(node, _NODE_RISKS[risk.kind]):
            add(risk)
    # Kills of init containers and of finished pods.
    for key, kill in kills.items():
        if key not in assessment.reported_kills:
            add(_build_kill_risk(kill, remedies.get_for_kill(kill)))
    found = {
        _get_key(risk): risk for risk in _iterate_remembered_kills(snapshot, statistics, policy, counts, now)
    } | found
    risks = [
        replace(risk, total_pods=max(counts[risk.namespace, risk.workload, risk.container], risk.affected_pods))
        for risk in found.values()
    ]
    return tuple(sorted(risks, key=_severity))


def _get_key(risk: ContainerRisk) -> tuple[ContainerRiskKind, str, str, str]:
    return (risk.kind, risk.namespace, risk.workload, risk.container)


def _build_kill_risk(kill: OomKill, remedy: UserRemedy | None) -> ContainerRisk:
    workload = f"Pod/{kill.pod}" if kill.workload is None else str(kill.workload)
    return ContainerRisk(
        ContainerRiskKind.OOM_KILLED,
        kill.namespace,
        workload,
        kill.container,
        kill.pod,
        kill.memory_limit_bytes or 0,
        killed_at=kill.finished_at,
        restarts=kill.restarts,
        remedy=remedy,
    )


def _build_running_kill_risk(
    pod: Pod, container: Container, kill: OomKill | None, remembered: int, remedies: UserRemedyFinder
) -> ContainerRisk:
    remedy, restarts = remedies.get_for_running_pod(pod, container), container.restart_count
    if kill is not None:
        return replace(
            _build_kill_risk(kill, remedy), workload=pod.workload_name, restarts=max(restarts, kill.restarts)
        )
    place = (pod.namespace, pod.workload_name, container.name, pod.name)
    return ContainerRisk(ContainerRiskKind.OOM_KILLED, *place, remembered, restarts=restarts, remedy=remedy)


def find_oom_kill_risks(
    pod: Pod, snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime
) -> tuple[ContainerRisk, ...]:
    """Return the kills of one pod's containers, including init containers, that its status or statistics show."""
    kills = find_relevant_oom_kills(snapshot, now)
    kills_of_pod = [kill for kill in kills if (kill.namespace, kill.pod) == (pod.namespace, pod.name)]
    latest, remedies = _get_latest_kills(kills_of_pod), UserRemedyFinder(snapshot, policy)
    oldest, risks = int((now - policy.max_age).timestamp()), []
    for container in pod.containers:
        kill = latest.get((pod.namespace, pod.name, container.name))
        row = statistics.find_row(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        is_fresh = row is not None and statistics.updated_at[row] >= oldest
        oom_memory = statistics.oom_memory_bytes.item(row) if row is not None and is_fresh else 0
        if kill is not None and (pod.is_finished or container.role is ContainerRole.INIT):
            risks.append(_build_kill_risk(kill, remedies.get_for_kill(kill)))
        elif kill is not None or (oom_memory and not pod.is_finished):
            risks.append(_build_running_kill_risk(pod, container, kill, oom_memory, remedies))
    return tuple(risks)


def _iterate_remembered_kills(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    running: Collection[tuple[str, str, str]],
    now: datetime,
) -> Iterator[ContainerRisk]:
    """Yield the kills in statistics of workloads without `running` pods, such as a CronJob between two runs.

    Their pods may be deleted.
    """
    is_fresh = statistics.updated_at >= int((now - policy.max_age).timestamp())
    for row in np.flatnonzero((statistics.oom_memory_bytes > 0) & is_fresh).tolist():
        key = statistics.keys[row]
        kind, _, name = key.workload.partition("/")
        is_known = not key.pod and (key.namespace, WorkloadRef(kind, name)) in snapshot.workloads
        if is_known and (key.namespace, key.workload, key.container) not in running:
            oom_memory = statistics.oom_memory_bytes.item(row)
            yield ContainerRisk(
                ContainerRiskKind.OOM_KILLED, key.namespace, key.workload, key.container, "", oom_memory
            )


def _severity(risk: ContainerRisk) -> tuple[int, float, int, str, str, str]:
    recent = -risk.killed_at.timestamp() if risk.killed_at is not None else 0.0
    worst = recent if risk.kind is ContainerRiskKind.OOM_KILLED else -risk.ratio
    return (_ORDER[risk.kind], worst, -risk.affected_pods, risk.namespace, risk.workload, risk.container)


def _combine(known: ContainerRisk, other: ContainerRisk) -> ContainerRisk:
    """Combine the risks of two pods: the figures of the worse one, and the remedy of either."""
    worst = other if _severity(other) < _severity(known) else known
    return replace(
        worst,
        affected_pods=known.affected_pods + other.affected_pods,
        restarts=max(known.restarts, other.restarts),
        remedy=worst.remedy or known.remedy or other.remedy,
    )


def _get_latest_kills(kills: Iterable[OomKill]) -> Mapping[_Container, OomKill]:
    latest: dict[_Container, OomKill] = {}
    for kill in kills:
        key = (kill.namespace, kill.pod, kill.container)
        if key not in latest or kill.finished_at > latest[key].finished_at:
            latest[key] = kill
    return latest


class _RiskAssessment:
    """Assesses single containers; columns are lists of plain numbers, since there may be 225,000."""

    def __init__(
        self,
        statistics: StatisticsTable,
        nodes_under_pressure: frozenset[str],
        suspected_leaks: Collection[tuple[str, str, str]],
        kills: Mapping[_Container, OomKill],
        remedies: UserRemedyFinder,
        policy: Policy,
        now: datetime,
    ) -> None:
        self._find = statistics.find_row
        self._oldest_seconds = int((now - policy.max_age).timestamp())
        self._nodes_under_pressure = nodes_under_pressure
        self._suspected_leaks = suspected_leaks
        self._kills = kills
        self._remedies = remedies
        self.reported_kills: set[_Container] = set()
        self._excludes = policy.excludes_namespace
        self._policy = policy
        # By node and resource: by how much bases exceed requests, over all containers with fresh statistics.
        self._excess_by_node: defaultdict[tuple[str | None, ResourceName], int] = defaultdict(int)
        self._updated_at = statistics.updated_at.tolist()
        self._cpu_base = statistics.cpu_base_millicores.tolist()
        self._cpu_peak = statistics.cpu_peak_millicores.tolist()
        self._memory_base = statistics.memory_base_bytes.tolist()
        self._memory_peak = statistics.memory_peak_bytes.tolist()
        self._memory_7d_max = statistics.memory_7d_max_bytes.tolist()
        self._oom_memory = statistics.oom_memory_bytes.tolist()

    def find_risks(self, pod: Pod, workload: str, container: Container) -> Iterator[ContainerRisk]:
        """Yield the risks of one container of a running pod."""
        row = self._find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        key = (pod.namespace, workload, container.name, pod.name)
        kill = self._kills.get((pod.namespace, pod.name, container.name))
        is_fresh = row is not None and self._updated_at[row] >= self._oldest_seconds
        oom_memory = self._oom_memory[row] if row is not None and is_fresh else 0
        if kill is not None:
            self.reported_kills.add((pod.namespace, pod.name, container.name))
        if kill is not None or oom_memory:
            yield _build_running_kill_risk(pod, container, kill, oom_memory, self._remedies)
        if row is not None and is_fresh:
            if pod.pod_level is None:
                requests = container.requests.resources
                self._excess_by_node[pod.node, ResourceName.CPU] += self._cpu_base[row] - requests.cpu_millicores
                self._excess_by_node[pod.node, ResourceName.MEMORY] += self._memory_base[row] - requests.memory_bytes
            yield from self._find_usage_risks(key, pod.node, container, row)
        heap = get_heap_bound(container, self._policy) if container.heap is not None else None
        excess = compute_heap_excess_over_limit(heap, container) if heap is not None else 0
        if heap is not None and excess:
            limit = container.limits.memory_bytes or 0
            yield ContainerRisk(ContainerRiskKind.HEAP_ABOVE_LIMIT, *key, excess, limit, heap=heap.source)
        missing = tuple(
            name
            for name, amount in (
                ("CPU", container.requests.cpu_millicores),
                ("memory", container.requests.memory_bytes),
            )
            if not amount and pod.pod_level is None
        )
        if missing and not self._excludes(pod.namespace):
            yield ContainerRisk(ContainerRiskKind.NO_REQUESTS, *key, observed=len(missing), missing=missing)

    def is_short(self, node: str | None, resource: ResourceName) -> bool:
        """Return whether the assessed pods of a node together use more than they request."""
        return self._excess_by_node[node, resource] > 0

    def _find_usage_risks(
        self, key: tuple[str, str, str, str], node: str | None, container: Container, row: int
    ) -> Iterator[ContainerRisk]:
        requests, limits = container.requests, container.limits
        largest = max(self._memory_peak[row], self._memory_7d_max[row])
        namespace, _, name, pod = key
        if limits.memory_bytes and (namespace, pod, name) in self._suspected_leaks:
            yield ContainerRisk(ContainerRiskKind.MEMORY_LEAK_SUSPECTED, *key, largest, limits.memory_bytes)
        elif limits.memory_bytes and largest >= NEAR_LIMIT_SHARE * limits.memory_bytes:
            yield ContainerRisk(ContainerRiskKind.MEMORY_NEAR_LIMIT, *key, largest, limits.memory_bytes)
        base = self._memory_base[row]
        if requests.memory_bytes and base > requests.memory_bytes:
            yield ContainerRisk(ContainerRiskKind.MEMORY_UNDER_REQUESTED, *key, base, requests.memory_bytes)
        # Demand includes the time spent waiting for a CPU, so it can exceed a limit that use itself cannot.
        if limits.cpu_millicores and self._cpu_peak[row] > limits.cpu_millicores:
            yield ContainerRisk(ContainerRiskKind.CPU_THROTTLED, *key, self._cpu_peak[row], limits.cpu_millicores)
        if (
            requests.cpu_millicores
            and node in self._nodes_under_pressure
            and self._cpu_base[row] > requests.cpu_millicores
        ):
            yield ContainerRisk(ContainerRiskKind.CPU_STARVED, *key, self._cpu_base[row], requests.cpu_millicores)
