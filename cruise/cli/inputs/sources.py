"""Cluster and usage for a report: from files, from the live cluster and its Prometheus, or from some of each."""

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cruise.cli.options import optional
from cruise.domain.prices import CORE_HOUR, GIBIBYTE_HOUR
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.decisions.scan.waste import Prices
    from cruise.domain.cluster import Snapshot
    from cruise.domain.usage import StatisticsTable
    from cruise.settings import Settings


class History(StrEnum):
    """How much of the past is read from Prometheus."""

    HOUR = "1h"
    DAY = "1d"
    WEEK = "7d"


ClusterOption = Annotated[str | None, optional("--snapshot", "FILE", "A recorded cluster, as for `cruise plan`.")]
UsageFileOption = Annotated[str | None, optional("--usage", "FILE", "A UsageStatistics file.")]
PrometheusUrlOption = Annotated[str | None, optional("--prometheus-url", "URL", "Read the usage from this server.")]
DayOption = Annotated[
    History | None, optional("--history", None, "How much of the past to read from it; 1d by default.")
]
WeekOption = Annotated[
    History | None, optional("--history", None, "How much of the past to read from it; 7d by default.")
]
CorePriceOption = Annotated[
    float | None, optional("--price-cpu-core-hour", "$", f"For the estimate; {CORE_HOUR} by default.", min=0)
]
GibPriceOption = Annotated[
    float | None, optional("--price-gib-hour", "$", f"For the estimate; {GIBIBYTE_HOUR} by default.", min=0)
]


@dataclass(frozen=True, slots=True)
class Sources:
    """What the options of a command name; None where one is not given. `usual_history` is then read."""

    snapshot: str | None
    usage: str | None
    prometheus_url: str | None
    history: History | None
    now: datetime | None
    usual_history: History


class Known(NamedTuple):
    """What was read: cluster, statistics, the time that they are judged at, and where they come from in words."""

    cluster: "Snapshot"
    statistics: "StatisticsTable"
    at: datetime
    rests_on: str


def read_sources(sources: Sources, settings: "Settings") -> Known:
    """Read cluster and usage. Raises BadInput, also for options that contradict each other."""
    if sources.usage is not None and sources.prometheus_url is not None:
        raise BadInput("--usage and --prometheus-url are both given; choose one source")
    if sources.usage is not None and sources.history is not None:
        raise BadInput("--history is how much to read from Prometheus, and --usage is a file; leave out one of them")
    if sources.now is not None and sources.snapshot is None:
        raise BadInput("--now needs --snapshot: a cluster that is read now is judged now")
    cluster, prometheus = _cluster(sources, settings)
    return Known(cluster, *_statistics(cluster, prometheus, sources, settings))


def prices_of(cpu_core_hour: float | None, gib_hour: float | None) -> "Prices":
    """Return the prices that the options state, or the usual ones. Raises BadInput."""
    from cruise.decisions.scan.waste import Prices

    cpu_core_hour = CORE_HOUR if cpu_core_hour is None else cpu_core_hour
    gib_hour = GIBIBYTE_HOUR if gib_hour is None else gib_hour
    if not math.isfinite(cpu_core_hour + gib_hour):
        raise BadInput("a price is a number, such as 0.0145")
    return Prices(cpu_core_hour, gib_hour)


def _cluster(sources: Sources, settings: "Settings") -> "tuple[Snapshot, PrometheusSettings | None]":
    """Return the cluster, and how its Prometheus is queried where the usage comes from there."""
    usage, prometheus_url = sources.usage, sources.prometheus_url
    if sources.snapshot is None:
        from cruise.cli.inputs.live_cluster import Prometheus, read_cluster

        live = read_cluster(settings, Prometheus.OR_KUBELETS if usage is None else Prometheus.NOT, prometheus_url)
        return live.snapshot, live.prometheus
    from cruise.cli.inputs.files import load_snapshot

    cluster = load_snapshot(sources.snapshot, settings.node_autoscaler)
    if usage is not None:
        return cluster, None
    if prometheus_url is None and settings.prometheus_url is None:
        raise BadInput("no usage: give --usage FILE, or --prometheus-url URL to read it from a Prometheus server")
    return cluster, settings.prometheus(prometheus_url)


def _statistics(
    snapshot: "Snapshot", prometheus: "PrometheusSettings | None", sources: Sources, settings: "Settings"
) -> "tuple[StatisticsTable, datetime, str]":
    """Return the statistics, the time they are judged at, and where they come from in words."""
    usage = sources.usage
    if usage is not None:
        from cruise.cli.inputs.files import load_usage

        statistics, at = load_usage(usage, snapshot, sources.now, settings.policy())
        return statistics, at, f"the statistics in {usage if usage != '-' else 'standard input'}"
    if prometheus is None:
        if sources.history is not None:
            raise BadInput("--history is how much to read from Prometheus, and the cluster has none; leave it out")
        from cruise.cli.inputs.kubelet_usage import read_kubelets_of

        return read_kubelets_of(snapshot, settings)
    from cruise.cli.inputs.prometheus_usage import read_usage_of

    return read_usage_of(
        snapshot, prometheus, (sources.history or sources.usual_history).value, sources.now, settings.policy()
    )
