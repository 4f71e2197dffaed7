"""The sums behind a policy's score: what was requested, used, starved and short, in double precision."""

import numpy as np

from cruise.backtest.replay.demand import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.backtest import ResourceScore


class ResourceAccount:
    """One resource over a replay; columns with one entry a container, counted in samples.

    Requests are those in force as an interval begins; demand is as it was recorded, kills or not.
    """

    def __init__(self, containers: int, allocatable: int) -> None:
        self._allocatable = allocatable
        self.requested: Float64Array = np.zeros(containers, dtype=np.float64)
        self.used: Float64Array = np.zeros(containers, dtype=np.float64)
        self.samples: Int64Array = np.zeros(containers, dtype=np.int64)
        self.starved: Int64Array = np.zeros(containers, dtype=np.int64)
        self._short = 0
        self._node_intervals = 0

    def add(self, demand: Demand, requests: Int64Array, node_requests: Int64Array) -> None:
        """Take in one interval: `requests` with one entry a container, `node_requests` one a node index."""
        places = demand.places
        order, requested = places.order, requests[places.order]
        self.requested[order] += requested * demand.samples
        self.used[order] += demand.used.sum(axis=0)
        self.samples[order] += demand.samples
        self._node_intervals += len(places.nodes)
        self._short += int(np.count_nonzero(demand.peaks > node_requests[places.nodes]))
        over = demand.sums > self._allocatable
        if over.any():
            starved = (demand.used > requested) & over[:, places.row]
            self.starved[order] += np.count_nonzero(starved, axis=0)

    def score(self) -> ResourceScore:
        """Return the shares; 0 where there is nothing to share."""
        requested, samples = float(self.requested.sum()), int(self.samples.sum())
        slack = requested - float(self.used.sum())
        return ResourceScore(
            relative_slack=slack / requested if requested else 0.0,
            starved_share=int(self.starved.sum()) / samples if samples else 0.0,
            short_share=self._short / self._node_intervals if self._node_intervals else 0.0,
            mean_slack=slack / samples if samples else 0.0,
        )

    def mean_slack(self) -> Float64Array:
        """Return each container's mean of request − use."""
        slack: Float64Array = (self.requested - self.used) / np.maximum(self.samples, 1)
        return slack
