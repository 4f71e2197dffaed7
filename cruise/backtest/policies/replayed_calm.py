"""What has gone on for long in a replay, in columns: what the node pass of a live cluster knows by names."""

from collections import deque

import numpy as np

from cruise.backtest.replay.policy import ClusterView
from cruise.decisions.sizing.calm import Calm, bands_of, within_write_budget
from cruise.decisions.sizing.node_sizes import Sized
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

_NEVER = -(1 << 60)
_NOT = 1 << 60
_DAY = 86400
_GONE = -1


class ReplayedCalm:
    """Since when nodes are above their bands and containers below their bases, and what was written in the last day."""

    def __init__(self, containers: int, policy: Policy) -> None:
        self._policy = policy
        self._above: dict[ResourceName, Int64Array] = {}
        self._below = {one: np.full(containers, _NOT, dtype=np.int64) for one in ResourceName}
        self._resized = {one: np.full(containers, _NEVER, dtype=np.int64) for one in ResourceName}
        self._cooldown = int(policy.cooldown.total_seconds())
        self._writes: deque[tuple[int, Int64Array]] = deque()
        self._written = np.zeros(containers, dtype=np.int64)

    def replaced(self, containers: Int64Array) -> None:
        """Take note that containers have another pod from now on."""
        for resource in ResourceName:
            self._resized[resource][containers] = _NEVER
            self._below[resource][containers] = _NOT
        self._written[containers] = 0
        for _, written in self._writes:
            written[np.isin(written, containers)] = _GONE

    def of_pass(self, view: ClusterView, chosen: Int64Array) -> Calm | None:
        """Return what has gone on for long enough by now, None where every change is written."""
        if not self._policy.rules.calm:
            return None
        patience, short = (
            int(one.total_seconds()) for one in (self._policy.band_patience, self._policy.below_patience)
        )
        nodes = len(view.alive)
        above = {one: _extended(self._above.get(one), nodes) for one in ResourceName}
        return Calm(
            bands_of(self._policy),
            {one: view.at - since >= patience for one, since in above.items()},
            {one: view.at - since[chosen] >= short for one, since in self._below.items()},
            self._rested(view.at, chosen),
        )

    def _rested(self, at: int, chosen: Int64Array) -> dict[ResourceName, BoolArray]:
        while self._writes and self._writes[0][0] <= at - _DAY:
            _, written = self._writes.popleft()
            self._written[written[written != _GONE]] -= 1
        writes = sum(len(containers) for _, containers in self._writes)
        within = within_write_budget(self._written[chosen], writes, self._policy)
        return {one: within & (at - self._resized[one][chosen] >= self._cooldown) for one in ResourceName}

    def note(self, at: int, chosen: Int64Array, sized: Sized, resized: Int64Array) -> None:
        """Remember what a pass saw, and which containers of it were `resized`."""
        if sized.writes is None:
            return
        for one in ResourceName:
            above, below = sized.writes.above[one], np.zeros(len(self._written), dtype=np.bool_)
            below[chosen] = sized.writes.below[one]
            self._above[one] = _since(above, _extended(self._above.get(one), len(above)), at)
            self._below[one] = _since(below, self._below[one], at)
        containers, table = chosen[resized], sized.columns.table
        for one in ResourceName:
            changed = sized.written.of(one)[resized] != table.of(one).current[resized]
            self._resized[one][containers[changed]] = at
        self._writes.append((at, containers))
        self._written[containers] += 1


def _since(flags: BoolArray, since: Int64Array, at: int) -> Int64Array:
    return np.where(flags, np.minimum(since, at), _NOT)


def _extended(since: Int64Array | None, nodes: int) -> Int64Array:
    since = np.zeros(0, dtype=np.int64) if since is None else since
    return np.concatenate((since[:nodes], np.full(max(nodes - len(since), 0), _NOT, dtype=np.int64)))
