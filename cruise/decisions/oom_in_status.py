"""OOM kills that pod statuses of a file still show."""

from collections.abc import Iterable
from datetime import datetime

import numpy as np

from cruise.decisions.oom import affects_whole_workload, build_oom_records
from cruise.decisions.usage.oom_records import find_relevant_oom_kills, raise_oom_memory_by_record
from cruise.domain.cluster import ClusterSnapshot, OomKill
from cruise.domain.policy import Policy
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, StatisticKey, StatisticsTable


def raise_oom_memory_by_pod_status(
    statistics: StatisticsTable, snapshot: ClusterSnapshot, policy: Policy, now: datetime
) -> StatisticsTable:
    """Raise the OOM memory in statistics by kills that pod statuses still show."""
    if not policy.rules.oom_kills_in_status:
        return statistics
    records: list[OomRecord] = []
    for record in build_oom_records(_select_uncounted(find_relevant_oom_kills(snapshot, now), statistics), statistics):
        records.append(record)
        statistics = raise_oom_memory_by_record(
            _add_own_row(statistics, record), record, shared=affects_whole_workload(record, records)
        )
    return statistics


def _add_own_row(statistics: StatisticsTable, record: OomRecord) -> StatisticsTable:
    """Add a copy of the workload's row for a killed container without a row: its kill affects only itself."""
    container_key = ContainerKey(record.namespace, record.pod, record.container)
    workload_key = PeakKey(record.namespace, record.workload, record.container, record.identity)
    rows = statistics.row_of_workload
    row = rows.get(workload_key, rows.get(workload_key._replace(identity="")))
    if row is None or container_key in statistics.row_of_container:
        return statistics
    key = StatisticKey(record.namespace, record.pod, record.workload, record.container, record.identity)
    return statistics.join(StatisticsTable.from_columns(statistics.take(np.array([row])), [key]))


def _select_uncounted(kills: Iterable[OomKill], statistics: StatisticsTable) -> list[OomKill]:
    """Return the kills of containers whose statistics have no OOM memory; other kills may be counted already."""
    rows = [
        (one, statistics.find_row(one.namespace, one.pod, one.workload, one.container, one.identity)) for one in kills
    ]
    return [kill for kill, row in rows if row is None or not statistics.oom_memory_bytes[row]]
