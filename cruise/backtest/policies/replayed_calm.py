"""What has gone on for long in a replay, in columns: what the node pass of a live cluster knows by names."""

import numpy as np

from cruise.backtest.replay.policy import ClusterView
from cruise.decisions.sizing.calm import Calm, Why, bands_of
from cruise.decisions.sizing.node_sizes import Sized
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

_NEVER = -(1 << 60)
_NOT = 1 << 60


class ReplayedCalm:
    """Since when nodes are above their bands and containers below their bases, and until when pods rest."""

    def __init__(self, containers: int, policy: Policy) -> None:
        self._policy = policy
        self._above: dict[ResourceName, Int64Array] = {}
        self._below = {one: np.full(containers, _NOT, dtype=np.int64) for one in ResourceName}
        self._rests = np.full(containers, _NEVER, dtype=np.int64)

    def replaced(self, containers: Int64Array) -> None:
        """Take note that containers have another pod from now on."""
        self._rests[containers] = _NEVER
        for since in self._below.values():
            since[containers] = _NOT

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
            view.at >= self._rests[chosen],
        )

    def note(self, at: int, chosen: Int64Array, sized: Sized, resized: Int64Array, grows: BoolArray) -> None:
        """Remember what a pass saw, and what of it was written; `grows` has an entry for each that was `resized`."""
        if sized.writes is None:
            return
        for one in ResourceName:
            above, below = sized.writes.above[one], np.zeros(len(self._rests), dtype=np.bool_)
            below[chosen] = sized.writes.below[one]
            self._above[one] = _since(above, _extended(self._above.get(one), len(above)), at)
            self._below[one] = _since(below, self._below[one], at)
        grown, other = (int(one.total_seconds()) for one in (self._policy.growth_rest, self._policy.resize_rest))
        assert sized.why is not None
        of_requests = sized.why[resized] != Why.LIMIT_NEAR
        containers, grows = chosen[resized][of_requests], grows[of_requests]
        self._rests[containers] = np.maximum(self._rests[containers], at + np.where(grows, grown, other))


def _since(flags: BoolArray, since: Int64Array, at: int) -> Int64Array:
    return np.where(flags, np.minimum(since, at), _NOT)


def _extended(since: Int64Array | None, nodes: int) -> Int64Array:
    since = np.zeros(0, dtype=np.int64) if since is None else since
    return np.concatenate((since[:nodes], np.full(max(nodes - len(since), 0), _NOT, dtype=np.int64)))
