"""Which containers are in danger as they are sized now: killed, about to be, throttled, or without any claim."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import numpy as np

from cruise.decisions.scan.remedies import Remedies, Remedy
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.shown_kills import kills_that_count
from cruise.domain.cluster import Container, ContainerRole, OomKill, Pod, Snapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable

NEAR_LIMIT = 0.9
_Container = tuple[str, str, str]  # namespace, pod, container


class RiskKind(StrEnum):
    """What threatens a container, worst first."""

    OOM_KILLED = "oom-killed"
    MEMORY_GROWS = "memory-grows"
    MEMORY_NEAR_LIMIT = "memory-near-limit"
    MEMORY_UNDER_REQUESTED = "memory-under-requested"
    CPU_THROTTLED = "cpu-throttled"
    CPU_STARVED = "cpu-starved"
    NO_REQUESTS = "no-requests"


# What threatens a container only where its node keeps less than its pods use.
_OF_NODES = {RiskKind.MEMORY_UNDER_REQUESTED: ResourceName.MEMORY, RiskKind.CPU_STARVED: ResourceName.CPU}
_ORDER = {kind: place for place, kind in enumerate(RiskKind)}


@dataclass(frozen=True, slots=True)
class Risk:
    """One danger to one container of a workload, over all of its pods that share it.

    `observed` and `allowed` are the worst pod's, in bytes or millicores by kind: the limit at the kill (0: none) and
    nothing; the largest use and the limit; base and request. `killed_at`, `restarts` and `remedy` belong to kills,
    `missing` names what has no request. `worst_pod` is empty where the killed pods are gone.
    """

    kind: RiskKind
    namespace: str
    workload: str
    container: str
    worst_pod: str
    observed: int = 0
    allowed: int = 0
    killed_at: datetime | None = None
    restarts: int = 0
    remedy: Remedy | None = None
    missing: tuple[str, ...] = ()
    pods: int = 1
    of_pods: int = 1

    @property
    def ratio(self) -> float:
        """How far the observed is over what is allowed."""
        return self.observed / self.allowed if self.allowed else float(self.observed)


def rank_risks(
    snapshot: Snapshot, statistics: StatisticsTable, plans: Sequence[NodePlan], policy: Policy, now: datetime
) -> tuple[Risk, ...]:
    """Return all risks, one for each kind and container of a workload, worst first.

    Statistics older than `policy.max_age` say nothing. A container without any statistic may still be known to have
    been killed, or to have no requests. Kills of init containers and of pods that ended count: what runs next has the
    same limit.
    """
    crowded = frozenset(plan.node for plan in plans if plan.evict or not plan.fits)
    growing = {
        (hold.namespace, hold.pod, name) for plan in plans for hold in plan.growing for name in hold.detail.split(", ")
    }
    kills = _latest_kills(kills_that_count(snapshot, now))
    remedies = Remedies(snapshot, policy)
    judge = _Judge(statistics, crowded, growing, kills, remedies, policy, now)
    live = [pod for pod in snapshot.pods if pod.node is not None and not pod.terminal and not pod.terminating]
    counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    found: dict[tuple[RiskKind, str, str, str], Risk] = {}
    over_requests: list[tuple[str | None, Risk]] = []

    def add(risk: Risk) -> None:
        key = _key(risk)
        found[key] = _joined(found[key], risk) if key in found else risk

    for pod in live:
        workload = pod.workload_name
        for container in pod.sized_containers:
            place = (pod.namespace, workload, container.name)
            counts[place] += 1
            for risk in judge.risks_of(pod, workload, container):
                if risk.kind in _OF_NODES:
                    over_requests.append((pod.node, risk))
                else:
                    add(risk)
    # Pods of a node share what is kept for them: one above its request is at risk where all of them use more than that.
    for node, risk in over_requests:
        if judge.is_short(node, _OF_NODES[risk.kind]):
            add(risk)
    # Of init containers, and of pods that ended.
    for key, kill in kills.items():
        if key not in judge.kills_told:
            add(_risk_of_kill(kill, remedies.of_kill(kill)))
    found = {_key(risk): risk for risk in _remembered_alone(snapshot, statistics, policy, counts, now)} | found
    risks = [
        replace(risk, of_pods=max(counts[risk.namespace, risk.workload, risk.container], risk.pods))
        for risk in found.values()
    ]
    return tuple(sorted(risks, key=_severity))


def _key(risk: Risk) -> tuple[RiskKind, str, str, str]:
    return (risk.kind, risk.namespace, risk.workload, risk.container)


def _risk_of_kill(kill: OomKill, remedy: Remedy | None) -> Risk:
    workload = f"Pod/{kill.pod}" if kill.workload is None else str(kill.workload)
    return Risk(
        RiskKind.OOM_KILLED,
        kill.namespace,
        workload,
        kill.container,
        kill.pod,
        kill.memory_limit_bytes or 0,
        killed_at=kill.finished_at,
        restarts=kill.restarts,
        remedy=remedy,
    )


def _risk_of_running(pod: Pod, container: Container, kill: OomKill | None, remembered: int, remedies: Remedies) -> Risk:
    remedy, restarts = remedies.of_running(pod, container), container.restart_count
    if kill is not None:
        return replace(_risk_of_kill(kill, remedy), workload=pod.workload_name, restarts=max(restarts, kill.restarts))
    place = (pod.namespace, pod.workload_name, container.name, pod.name)
    return Risk(RiskKind.OOM_KILLED, *place, remembered, restarts=restarts, remedy=remedy)


def kill_risks_of(
    pod: Pod, snapshot: Snapshot, statistics: StatisticsTable, policy: Policy, now: datetime
) -> tuple[Risk, ...]:
    """Return the kills of one pod's containers, init containers among them, that its status or statistics show."""
    kills = kills_that_count(snapshot, now)
    own = [kill for kill in kills if (kill.namespace, kill.pod) == (pod.namespace, pod.name)]
    latest, remedies = _latest_kills(own), Remedies(snapshot, policy)
    oldest, found = int((now - policy.max_age).timestamp()), []
    for container in pod.containers:
        kill = latest.get((pod.namespace, pod.name, container.name))
        row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        fresh = row is not None and statistics.updated_at[row] >= oldest
        remembered = statistics.oom_memory_bytes.item(row) if row is not None and fresh else 0
        if kill is not None and (pod.terminal or container.role is ContainerRole.INIT):
            found.append(_risk_of_kill(kill, remedies.of_kill(kill)))
        elif kill is not None or (remembered and not pod.terminal):
            found.append(_risk_of_running(pod, container, kill, remembered, remedies))
    return tuple(found)


def _remembered_alone(
    snapshot: Snapshot,
    statistics: StatisticsTable,
    policy: Policy,
    running: Collection[tuple[str, str, str]],
    now: datetime,
) -> Iterator[Risk]:
    """Yield the kills that statistics remember of workloads without `running` pods, as of a CronJob between two runs.

    Their pods may be deleted.
    """
    fresh = statistics.updated_at >= int((now - policy.max_age).timestamp())
    for row in np.flatnonzero((statistics.oom_memory_bytes > 0) & fresh).tolist():
        key = statistics.keys[row]
        kind, _, name = key.workload.partition("/")
        is_known = not key.pod and (key.namespace, WorkloadRef(kind, name)) in snapshot.workloads
        if is_known and (key.namespace, key.workload, key.container) not in running:
            taught = statistics.oom_memory_bytes.item(row)
            yield Risk(RiskKind.OOM_KILLED, key.namespace, key.workload, key.container, "", taught)


def _severity(risk: Risk) -> tuple[int, float, int, str, str, str]:
    recent = -risk.killed_at.timestamp() if risk.killed_at is not None else 0.0
    worst = recent if risk.kind is RiskKind.OOM_KILLED else -risk.ratio
    return (_ORDER[risk.kind], worst, -risk.pods, risk.namespace, risk.workload, risk.container)


def _joined(known: Risk, other: Risk) -> Risk:
    """Join the risks of two pods; the worse one's figures stay, and what a person has to do about either."""
    worse = other if _severity(other) < _severity(known) else known
    return replace(
        worse,
        pods=known.pods + other.pods,
        restarts=max(known.restarts, other.restarts),
        remedy=worse.remedy or known.remedy or other.remedy,
    )


def _latest_kills(kills: Iterable[OomKill]) -> Mapping[_Container, OomKill]:
    latest: dict[_Container, OomKill] = {}
    for kill in kills:
        key = (kill.namespace, kill.pod, kill.container)
        if key not in latest or kill.finished_at > latest[key].finished_at:
            latest[key] = kill
    return latest


class _Judge:
    """Judges single containers; the statistics' columns as plain numbers, since there may be 225,000."""

    def __init__(
        self,
        statistics: StatisticsTable,
        crowded: frozenset[str],
        growing: Collection[tuple[str, str, str]],
        kills: Mapping[_Container, OomKill],
        remedies: Remedies,
        policy: Policy,
        now: datetime,
    ) -> None:
        self._find = statistics.find
        self._oldest_seconds = int((now - policy.max_age).timestamp())
        self._crowded = crowded
        self._growing = growing
        self._kills = kills
        self._remedies = remedies
        self.kills_told: set[_Container] = set()
        self._excludes = policy.excludes
        # By node and resource: by how much bases are above requests, over all containers with fresh statistics.
        self._short: defaultdict[tuple[str | None, ResourceName], int] = defaultdict(int)
        self._updated_at = statistics.updated_at.tolist()
        self._cpu_base = statistics.cpu_base_millicores.tolist()
        self._cpu_peak = statistics.cpu_peak_millicores.tolist()
        self._memory_base = statistics.memory_base_bytes.tolist()
        self._memory_peak = statistics.memory_peak_bytes.tolist()
        self._memory_7d_max = statistics.memory_7d_max_bytes.tolist()
        self._oom_memory = statistics.oom_memory_bytes.tolist()

    def risks_of(self, pod: Pod, workload: str, container: Container) -> Iterator[Risk]:
        """Yield what threatens one container of a running pod."""
        row = self._find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        place = (pod.namespace, workload, container.name, pod.name)
        kill = self._kills.get((pod.namespace, pod.name, container.name))
        fresh = row is not None and self._updated_at[row] >= self._oldest_seconds
        remembered = self._oom_memory[row] if row is not None and fresh else 0
        if kill is not None:
            self.kills_told.add((pod.namespace, pod.name, container.name))
        if kill is not None or remembered:
            yield _risk_of_running(pod, container, kill, remembered, self._remedies)
        if row is not None and fresh:
            if pod.pod_requests is None:
                requests = container.requests.resources
                self._short[pod.node, ResourceName.CPU] += self._cpu_base[row] - requests.cpu_millicores
                self._short[pod.node, ResourceName.MEMORY] += self._memory_base[row] - requests.memory_bytes
            yield from self._by_use(place, pod.node, container, row)
        missing = tuple(
            name
            for name, amount in (
                ("CPU", container.requests.cpu_millicores),
                ("memory", container.requests.memory_bytes),
            )
            if not amount and pod.pod_requests is None
        )
        if missing and not self._excludes(pod.namespace):
            yield Risk(RiskKind.NO_REQUESTS, *place, observed=len(missing), missing=missing)

    def is_short(self, node: str | None, resource: ResourceName) -> bool:
        """Tell whether the pods of a node that were judged use more together than they request."""
        return self._short[node, resource] > 0

    def _by_use(
        self, place: tuple[str, str, str, str], node: str | None, container: Container, row: int
    ) -> Iterator[Risk]:
        requests, limits = container.requests, container.limits
        largest = max(self._memory_peak[row], self._memory_7d_max[row])
        namespace, _, name, pod = place
        if limits.memory_bytes and (namespace, pod, name) in self._growing:
            yield Risk(RiskKind.MEMORY_GROWS, *place, largest, limits.memory_bytes)
        elif limits.memory_bytes and largest >= NEAR_LIMIT * limits.memory_bytes:
            yield Risk(RiskKind.MEMORY_NEAR_LIMIT, *place, largest, limits.memory_bytes)
        base = self._memory_base[row]
        if requests.memory_bytes and base > requests.memory_bytes:
            yield Risk(RiskKind.MEMORY_UNDER_REQUESTED, *place, base, requests.memory_bytes)
        # Demand counts the time spent waiting for a CPU, so it can pass the limit that use itself never passes.
        if limits.cpu_millicores and self._cpu_peak[row] > limits.cpu_millicores:
            yield Risk(RiskKind.CPU_THROTTLED, *place, self._cpu_peak[row], limits.cpu_millicores)
        if requests.cpu_millicores and node in self._crowded and self._cpu_base[row] > requests.cpu_millicores:
            yield Risk(RiskKind.CPU_STARVED, *place, self._cpu_base[row], requests.cpu_millicores)
