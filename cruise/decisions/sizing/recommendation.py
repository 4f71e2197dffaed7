"""From statistics to demand: base, headroom, bounds and memory limits of every sized container, in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.sizing.candidate_columns import Roster, call_roster
from cruise.domain.arrays import BoolArray, Int64Array, capped
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import StatisticColumns, StatisticsTable

UNIT = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}


@dataclass(frozen=True, slots=True)
class Demand:
    """One resource of C sized containers: what each needs, may get, and has now.

    `base` is the fit's base: the statistic, clamped to [`lower`, `upper`]; `raw_base` and `headroom` are as the
    statistic has them, the headroom already multiplied by its factor. Where the resource is not managed, base and
    headroom are zero. `current` is the request in the spec, 0 where there is none.
    """

    raw_base: Int64Array
    base: Int64Array
    headroom: Int64Array
    lower: Int64Array
    upper: Int64Array
    current: Int64Array
    managed: BoolArray


@dataclass(frozen=True, slots=True)
class DemandTable:
    """The demand of touchable pods, their sized containers in the order of `roster`; `rows` are their statistics'."""

    roster: Roster
    rows: Int64Array
    cpu: Demand
    memory: Demand
    cpu_limit: Int64Array  # 0: none
    memory_limit: Int64Array  # 0: none
    wanted_memory_limit: Int64Array
    safe_memory_limit: Int64Array  # 1.2 x the working set now
    memory_limit_falls: BoolArray

    @property
    def pods(self) -> Sequence[Touchable]:
        """The pods, in order."""
        return self.roster.pods

    @property
    def first_container(self) -> Int64Array:
        """The index of each pod's first container."""
        return self.roster.first_container

    @property
    def pod_of(self) -> Int64Array:
        """The pod of each container."""
        return self.roster.pod_of


def recommend(
    pods: Sequence[Touchable],
    statistics: StatisticsTable,
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    policy: Policy,
) -> DemandTable:
    """Put the demand of `pods` into columns."""
    count = sum(len(pod.rows) for pod in pods)
    rows = np.fromiter(chain.from_iterable([pod.rows for pod in pods]), dtype=np.int64, count=count)
    stated = np.fromiter(chain.from_iterable([pod.stated for pod in pods]), dtype=np.int64, count=4 * count)
    return demand_table(call_roster(pods, limit_ranges, policy), stated.reshape(-1, 4), statistics, rows, policy)


def demand_table(
    roster: Roster, stated: Int64Array, statistics: StatisticColumns, rows: Int64Array, policy: Policy
) -> DemandTable:
    """Put together what containers need by their statistics, at `rows`, and what they state now.

    `stated` has a row a container: CPU request, memory request, CPU limit, memory limit, 0 for what is absent.
    """
    oom = capped(statistics.oom_memory_bytes[rows])
    return DemandTable(
        roster=roster,
        rows=rows,
        cpu=_demand(
            capped(statistics.cpu_base_millicores[rows]),
            capped(statistics.cpu_peak_millicores[rows]),
            roster,
            ResourceName.CPU,
            stated[:, 0],
        ),
        memory=_demand(
            capped(statistics.memory_base_bytes[rows]),
            np.maximum(capped(statistics.memory_peak_bytes[rows]), oom),
            roster,
            ResourceName.MEMORY,
            stated[:, 1],
        ),
        cpu_limit=stated[:, 2],
        memory_limit=stated[:, 3],
        wanted_memory_limit=memory_limits(capped(statistics.memory_7d_max_bytes[rows]), oom),
        safe_memory_limit=np.ceil(capped(statistics.memory_last_bytes[rows]) * 1.2).astype(np.int64),
        memory_limit_falls=memory_limits_fall(statistics.history_since[rows], statistics.updated_at[rows], policy),
    )


def memory_limits_fall(history_since: Int64Array, updated_at: Int64Array, policy: Policy) -> BoolArray:
    """Tell whose history is long enough for their memory limits to be lowered; one of unknown length is taken as told.

    A limit is not reserved, so a lower one frees nothing, and what comes once a month is in no shorter history.
    """
    long_enough = updated_at - history_since >= int(policy.memory_limit_history.total_seconds())
    return np.asarray((history_since == 0) | long_enough, dtype=np.bool_)


def memory_limits(memory_7d_max: Int64Array, oom_memory: Int64Array) -> Int64Array:
    """Return 2 x the larger of the 7-day maximum and the limit at the last kill."""
    return 2 * np.maximum(memory_7d_max, oom_memory)


def _demand(base: Int64Array, peak: Int64Array, roster: Roster, resource: ResourceName, current: Int64Array) -> Demand:
    factor, managed = roster.headroom_factor, roster.manages[resource][roster.pod_of]
    headroom = np.maximum(peak - base, 0)
    scaled = capped(np.where(factor == 1.0, headroom, np.ceil(headroom * factor)).astype(np.int64))
    lower, upper = roster.least[resource], roster.most[resource]
    return Demand(
        raw_base=np.where(managed, base, 0),
        base=np.where(managed, np.clip(base, lower, upper), 0),
        headroom=np.where(managed, scaled, 0),
        lower=lower,
        upper=upper,
        current=current,
        managed=managed,
    )
