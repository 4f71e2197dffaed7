"""The starts of containers that a process keeps between passes, and the CPU that each workload's start needs."""

from collections.abc import Iterable, Mapping

from cruise.decisions.usage.starts import estimate_start_cpu
from cruise.domain.records import CONTAINER_STARTS_KEPT, RETENTION
from cruise.domain.usage import ContainerStart, PeakKey

_DAY_SECONDS = 24 * 3600
# Samples may come late, and a read that failed is repeated within the hour.
_LONGEST_INCOMPLETE_SECONDS = 2 * 3600


class KnownStarts:
    """The newest starts of each workload's container; it mirrors the database."""

    def __init__(self, starts: Iterable[ContainerStart] = ()) -> None:
        self._starts: dict[PeakKey, dict[str, ContainerStart]] = {}
        self._estimates: dict[PeakKey, int] = {}
        self._changed: set[PeakKey] = set()
        self._checked_day = 0
        self.merge(starts)

    def merge(self, starts: Iterable[ContainerStart]) -> None:
        """Merge further observations."""
        for one in starts:
            key = PeakKey(one.namespace, one.workload, one.container, "")
            known = self._starts.setdefault(key, {})
            before = known.get(one.pod_uid)
            known[one.pod_uid] = one if before is None else before.merge(one)
            self._changed.add(key)

    def estimate(self, at: int) -> Mapping[PeakKey, int]:
        """Return the CPU that starts need, where enough are known; `at` is in Unix seconds."""
        if at // _DAY_SECONDS != self._checked_day:
            self._checked_day = at // _DAY_SECONDS
            self._changed.update(self._starts)
        oldest = at - int(RETENTION.container_starts.total_seconds())
        for key in self._changed:
            found = sorted(self._starts[key].values(), key=lambda one: one.started_at)
            complete = [one for one in found if one.is_complete and one.started_at >= oldest][-CONTAINER_STARTS_KEPT:]
            unfinished = [
                one for one in found if not one.is_complete and at - one.started_at < _LONGEST_INCOMPLETE_SECONDS
            ]
            self._starts[key] = {one.pod_uid: one for one in (*complete, *unfinished)}
            self._estimates[key] = estimate_start_cpu(complete)
            for known in (self._starts, self._estimates):
                if not known[key]:
                    del known[key]
        self._changed.clear()
        return self._estimates
