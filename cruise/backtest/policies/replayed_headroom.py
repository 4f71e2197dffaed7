"""The headroom model of a replay: prepared for each pass from the replay's own past, and judged by what came."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.decisions.sizing.headroom.choosing import MODELS
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.outcome import Expectation
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.sharing import NodeSums
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.sizing.score_history import ScoreHistory
from cruise.runtime.sizing.shipped_scores import shipped_priors


class ReplayedHeadroom:
    """What the node pass of a live cluster keeps between passes, without a store."""

    def __init__(self, policy: Policy, statistics: ReplayedStatistics) -> None:
        self._policy = policy
        self._model = MODELS[policy.headroom]
        self._statistics = statistics
        self._scores = ScoreHistory(priors=shipped_priors(policy))
        self._expected: Expectation | None = None

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Learn what became of what was expected; the matrices have one row a time."""
        if self._expected is not None:
            self._scores.judge(self._expected, at, {ResourceName.CPU: cpu.T, ResourceName.MEMORY: memory.T})
            self._expected = None

    def replaced(self, containers: Int64Array) -> None:
        """Take note that containers have another pod from now on: it was not the one that was expected anything of."""
        if self._expected is not None:
            rows = np.where(np.isin(self._expected.rows, containers), -1, self._expected.rows)
            self._expected = replace(self._expected, rows=rows)

    def of_pass(self, at: int, row_of: Int64Array, rows: int, own: int) -> Headroom:
        """Prepare the model for a pass.

        `row_of` has each container's row of the statistics, -1 without any; the first `own` of the `rows` speak for
        a container itself, the others for its workload.
        """
        model = self._model
        past = self._past(row_of, rows, own) if model.reads_usage else PastDemand.empty(rows)
        return model.prepare(past, self._scores.margins(at, self._policy.risk_of) if model.learns else {}, self._policy)

    def expect(self, at: int, containers: Int64Array, nodes: Int64Array, sums: Mapping[ResourceName, NodeSums]) -> None:
        """Remember what a pass was decided on; the containers are those of pods that stay."""
        if self._model.learns:
            self._expected = Expectation.of(
                at,
                containers,
                nodes,
                {one: of_nodes.base for one, of_nodes in sums.items()},
                {one: of_nodes.extras for one, of_nodes in sums.items()},
            )

    def _past(self, row_of: Int64Array, rows: int, own: int) -> PastDemand:
        usage, sampled = self._statistics.recent()
        spoken_for = np.flatnonzero(row_of >= 0)
        places, numbers = np.full(rows, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64)
        places[row_of[spoken_for]] = np.where(row_of[spoken_for] < own, sampled[spoken_for], -1)
        numbers[row_of[spoken_for]] = self._statistics.numbers[spoken_for]
        if not self._model.reads_hours:
            return PastDemand.of(usage, places, numbers, {})
        cpu, memory = self._statistics.peaks_of_hours()
        return PastDemand.of(usage, places, numbers, {ResourceName.CPU: cpu, ResourceName.MEMORY: memory})
