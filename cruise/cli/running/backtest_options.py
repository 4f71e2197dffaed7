"""Options of `cruise backtest`, in the groups of its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cruise.cli.options import ReportFormat

DAYS, _MOST_DAYS = 14, 366
_INPUT, _CLUSTER, _OUTPUT = "What is replayed", "The simulated cluster", "The report"


class ArrivalsName(StrEnum):
    """When pods are created."""

    FIRST_SAMPLE = "first-sample"
    START = "start"


class HalfName(StrEnum):
    """Which half of the series is replayed."""

    TUNE = "tune"
    REPORT = "report"


def complete_policy(incomplete: str) -> list[str]:
    """Return the policies whose names begin so."""
    from cruise.backtest.policies.policies import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


TraceOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace",
        metavar="DIR…",
        help="Trace directories: series.csv, cpu_millicores.csv.gz, memory_bytes.csv.gz.",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
PrometheusUrlOption = Annotated[
    str | None,
    typer.Option(
        "--prometheus-url",
        metavar="URL",
        help="Read the usage from this server instead, a bounded query at a time.",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
DaysOption = Annotated[
    int | None,
    typer.Option(
        "--days",
        metavar="N",
        min=1,
        max=_MOST_DAYS,
        help=f"How many days of it; {DAYS} by default.",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--now",
        metavar="TIME",
        help="Where they end, e.g. 2026-01-01T12:00:00Z; now by default.",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--snapshot",
        metavar="FILE",
        help="With it: the cluster, for owners and requests that Prometheus does not tell.",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
HalfOption = Annotated[
    HalfName | None,
    typer.Option(
        "--half",
        help="Only every other series by name: one half to tune rules on, the other to report on.",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME…",
        help="as-requested, vpa, cruisekube, autopilot, cruise, cruise-shared-max, cruise-joint-peak, cruise-risk, "
        "oracle; all by default.",
        show_default=False,
        autocompletion=complete_policy,
        rich_help_panel=_CLUSTER,
    ),
]
NodeCpuOption = Annotated[
    str, typer.Option("--node-cpu", metavar="CPU", help="Of every node.", rich_help_panel=_CLUSTER)
]
NodeMemoryOption = Annotated[
    str, typer.Option("--node-memory", metavar="MEMORY", help="Of every node.", rich_help_panel=_CLUSTER)
]
ArrivalsOption = Annotated[
    ArrivalsName, typer.Option("--arrivals", help="When pods are created.", rich_help_panel=_CLUSTER)
]
RiskOption = Annotated[
    float,
    typer.Option(
        "--risk",
        metavar="P",
        help="The share of a node's intervals in which it may run short, for those policies that promise one.",
        rich_help_panel=_CLUSTER,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of every draw.", rich_help_panel=_CLUSTER),
]
WatchNodeOption = Annotated[
    str | None,
    typer.Option(
        "--watch-node",
        metavar="NAME",
        help="Whose time lines the page shows; node-000 by default.",
        show_default=False,
        rich_help_panel=_OUTPUT,
    ),
]
ReportFormatOption = Annotated[
    ReportFormat, typer.Option("--format", "-f", help="On standard output.", rich_help_panel=_OUTPUT)
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write the page with the pictures as well.",
        show_default=False,
        rich_help_panel=_OUTPUT,
    ),
]
