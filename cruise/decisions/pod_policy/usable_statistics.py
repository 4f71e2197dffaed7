"""Which statistics a pod may be sized by: not missing, stale, implausible, too new, or of another template revision.

Requests under an HPA may shrink by the use of the last 7 days (ADR 0047).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.usage.estimation import OWN_SAMPLES_SECONDS
from cruise.decisions.usage.plausibility import MAX_REJECTED_PERCENT
from cruise.decisions.usage.revisions import get_revisions_in_use
from cruise.domain.actions import ReasonCode
from cruise.domain.arrays import UNBOUNDED, Int64Array, cap_against_overflow
from cruise.domain.cluster import ClusterSnapshot, Container, Pod, WorkloadRef
from cruise.domain.original_resources import WorkloadRevisions
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticColumns, StatisticsTable

# A revision counts as running if it was seen this recently; that is recorded once an hour.
_RECENTLY = timedelta(hours=3)


class StatisticsUsabilityCheck:
    """The rules on which statistics may be used, for one snapshot; a row is one of the statistics, None if missing."""

    def __init__(self, snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime) -> None:
        self._snapshot = snapshot
        self._statistics = statistics
        self._rules = policy.rules
        self._now = now
        self._oldest_seconds = int((now - policy.max_age).timestamp())
        # Statistics this far in the future have an unknown age: the clock was set back.
        self._newest_seconds = int((now + policy.max_age).timestamp())
        self._newest_start_seconds = int((now - policy.new_workload_age).timestamp())
        self._has_own_samples_since = now - timedelta(seconds=OWN_SAMPLES_SECONDS)
        self._revisions = statistics.revisions
        self._updated_at = statistics.updated_at.tolist()
        self._history_since = statistics.history_since.tolist()
        rejected = (statistics.rejected_percent > MAX_REJECTED_PERCENT) & policy.rules.plausibility_checks
        self.implausible_rows = frozenset(np.flatnonzero(rejected).tolist())
        # Zero memory of a waiting container is not usage; if it never was higher, usage is unknown.
        largest = np.maximum(statistics.memory_peak_bytes, statistics.memory_7d_max_bytes)
        idle = (statistics.memory_base_bytes == 0) & policy.rules.plausibility_checks & ~rejected
        self._idle_rows = frozenset(np.flatnonzero(idle).tolist())
        # A row of a workload, or none, does not describe a pod's own samples.
        self._foreign_rows = frozenset([None, *statistics.row_of_workload.values()])
        self._never_ran_rows = frozenset(np.flatnonzero(idle & (largest == 0)).tolist())
        is_current = (statistics.updated_at >= self._oldest_seconds) & (statistics.updated_at <= self._newest_seconds)
        doubtful = rejected | idle | ~is_current | (statistics.history_since > self._newest_start_seconds)
        self._doubtful_rows = self._foreign_rows.union(np.flatnonzero(doubtful).tolist())

    def find_own_rows(self, pod: Pod, containers: Sequence[Container]) -> tuple[int, ...] | None:
        """Return the rows of a bound pod's containers if they are their own and nothing about them is in doubt.

        Most are: this is what the other methods find, at a third of the time. None: ask them.
        """
        if pod.created_at is None or pod.created_at > self._has_own_samples_since:
            return None
        find, namespace, name = self._statistics.row_of_container.get, pod.namespace, pod.name
        # A plain tuple equals a named one and is made in half the time.
        rows = [find((namespace, name, container.name)) for container in containers]  # type: ignore[call-overload]
        return tuple(rows) if rows and self._doubtful_rows.isdisjoint(rows) else None

    def find_rows(self, pod: Pod, containers: Sequence[Container]) -> list[int | None]:
        """Return the row of each container of a bound pod."""
        find = self._statistics.find_row
        rows = [find(pod.namespace, pod.name, pod.workload, container.name, pod.identity) for container in containers]
        if self._idle_rows.isdisjoint(rows):
            return rows
        return [
            None if row in self._idle_rows and not one.running else row
            for one, row in zip(containers, rows, strict=True)
        ]

    def has_never_run(self, rows: Sequence[int | None]) -> bool:
        """Return whether one of the rows belongs to a container that never used memory."""
        return not self._never_ran_rows.isdisjoint(rows)

    def drop_never_run(self, rows: Sequence[int | None]) -> Sequence[int | None]:
        """Return the rows without those of containers that never used memory."""
        return [None if row in self._never_ran_rows else row for row in rows] if self._never_ran_rows else rows

    def explain_unusable(self, rows: Sequence[int | None], *, is_new: bool) -> ReasonCode | None:
        """Return what is wrong with the rows of a pod, whose workload may be new; None if they can be used."""
        reason = ReasonCode.NEW_WORKLOAD if is_new else None
        if self.implausible_rows and not self.implausible_rows.isdisjoint(rows):
            return ReasonCode.IMPLAUSIBLE_USAGE
        for row in rows:
            if row is None:
                return ReasonCode.NO_STATISTICS
            if not self._oldest_seconds <= self._updated_at[row] <= self._newest_seconds:
                reason = ReasonCode.STALE_STATISTICS
            elif reason is None and self._history_since[row] > self._newest_start_seconds:
                reason = ReasonCode.NEW_WORKLOAD
        return reason if rows else ReasonCode.NO_STATISTICS

    def explain_unusable_for(
        self, pod: Pod, rows: Sequence[int | None], *, is_new: bool, was_killed: bool
    ) -> ReasonCode | None:
        """Return why a bound pod may not be sized by its rows; one that was killed need not wait for its own."""
        reason = self.explain_unusable(rows, is_new=is_new)
        if reason in (None, ReasonCode.STALE_STATISTICS) and not was_killed and self.needs_own_samples(pod, rows):
            reason = ReasonCode.NEW_TEMPLATE_REVISION
        return reason

    def name_affected(self, reason: ReasonCode, containers: Sequence[Container], rows: Sequence[int | None]) -> str:
        """Name the containers whose rows are the reason, those without any for most reasons."""
        affected = self.implausible_rows if reason is ReasonCode.IMPLAUSIBLE_USAGE else {None}
        return ", ".join(container.name for container, row in zip(containers, rows, strict=True) if row in affected)

    def is_new_workload(self, namespace: str, ref: WorkloadRef) -> bool:
        """Return whether a workload was created too recently."""
        workload = self._snapshot.workloads.get((namespace, ref))
        created = workload.created_at if workload is not None else None
        return created is not None and created.timestamp() > self._newest_start_seconds

    def is_new_revision(self, pod: Pod, age: timedelta) -> bool:
        """Return whether the pod's template revision states other resources than before and is younger than `age`.

        Then the workload's statistics describe another revision.
        """
        if not self._rules.template_revisions:
            return False
        revisions = self._get_revisions()
        return revisions.is_new(pod, revisions.get_resources_at_creation(pod), int((self._now - age).timestamp()))

    def needs_own_samples(self, pod: Pod, rows: Sequence[int | None]) -> bool:
        """Return whether a pod has too few samples, and those of its workload may belong to another revision."""
        min_creation = self._has_own_samples_since
        is_young = pod.created_at is not None and pod.created_at > min_creation
        uses_workload_row = not self._foreign_rows.isdisjoint(rows)
        if not (is_young or uses_workload_row) or not self._rules.template_revisions:
            return False
        if self.is_new_revision(pod, self._now - min_creation):
            return True
        # A workload's row describes pods of all revisions.
        revisions = self._get_revisions()
        recently = int((self._now - _RECENTLY).timestamp())
        return uses_workload_row and revisions.is_one_of_several(
            pod, revisions.get_resources_at_creation(pod), recently
        )

    def _get_revisions(self) -> WorkloadRevisions:
        if self._revisions is None:
            self._revisions = get_revisions_in_use(self._snapshot.pods, self._statistics)
        return self._revisions


HISTORY_SECONDS = 7 * 86400 - 3600
"""The history that counts as 7 days: the hour in which it began may have begun before the first sample."""


@dataclass(frozen=True, slots=True)
class LargestWeeklyUsage:
    """The largest use of each container in the last 7 days, UNBOUNDED if unknown, and its base."""

    largest: Int64Array
    base: Int64Array


def get_largest_weekly_usage(
    statistics: StatisticColumns, rows: Int64Array, resource: ResourceName
) -> LargestWeeklyUsage:
    """Return the use at `rows`; it is unknown without a history of 7 days."""
    if resource is ResourceName.CPU:
        largest, base = statistics.cpu_7d_max_millicores[rows], statistics.cpu_base_millicores[rows]
        peak = statistics.cpu_peak_millicores[rows]
    else:
        largest = np.maximum(statistics.memory_7d_max_bytes[rows], statistics.oom_memory_bytes[rows])
        base, peak = statistics.memory_base_bytes[rows], statistics.memory_peak_bytes[rows]
    since = statistics.history_since[rows]
    is_known = (since > 0) & (statistics.updated_at[rows] - since >= HISTORY_SECONDS) & (largest > 0)
    return LargestWeeklyUsage(
        cap_against_overflow(np.where(is_known, np.maximum(largest, peak), UNBOUNDED)), cap_against_overflow(base)
    )
