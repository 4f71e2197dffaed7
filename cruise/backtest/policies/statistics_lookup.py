"""The statistics and the headroom model that a replayed pass uses, without a database."""

from dataclasses import replace

import numpy as np

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayClusterView
from cruise.decisions.sizing.headroom import HEADROOM_MODELS, HeadroomModel, PastDemand
from cruise.decisions.sizing.headroom_level import RequestsInEffect
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticColumns, StatisticKey, StatisticsTable
from cruise.runtime.headroom import RiskHistory

NO_STATISTIC = StatisticsTable.from_rows([])


class ReplayedStatisticsLookup:
    """The statistics of the last pass: of each container, else of its workload.

    `row_of_container` has each container's row of `columns`, -1 without statistics; the first `pod_rows` rows are
    statistics of containers, the others of workloads.
    """

    def __init__(self, recording: UsageRecording, statistics: ReplayedStatistics) -> None:
        count = len(recording.containers)
        self.row_of_container = np.full(count, -1, dtype=np.int64)
        self.columns: StatisticColumns = NO_STATISTIC
        self.pod_rows = 0
        self._containers = recording.containers
        self._statistics = statistics
        self._creation_counts = np.zeros(count, dtype=np.int64)

    def refresh(self, view: ReplayClusterView) -> None:
        """Estimate statistics from the samples so far."""
        placed = view.node >= 0
        usable, columns = self._statistics.get_for_containers(placed)
        self.pod_rows = len(usable)
        row_of_container = np.full(len(placed), -1, dtype=np.int64)
        row_of_container[usable] = np.arange(len(usable))
        missing = np.flatnonzero(placed & (row_of_container < 0)).tolist()
        if missing:
            workload_table = self._statistics.get_for_workloads()
            rows = [self._find_workload_row(container, workload_table) for container in missing]
            found = [(container, row) for container, row in zip(missing, rows, strict=True) if row is not None]
            row_of_container[[container for container, _ in found]] = len(usable) + np.arange(len(found))
            columns = columns.concatenate(workload_table.take(np.array([row for _, row in found], dtype=np.int64)))
        self.row_of_container, self.columns, self._creation_counts = (
            row_of_container,
            columns,
            view.creation_count.copy(),
        )

    def get_rows(self, containers: Int64Array) -> StatisticsTable:
        """Return the statistics of the containers that the last pass had any for."""
        known = containers[self.row_of_container[containers] >= 0].tolist()
        keys = [
            StatisticKey(one.namespace, one.pod, str(one.workload), one.container)
            for one in map(self._containers.__getitem__, known)
        ]
        return (
            StatisticsTable.from_columns(self.columns.take(self.row_of_container[known]), keys)
            if known
            else NO_STATISTIC
        )

    def get_between_passes(self, container: int, view: ReplayClusterView) -> StatisticsTable:
        """Return the statistics of a container's pod until the next pass; the workload's if the pod is newer."""
        if self._creation_counts[container] == view.creation_count[container]:
            return self.get_rows(np.array([container]))
        workload_table = self._statistics.get_for_workloads()
        row = self._find_workload_row(container, workload_table)
        return NO_STATISTIC if row is None else StatisticsTable.from_rows([workload_table.get_row(row)])

    def _find_workload_row(self, container: int, workload_table: StatisticsTable) -> int | None:
        one = self._containers[container]
        return workload_table.find_row(one.namespace, one.pod, one.workload, one.container, "")


class ReplayedHeadroomModel:
    """The headroom model and the observed risk of a replay, which the node pass of a live cluster stores."""

    def __init__(self, policy: Policy, statistics: ReplayedStatistics) -> None:
        self._policy = policy
        self._model = HEADROOM_MODELS[policy.headroom]
        self._statistics = statistics
        self._risks = RiskHistory()
        self._requests_in_force: RequestsInEffect | None = None

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Count the demand of an interval against the requests in effect; matrices have one row per time."""
        if self._requests_in_force is not None:
            samples = {ResourceName.CPU: cpu.T, ResourceName.MEMORY: memory.T}
            self._risks.count_interval(self._requests_in_force, time, samples, self._policy)
            self._requests_in_force = None

    def reset_replaced(self, containers: Int64Array) -> None:
        """Exclude containers whose pods were replaced from the observed risk of this interval."""
        if self._requests_in_force is not None:
            rows = np.where(np.isin(self._requests_in_force.rows, containers), -1, self._requests_in_force.rows)
            self._requests_in_force = replace(self._requests_in_force, rows=rows)

    def get_for_pass(self, row_of_container: Int64Array, rows: int, own: int) -> HeadroomModel:
        """Prepare the model for a pass.

        `row_of_container` has each container's row of the statistics, -1 without any; the first `own` of the `rows` are
        statistics of containers, the others of workloads.
        """
        model = self._model
        past = self._past(row_of_container, rows, own) if model.reads_usage else PastDemand.create_empty(rows)
        risks = self._risks.get_observed(self._statistics.at, self._policy.get_risk) if model.learns_level else {}
        return model.prepare(past, risks)

    def record_requests(self, in_force: RequestsInEffect) -> None:
        """Set the requests in effect after a pass, of the pods that are not evicted."""
        if self._model.learns_level:
            self._requests_in_force = in_force

    def _past(self, row_of_container: Int64Array, rows: int, own: int) -> PastDemand:
        usage, sampled = self._statistics.get_recent()
        covered = np.flatnonzero(row_of_container >= 0)
        places, numbers = np.full(rows, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64)
        places[row_of_container[covered]] = np.where(row_of_container[covered] < own, sampled[covered], -1)
        numbers[row_of_container[covered]] = self._statistics.numbers[covered]
        return PastDemand.create(usage, places, numbers, self._statistics.get_maxima())
