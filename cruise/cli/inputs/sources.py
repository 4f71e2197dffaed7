"""Cluster and usage for a report, from files or from the live cluster and its Prometheus."""

import math
import os
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cruise.cli.options import create_option_without_default
from cruise.cli.terminal import add_note, show_spinner
from cruise.domain.prices import CORE_HOUR, GIBIBYTE_HOUR
from cruise.errors import BadInputError

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.domain.cluster import ClusterSnapshot
    from cruise.domain.policy import NodeAutoscalerSetting, Policy
    from cruise.domain.prices import ResourcePrices
    from cruise.domain.usage import StatisticsTable
    from cruise.settings import Settings


class HistoryLength(StrEnum):
    """How much history is read from Prometheus."""

    HOUR = "1h"
    DAY = "1d"
    WEEK = "7d"


ClusterOption = Annotated[
    str | None, create_option_without_default("--snapshot", "FILE", "A recorded cluster, as for `cruise plan`.")
]
UsageFileOption = Annotated[str | None, create_option_without_default("--usage", "FILE", "A UsageStatistics file.")]
PrometheusUrlOption = Annotated[
    str | None, create_option_without_default("--prometheus-url", "URL", "Read the usage from this server.")
]
DayOption = Annotated[
    HistoryLength | None,
    create_option_without_default("--history", None, "How much history to read from it; 1d by default."),
]
WeekOption = Annotated[
    HistoryLength | None,
    create_option_without_default("--history", None, "How much history to read from it; 7d by default."),
]
CorePriceOption = Annotated[
    float | None,
    create_option_without_default(
        "--price-cpu-core-hour", "PRICE", f"For the estimate; by default that of the settings, or {CORE_HOUR}.", min=0
    ),
]
GibPriceOption = Annotated[
    float | None,
    create_option_without_default(
        "--price-gib-hour", "PRICE", f"For the estimate; by default that of the settings, or {GIBIBYTE_HOUR}.", min=0
    ),
]


@dataclass(frozen=True, slots=True)
class ReportSources:
    """The sources that options name; None if not given."""

    snapshot: str | None
    usage: str | None
    prometheus_url: str | None
    history: HistoryLength | None
    now: datetime | None
    default_history: HistoryLength


class ReportInputs(NamedTuple):
    """Cluster, statistics, the time of evaluation, and the source of the statistics in words."""

    cluster: "ClusterSnapshot"
    statistics: "StatisticsTable"
    time: datetime
    statistics_source: str


def read_cluster_and_usage(sources: ReportSources, settings: "Settings") -> ReportInputs:
    """Read cluster and usage; BadInputError, also for contradictory options."""
    if sources.usage is not None and sources.prometheus_url is not None:
        raise BadInputError("--usage and --prometheus-url are both given; choose one source")
    if sources.usage is not None and sources.history is not None:
        raise BadInputError("--history is for Prometheus, and --usage is a file; remove one of them")
    if sources.now is not None and sources.snapshot is None:
        raise BadInputError("--now needs --snapshot: a live cluster is evaluated now")
    cluster, prometheus = _read_cluster(sources, settings)
    return ReportInputs(cluster, *_read_statistics(cluster, prometheus, sources, settings))


class PriceOptions(NamedTuple):
    """The prices of options; None if not given."""

    cpu_core_hour: float | None
    memory_gib_hour: float | None

    def get_prices(self, settings: "Settings", cluster: "ClusterSnapshot") -> "ResourcePrices":
        """Return the prices of the options, otherwise those of the settings, otherwise list prices."""
        from cruise.decisions.prices import estimate_prices
        from cruise.domain.prices import LIST_PRICES, ResourcePrices

        stated = estimate_prices(cluster.nodes, settings.to_price_settings()) or LIST_PRICES
        return ResourcePrices(
            stated.cpu_core_hour if self.cpu_core_hour is None else self.cpu_core_hour,
            stated.memory_gib_hour if self.memory_gib_hour is None else self.memory_gib_hour,
            stated.currency,
        )


def read_price_options(cpu_core_hour: float | None, gib_hour: float | None) -> PriceOptions:
    """Return the prices of the options; BadInputError."""
    if not math.isfinite((cpu_core_hour or 0.0) + (gib_hour or 0.0)):
        raise BadInputError("a price is a number, such as 0.0145")
    return PriceOptions(cpu_core_hour, gib_hour)


def _read_cluster(sources: ReportSources, settings: "Settings") -> "tuple[ClusterSnapshot, PrometheusSettings | None]":
    """Return the cluster, and the connection to Prometheus if usage is read from it."""
    usage, prometheus_url = sources.usage, sources.prometheus_url
    if sources.snapshot is None:
        from cruise.cli.inputs.live_cluster import PrometheusRequirement, read_cluster

        live = read_cluster(
            settings,
            PrometheusRequirement.OR_KUBELETS if usage is None else PrometheusRequirement.NOT_USED,
            prometheus_url,
        )
        return live.snapshot, live.prometheus
    cluster = load_snapshot_with_node_autoscaler(sources.snapshot, settings.node_autoscaler)
    if usage is not None:
        return cluster, None
    if prometheus_url is None and settings.prometheus_url is None:
        raise BadInputError("no usage: add --usage FILE, or --prometheus-url URL to read it from a Prometheus server")
    return cluster, settings.to_prometheus_settings(prometheus_url)


def _read_statistics(
    snapshot: "ClusterSnapshot", prometheus: "PrometheusSettings | None", sources: ReportSources, settings: "Settings"
) -> "tuple[StatisticsTable, datetime, str]":
    """Return the statistics, the time of evaluation, and the source in words."""
    usage = sources.usage
    if usage is not None:
        statistics, at = load_usage_of_snapshot(usage, snapshot, sources.now, settings.to_policy())
        return statistics, at, usage if usage != "-" else "standard input"
    if prometheus is None:
        if sources.history is not None:
            raise BadInputError("--history is for Prometheus, and the cluster has none; remove it")
        from cruise.cli.inputs.usage import read_kubelet_usage

        return read_kubelet_usage(snapshot, settings)
    from cruise.cli.inputs.usage import read_prometheus_usage

    return read_prometheus_usage(
        snapshot, prometheus, (sources.history or sources.default_history).value, sources.now, settings.to_policy()
    )


# Files.

_LARGE_FILE_BYTES = 32 << 20


def is_large_file(path: str) -> bool:
    """Return whether reading a file takes long enough to show progress."""
    try:
        return os.path.getsize(path) >= _LARGE_FILE_BYTES
    except OSError:
        return False


def load_snapshot_with_node_autoscaler(path: str, node_autoscaler: "NodeAutoscalerSetting") -> "ClusterSnapshot":
    """Read a snapshot file, and determine its node autoscaler; BadInputError.

    A note names the kinds of objects that it lacks.
    """
    from cruise.adapters import files
    from cruise.interfaces.reasons import describe_missing_kinds

    with show_spinner(f"reading {path}", is_large_file(path)):
        snapshot = files.load_snapshot(path)
    missing = describe_missing_kinds(snapshot, files.describe_input_file(path))
    if missing:
        add_note(missing)
    return replace(snapshot, node_autoscaler=node_autoscaler.resolve(snapshot.node_autoscaler))


def load_usage_of_snapshot(
    path: str, snapshot: "ClusterSnapshot", now: datetime | None, policy: "Policy"
) -> "tuple[StatisticsTable, datetime]":
    """Read a usage file for a snapshot, and the time of evaluation; BadInputError.

    OOM kills in the snapshot's pod statuses also count.
    """
    from cruise.adapters import files
    from cruise.decisions.oom_in_status import raise_oom_memory_by_pod_status

    with show_spinner(f"reading {path}", is_large_file(path)):
        statistics, at = files.load_usage(path, snapshot, now)
    return raise_oom_memory_by_pod_status(statistics, snapshot, policy, at), at
