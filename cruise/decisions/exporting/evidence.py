"""What a template's new sizes rest on: the statistics of the workload's pods, joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from cruise.domain.usage import FIGURES, Statistic, StatisticColumns, StatisticKey, StatisticsTable


@dataclass(frozen=True, slots=True)
class Evidence:
    """The largest figures over a workload's pods; times in Unix seconds, `history_since` 0 where it is not known.

    A base is the 75th percentile of the last minutes, a peak what this hour of the day has brought, in the last week.
    """

    cpu_base_millicores: int = 0
    cpu_peak_millicores: int = 0
    memory_base_bytes: int = 0
    memory_peak_bytes: int = 0
    memory_7d_max_bytes: int = 0
    oom_memory_bytes: int = 0
    history_since: int = 0
    updated_at: int = 0


def evidence_of(statistics: Sequence[Statistic]) -> Evidence:
    """Join statistics of pods that share a template."""
    if not statistics:
        return Evidence()
    largest = {
        name: max(getattr(one, name) for one in statistics)
        for name in Evidence.__dataclass_fields__
        if name not in ("history_since", "updated_at")
    }
    return Evidence(
        **largest,
        history_since=min(one.history_since for one in statistics),
        updated_at=min(one.updated_at for one in statistics),
    )


def with_workload_rows(statistics: StatisticsTable) -> StatisticsTable:
    """Add a row for each workload of which single pods alone are known, as files may have it: the largest of theirs."""
    pods: dict[StatisticKey, list[int]] = {}
    for row, key in enumerate(statistics.keys):
        if key.pod and key.workload:
            pods.setdefault(key._replace(pod=""), []).append(row)
    known = {key for key in statistics.keys if not key.pod}
    missing = {key: rows for key, rows in pods.items() if key not in known}
    if not missing:
        return statistics
    joined = [_joined(statistics, rows) for rows in missing.values()]
    columns = StatisticColumns.of(lambda name: [one[name] for one in joined])
    return statistics.joined(StatisticsTable.of_columns(columns, list(missing)))


def _joined(statistics: StatisticsTable, rows: Sequence[int]) -> dict[str, Any]:
    """Return the largest figures of some rows; of times the earliest."""
    joined = {name: max(getattr(statistics, name)[list(rows)].tolist()) for name in FIGURES}
    for name in ("history_since", "updated_at", "psi_known"):
        joined[name] = min(getattr(statistics, name)[list(rows)].tolist())
    return joined | {"refused_reasons": reduce(or_, statistics.refused_reasons[list(rows)].tolist())}
