"""How each number of a container came about: the steps of the node pass, with what went into them.

The steps are read off the columns that decide; nothing here decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.sizing.container_sizes import ContainerSize
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.recommendation import UNIT, Demand, recommend
from cruise.decisions.sizing.sharing import FIRST_KUBELET_LOWERING_MEMORY_LIMITS, NodeColumns
from cruise.domain.annotations import Guidance
from cruise.domain.arrays import UNBOUNDED, Int64Array, round_up
from cruise.domain.cluster import LimitRangeItem, Node, Snapshot
from cruise.domain.policy import Policy
from cruise.domain.resources import Amounts, ResourceName, Resources
from cruise.domain.usage import Statistic, StatisticsTable


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what a request may be, and who set it: `floor`, `override`, `limit-range`, None for no bound."""

    value: int | None
    source: str | None


@dataclass(frozen=True, slots=True)
class DeadBand:
    """Whether a value moves far enough to be written: by `least` at least, and by `least_share` of what it is now."""

    before: int
    after: int
    least: int
    least_share: float
    leaves: bool


@dataclass(frozen=True, slots=True)
class RequestSteps:
    """From base to request, in millicores or bytes: `base + largest × headroom / total`, rounded, clamped, trimmed.

    `largest` and `total` are the node's largest container headroom and the sum of all, over the pods that stay.
    `clamped` is what rounding, the bounds and, on a node that does not fit, the ban on growing leave; `trimmed` is
    what was taken back so that the node's sum fits. Where the resource is not managed, `final` is the request as it is.
    """

    managed: bool
    current: int
    base: int
    peak: int
    headroom_factor: float
    headroom: int
    largest: int
    total: int
    share: float
    rounded: int
    lower: Bound
    upper: Bound
    clamped: int
    trimmed: int
    final: int
    dead_band: DeadBand


@dataclass(frozen=True, slots=True)
class MemoryLimitSteps:
    """From the 7-day maximum to the memory limit, in bytes; 0 where there is no limit.

    `wanted` is 2 × the larger of 7-day maximum and OOM memory, `safe` 1.2 × the working set now, `cap` what the
    LimitRanges leave (None: anything). `kept` tells that the server cannot lower limits in place, `young` that the
    history is too short to lower one. A container that gets no request gets no limit either.
    """

    managed: bool
    current: int
    memory_7d_max: int
    oom_memory: int
    wanted: int
    safe: int
    cap: int | None
    kept: bool
    young: bool
    final: int
    dead_band: DeadBand


@dataclass(frozen=True, slots=True)
class CpuLimitSteps:
    """A CPU limit cannot be removed in place, so it is raised to what the node has; 0 where there is none."""

    managed: bool
    current: int
    node_allocatable: int
    final: int
    dead_band: DeadBand


@dataclass(frozen=True, slots=True)
class ContainerSteps:
    """Everything about one container's sizes; `of_workload` tells that the statistic speaks for its whole workload."""

    container: str
    statistic: Statistic
    of_workload: bool
    cpu: RequestSteps
    memory: RequestSteps
    memory_limit: MemoryLimitSteps
    cpu_limit: CpuLimitSteps


class NodeSteps:
    """The columns of one node's pass, taken again for the pods that it sizes."""

    def __init__(
        self,
        snapshot: Snapshot,
        node: Node,
        plan: NodePlan,
        touchable: Sequence[Touchable],
        statistics: StatisticsTable,
        policy: Policy,
    ) -> None:
        self.table = recommend(touchable, statistics, snapshot.limit_ranges, policy)
        self.columns = NodeColumns.of_one(node, plan.available, self.table)
        self._snapshot = snapshot
        self._node = node
        self._plan = plan
        self._statistics = statistics
        self._policy = policy
        gone = {(eviction.namespace, eviction.pod) for eviction in plan.evict}
        self._stays = np.array([(t.pod.namespace, t.pod.name) not in gone for t in touchable], dtype=np.bool_)
        fits = np.array([plan.fits], dtype=np.bool_)
        self._clamped = {
            resource: self.columns.sizes(resource, np.array([of(plan.headroom, resource)]), self._stays, fits)
            for resource in ResourceName
        }
        self._headrooms = {
            resource: np.where(self._stays[self.table.pod_of], self._demand(resource).headroom, 0)
            for resource in ResourceName
        }
        self._targets = {(t.namespace, t.pod, t.container): t for t in plan.targets}
        self._cpu_limits: Int64Array = self.columns.cpu_limits(np.array(list(self._cpu_requests()), dtype=np.int64))

    def _cpu_requests(self) -> Iterator[int]:
        for pod in self.table.pods:
            for container in pod.sized:
                target = self._targets.get((pod.pod.namespace, pod.pod.name, container.name))
                yield target.cpu_millicores if target is not None else 0

    def _demand(self, resource: ResourceName) -> Demand:
        return self.table.cpu if resource is ResourceName.CPU else self.table.memory

    def of_pod(self, pod: Touchable) -> tuple[ContainerSteps, ...]:
        """Return the steps of a pod that stays, container by container."""
        index = next(i for i, other in enumerate(self.table.pods) if other.pod is pod.pod)
        first = int(self.table.first_container[index])
        return tuple(self._container(pod, first + offset, offset) for offset in range(len(pod.sized)))

    def _container(self, pod: Touchable, at: int, offset: int) -> ContainerSteps:
        container = pod.sized[offset]
        statistic = self._statistics.row(pod.rows[offset])
        final = self._targets[(pod.pod.namespace, pod.pod.name, container.name)]
        items = self._snapshot.limit_ranges.get(pod.pod.namespace, ())
        ends = {
            resource: _ends(resource, self._demand(resource), at, pod.guidance, container.name, items)
            for resource in ResourceName
        }
        return ContainerSteps(
            container=container.name,
            statistic=statistic,
            of_workload=not statistic.key.pod,
            cpu=self._request(
                ResourceName.CPU,
                at,
                statistic.cpu_peak_millicores,
                final.cpu_millicores,
                ends[ResourceName.CPU],
                pod.guidance.headroom_factor,
            ),
            memory=self._request(
                ResourceName.MEMORY,
                at,
                max(statistic.memory_peak_bytes, statistic.oom_memory_bytes),
                final.memory_bytes,
                ends[ResourceName.MEMORY],
                pod.guidance.headroom_factor,
            ),
            memory_limit=self._memory_limit(at, statistic, final),
            cpu_limit=self._cpu_limit(at),
        )

    def _request(
        self, resource: ResourceName, at: int, peak: int, final: int, ends: tuple[Bound, Bound], factor: float
    ) -> RequestSteps:
        demand, headrooms = self._demand(resource), self._headrooms[resource]
        largest, total = of(self._plan.headroom, resource), int(headrooms.sum())
        headroom, base, current = int(headrooms[at]), int(demand.raw_base[at]), int(demand.current[at])
        share = headroom * (largest / total) if total else 0.0
        clamped = int(self._clamped[resource][at])
        return RequestSteps(
            managed=bool(demand.managed[at]),
            current=current,
            base=base,
            peak=peak,
            headroom_factor=factor,
            headroom=headroom,
            largest=largest,
            total=total,
            share=share,
            rounded=int(round_up(np.array([base + share]), UNIT[resource])[0]),
            lower=ends[0],
            upper=ends[1],
            clamped=clamped,
            trimmed=clamped - final,
            final=final,
            dead_band=self._dead_band(resource, current, final),
        )

    def _memory_limit(self, at: int, statistic: Statistic, final: ContainerSize) -> MemoryLimitSteps:
        table = self.table
        roster = table.roster
        ratio = float(roster.limit_ratio[ResourceName.MEMORY][at])
        cap = int(roster.limit_cap[ResourceName.MEMORY][at])
        allowed = min(cap, UNBOUNDED if np.isinf(ratio) else int(final.memory_bytes * ratio))
        kubelet = self._node.kubelet_version
        current = int(table.memory_limit[at])
        return MemoryLimitSteps(
            managed=bool(table.memory.managed[at]),
            current=current,
            memory_7d_max=statistic.memory_7d_max_bytes,
            oom_memory=statistic.oom_memory_bytes,
            wanted=int(table.wanted_memory_limit[at]),
            safe=int(table.safe_memory_limit[at]),
            cap=None if allowed >= UNBOUNDED else allowed,
            kept=kubelet is not None and kubelet < FIRST_KUBELET_LOWERING_MEMORY_LIMITS,
            young=current > 0 and not bool(table.memory_limit_falls[at]),
            final=final.memory_limit_bytes,
            dead_band=self._dead_band(ResourceName.MEMORY, current, final.memory_limit_bytes),
        )

    def _cpu_limit(self, at: int) -> CpuLimitSteps:
        current, final = int(self.table.cpu_limit[at]), int(self._cpu_limits[at])
        return CpuLimitSteps(
            managed=bool(self.table.cpu.managed[at]),
            current=current,
            node_allocatable=self._node.allocatable.cpu_millicores,
            final=final,
            dead_band=self._dead_band(ResourceName.CPU, current, final),
        )

    def _dead_band(self, resource: ResourceName, before: int, after: int) -> DeadBand:
        share, band = self._policy.dead_band_share, self._policy.dead_band
        least = of(band, resource)
        step = abs(after - before)
        return DeadBand(before, after, least, share, step >= least and step >= before * share)


def of(resources: Resources, resource: ResourceName) -> int:
    """Return one resource's value."""
    return resources.cpu_millicores if resource is ResourceName.CPU else resources.memory_bytes


def _ends(
    resource: ResourceName,
    demand: Demand,
    at: int,
    guidance: Guidance,
    container: str,
    items: Sequence[LimitRangeItem],
) -> tuple[Bound, Bound]:
    """Say who set the bounds that hold; the bounds themselves are the columns'."""
    own = guidance.bounds_of(container)
    lower, upper = int(demand.lower[at]), int(demand.upper[at])
    ranges = [item for item in items if not item.of_pod]
    lowest = [_amount(item.minimum, resource) for item in ranges]
    highest = [_amount(item.maximum, resource) for item in ranges]
    if lower in lowest:
        low = Bound(lower, "limit-range")
    elif lower == _amount(own.minimum, resource):
        low = Bound(lower, "override")
    else:
        low = Bound(lower, "floor")
    if upper >= UNBOUNDED:
        high = Bound(None, None)
    else:
        high = Bound(upper, "limit-range" if upper in highest or upper in lowest else "override")
    return low, high


def _amount(amounts: Amounts, resource: ResourceName) -> int | None:
    return amounts.cpu_millicores if resource is ResourceName.CPU else amounts.memory_bytes
