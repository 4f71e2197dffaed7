"""A glimpse of a cluster's usage, from its kubelets, for one report."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cruise.adapters.kube.http.connecting import connect
from cruise.adapters.kubelets.client import KubeletClient
from cruise.adapters.kubelets.following import look_twice
from cruise.adapters.kubelets.settings import Access
from cruise.adapters.kubelets.source import KubeletSource
from cruise.app.usage_source import BETWEEN_READINGS, seconds_now
from cruise.cli.terminal import busy, complain, quiet_logs
from cruise.decisions.oom import learn_in_turn
from cruise.decisions.usage.glimpse import glimpse_of
from cruise.decisions.usage.lessons import with_lesson
from cruise.domain.cluster import Snapshot
from cruise.domain.usage import StatisticsTable
from cruise.errors import BadInput, Throttled, Unavailable

if TYPE_CHECKING:
    from cruise.settings import Settings

_STEP_SECONDS = 60


def read_kubelets_of(snapshot: Snapshot, settings: "Settings") -> tuple[StatisticsTable, datetime, str]:
    """Read every kubelet twice, a minute apart; return statistics, time, and source in words.

    Raises BadInput where none can be read.
    """
    nodes = len(snapshot.nodes)
    try:
        with quiet_logs(), busy(f"reading {nodes:,} kubelets twice, a minute apart (a glimpse)"):
            table, at = asyncio.run(_read(snapshot, settings))
    except (Throttled, Unavailable) as error:
        fix = "" if settings.kubelet_access is Access.NODE_PROXY else "set kubelet_access=node-proxy outside of it, or "
        raise BadInput(f"{error}; nodes have to be reachable as from within the cluster: {fix}give --usage") from error
    if not table.keys:
        raise BadInput("the kubelets tell of none of this cluster's containers; give --usage or --prometheus-url")
    return table, at, "a glimpse: two readings of the kubelets, a minute apart, which show no peaks"


async def _read(snapshot: Snapshot, settings: "Settings") -> tuple[StatisticsTable, datetime]:
    async with connect(settings.kube()) as client, aclosing(KubeletClient(settings.kubelets(), client)) as asking:
        source = KubeletSource(settings.kubelets(), asking.metrics)
        partitions = await source.partitions(snapshot)
        # What is told at first was measured a little before.
        begun = (int(seconds_now()) // _STEP_SECONDS - 2) * _STEP_SECONDS
        await look_twice(source, seconds_now, BETWEEN_READINGS.total_seconds())
        at = int(seconds_now()) // _STEP_SECONDS * _STEP_SECONDS
        blocks = [(await source.read(partition, begun, at, None))[0] for partition in partitions]
    if source.failures:
        first = next(iter(source.failures.values()))
        complain(f"left aside, {len(source.failures):,} of {len(snapshot.nodes):,} kubelets: {first}")
    table = glimpse_of(blocks, snapshot, at)
    for lesson in learn_in_turn(snapshot.oom_kills, table):
        table = with_lesson(table, lesson, shared=lesson.teaches_workload)
    return table, datetime.fromtimestamp(at, UTC)
