"""Options of `cruise backtest`, in the groups of its help."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ReportFormat, create_option_without_default
from cruise.domain.backtest import ComparedMetric, PodCreationTime, RecordingHalf
from cruise.errors import BadInputError

if TYPE_CHECKING:
    from cruise.backtest.recordings.scaling import ReplayHpaOptions

DAYS, _MOST_DAYS = 14, 366
_MOST_JOBS = 1024
_replayed = partial(create_option_without_default, rich_help_panel="What is replayed")
_cluster = partial(typer.Option, rich_help_panel="The simulated cluster")
_replayed_by = partial(create_option_without_default, rich_help_panel="Where it is replayed")
_AGAINST = "Against another configuration"
_compared = partial(create_option_without_default, rich_help_panel=_AGAINST)
_report = partial(create_option_without_default, rich_help_panel="The report")


def complete_policy(incomplete: str) -> list[str]:
    """Return the policies whose names start with a text."""
    from cruise.backtest.policies.policies import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


TraceOption = Annotated[
    list[Path] | None,
    _replayed("--trace", "DIR…", "Trace directories: series.csv, cpu_millicores.csv.gz, memory_bytes.csv.gz."),
]
PrometheusUrlOption = Annotated[
    str | None,
    _replayed("--prometheus-url", "URL", "Read the usage from this server instead, a bounded query at a time."),
]
DaysOption = Annotated[
    int | None, _replayed("--days", "N", f"How many days; {DAYS} by default.", min=1, max=_MOST_DAYS)
]
EndOption = Annotated[
    str | None, _replayed("--now", "TIME", "The end of the days, e.g. 2026-01-01T12:00:00Z; now by default.")
]
ClusterOption = Annotated[
    str | None,
    _replayed("--snapshot", "FILE", "The cluster, for owners and requests that Prometheus does not have."),
]
HalfOption = Annotated[
    RecordingHalf | None,
    _replayed("--half", None, "Every other series by name: one half for tuning rules, the other for reporting."),
]
PolicyOption = Annotated[
    list[str] | None,
    _cluster(
        "--policy",
        metavar="NAME…",
        # The names are added when the help is printed: their import takes a third of a second.
        help="Policies to compare, all by default: ",
        show_default=False,
        autocompletion=complete_policy,
    ),
]
NodeCpuOption = Annotated[str, _cluster("--node-cpu", metavar="CPU", help="Of every node.")]
NodeMemoryOption = Annotated[str, _cluster("--node-memory", metavar="MEMORY", help="Of every node.")]
PodCreationOption = Annotated[PodCreationTime, _cluster("--pod-creation", help="When pods are created.")]
DEFAULT_RISK = 1e-3
RiskOption = Annotated[
    float | None,
    create_option_without_default(
        "--risk",
        "P",
        f"The share of a node's intervals in which demand may exceed requests, for cruise-risk; {DEFAULT_RISK:g} "
        "by default.",
        rich_help_panel="The simulated cluster",
    ),
]
HpaOption = Annotated[
    str | None,
    create_option_without_default(
        "--hpa",
        "PERCENT|snapshot",
        "Give each workload an HPA with this target of CPU utilization, e.g. 70%, or those of the snapshot.",
        rich_help_panel="The simulated cluster",
    ),
]
_LARGEST_HPA_TARGET = 1000
_HPAS_OF_SNAPSHOT = "snapshot"


def parse_hpa_option(text: str, snapshot: str | None) -> "ReplayHpaOptions":
    """Return the HPAs that --hpa adds; BadInputError for neither a percentage nor `snapshot`."""
    from cruise.backtest.recordings.scaling import ReplayHpaOptions

    if text == _HPAS_OF_SNAPSHOT:
        if snapshot is None:
            raise BadInputError("--hpa snapshot needs --snapshot FILE, a cluster with HPAs; or write e.g. --hpa 70%")
        return ReplayHpaOptions()
    digits = text.removesuffix("%")
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits) <= _LARGEST_HPA_TARGET):
        raise BadInputError(
            f'--hpa: "{text}" is no target of utilization; write a whole percentage up to {_LARGEST_HPA_TARGET}, '
            "e.g. 70%, or snapshot"
        )
    return ReplayHpaOptions(int(digits))


def describe_hpa(added: "ReplayHpaOptions | None") -> str | None:
    """Return what --hpa said."""
    if added is None:
        return None
    return _HPAS_OF_SNAPSHOT if added.target_percent is None else f"{added.target_percent}%"


SeedOption = Annotated[int, _cluster("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of random numbers.")]
JobsOption = Annotated[
    int | None,
    _replayed_by(
        "--jobs",
        "N",
        "Replay in N processes, 1 by default; 0: one for each core. Results are the same.",
        "-j",
        min=0,
        max=_MOST_JOBS,
    ),
]
SchedulerOption = Annotated[
    str | None,
    _replayed_by("--scheduler", "URL", "Replay on this Dask cluster, such as tcp://scheduler:8786; see docs/scale.md."),
]
AgainstOption = Annotated[
    Path | None,
    _compared("--against", "FILE", "Compare this configuration with the settings in a TOML file."),
]
MaxDeltaOption = Annotated[
    list[str] | None,
    _compared(
        "--max-delta",
        "METRIC=MAXIMUM…",
        f"Exit 1 if a metric increases by more: {', '.join(ComparedMetric)}. Shares also in points, such as "
        "cpu-slack=1%.",
    ),
]
ConfidenceIntervalOption = Annotated[
    bool,
    typer.Option(
        "--confidence-interval",
        help="Check bounds against the whole interval of a difference, not only its estimate.",
        rich_help_panel=_AGAINST,
    ),
]
MarkdownOption = Annotated[
    Path | None, _compared("--markdown", "FILE", "Also write the comparison as Markdown, for a pull request.")
]
ShowNodeOption = Annotated[
    str | None,
    _report(
        "--show-node",
        "NAME",
        "The node whose time lines the HTML page shows; node-000 by default.",
    ),
]
ReportFormatOption = Annotated[
    ReportFormat, typer.Option("--format", "-f", help="The format on standard output.", rich_help_panel="The report")
]
HtmlOption = Annotated[Path | None, _report("--html", "FILE", "Also write an HTML page with charts.")]
