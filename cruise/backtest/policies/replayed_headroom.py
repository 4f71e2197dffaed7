"""The headroom model of a replay: prepared for each pass from the replay's own past, and judged by what came."""

from dataclasses import replace

import numpy as np

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.decisions.sizing.headroom.choosing import MODELS
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk_level import InForce
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.sizing.risk_history import RiskHistory


class ReplayedHeadroom:
    """What the node pass of a live cluster keeps between passes, without a store."""

    def __init__(self, policy: Policy, statistics: ReplayedStatistics) -> None:
        self._policy = policy
        self._model = MODELS[policy.headroom]
        self._statistics = statistics
        self._risks = RiskHistory()
        self._in_force: InForce | None = None

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Learn what became of the requests in force; the matrices have one row a time."""
        if self._in_force is not None:
            samples = {ResourceName.CPU: cpu.T, ResourceName.MEMORY: memory.T}
            self._risks.judge(self._in_force, at, samples, self._policy.risk_of)
            self._in_force = None

    def replaced(self, containers: Int64Array) -> None:
        """Take note that containers have another pod from now on: its requests are not those that were judged."""
        if self._in_force is not None:
            rows = np.where(np.isin(self._in_force.rows, containers), -1, self._in_force.rows)
            self._in_force = replace(self._in_force, rows=rows)

    def of_pass(self, row_of: Int64Array, rows: int, own: int) -> Headroom:
        """Prepare the model for a pass.

        `row_of` has each container's row of the statistics, -1 without any; the first `own` of the `rows` speak for
        a container itself, the others for its workload.
        """
        model = self._model
        past = self._past(row_of, rows, own) if model.reads_usage else PastDemand.empty(rows)
        risks = self._risks.kept(self._statistics.at, self._policy.risk_of) if model.learns else {}
        return model.prepare(past, risks, self._policy)

    def note_requests(self, in_force: InForce) -> None:
        """Remember the requests that are in force after a pass, of the pods that stay."""
        if self._model.learns:
            self._in_force = in_force

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
