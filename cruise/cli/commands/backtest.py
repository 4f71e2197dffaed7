"""`cruise backtest`: replay recorded usage under each policy on simulated nodes."""

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cruise.cli.commands.backtest_against import (
    build_comparison_report,
    build_replay_configurations,
    check_against_options,
    load_reference_options,
    parse_max_delta,
    print_comparison,
)
from cruise.cli.commands.backtest_options import (
    DAYS,
    DEFAULT_RISK,
    AgainstOption,
    ClusterOption,
    ConfidenceIntervalOption,
    DaysOption,
    EndOption,
    HalfOption,
    HpaOption,
    HtmlOption,
    JobsOption,
    MarkdownOption,
    MaxDeltaOption,
    NodeCpuOption,
    NodeMemoryOption,
    PodCreationOption,
    PolicyOption,
    PrometheusUrlOption,
    ReportFormatOption,
    RiskOption,
    SchedulerOption,
    SeedOption,
    ShowNodeOption,
    TraceOption,
    describe_hpa,
    parse_hpa_option,
)
from cruise.cli.options import (
    ConfigOption,
    ReportFormat,
    RulesName,
    RulesOption,
    apply_rule_set,
    load_process_settings,
    parse_time,
    require_writable,
    save_report,
    write_report,
)
from cruise.cli.terminal import print_error
from cruise.domain.backtest import PodCreationTime, RecordingHalf
from cruise.errors import BadInputError
from cruise.interfaces.text import suggest_similar

if TYPE_CHECKING:
    from cruise.backtest.replay.policy import ReplayOptions
    from cruise.backtest.tasks import RecordingSource
    from cruise.cli.work.replay import ReplayRequest
    from cruise.domain.backtest import BacktestResult
    from cruise.domain.resources import Resources
    from cruise.interfaces.backtest.report import BacktestReport, ReplayParameters
    from cruise.settings import Settings

# The policies that use the rules of the settings.
_POLICIES_WITH_RULES = frozenset({"cruise", "cruise-joint-peak", "cruise-risk"})


def backtest(
    trace: TraceOption = None,
    prometheus_url: PrometheusUrlOption = None,
    days: DaysOption = None,
    now: EndOption = None,
    snapshot: ClusterOption = None,
    half: HalfOption = None,
    policy: PolicyOption = None,
    rules: RulesOption = None,
    node_cpu: NodeCpuOption = "16",
    node_memory: NodeMemoryOption = "64Gi",
    pod_creation: PodCreationOption = PodCreationTime.FIRST_SAMPLE,
    hpa: HpaOption = None,
    risk: RiskOption = None,
    seed: SeedOption = 0,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    against: AgainstOption = None,
    max_delta: MaxDeltaOption = None,
    confidence_interval: ConfidenceIntervalOption = False,
    markdown: MarkdownOption = None,
    show_node: ShowNodeOption = None,
    format: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    config: ConfigOption = None,
) -> int:
    """Replay recorded usage under each policy, and compare slack, kills and starvation.

    Simulated time drives the controller's own passes on a simulated cluster,
    and models of other tools. Nothing else is written, and no cluster is
    contacted. docs/backtest.md has the formulas. Slack and disturbances of
    each policy are added up at the prices of the settings price_*. The cost
    of nodes is shown if price_core_hour and price_gibibyte_hour are set.

    With --against this configuration (CRUISE_* variables, --config) is
    compared with the settings of FILE, so that a change of settings can be
    evaluated on your own history before it is made.

    Examples:
      cruise backtest --trace traces/bitbrains

      cruise backtest --trace traces/* --jobs 0 --html report.html

      cruise backtest --trace traces/azure --policy vpa cruise oracle

      cruise backtest --trace traces/azure --node-cpu 32 --format json

      cruise backtest --trace traces/azure --hpa 70% --policy vpa cruise

      cruise backtest --prometheus-url http://localhost:9090 --days 14

      cruise backtest --trace traces/* --half tune --policy cruise

      cruise backtest --trace traces/* --config new.toml --against now.toml

      cruise backtest --trace traces/* --against now.toml --max-delta oom-kills=0

      cruise backtest --trace traces/* --against now.toml --markdown change.md
    """
    from cruise.interfaces.backtest.report import BacktestReport
    from cruise.interfaces.backtest.table import has_time_line

    settings = load_process_settings(config)
    _check_source(trace, prometheus_url, {"--days": days, "--now": now, "--snapshot": snapshot})
    policies = _select_policies(policy)
    _check_used(policies, risk, rules, against)
    risk = DEFAULT_RISK if risk is None else risk
    options = replace(
        _build_options(_parse_node(node_cpu, node_memory), pod_creation, seed, risk, rules, settings),
        added_autoscalers=None if hpa is None else parse_hpa_option(hpa, snapshot),
    )
    with_page = html is not None or format is ReportFormat.HTML
    shown_node = _check_show_node(show_node, with_page=with_page or against is not None)
    if html is not None:
        require_writable(html, "--html")

    from cruise.backtest.backtest import ReplayConfiguration
    from cruise.cli.work.replay import ReplayRequest

    if scheduler is not None and jobs is not None:
        raise BadInputError("--jobs and --scheduler are both given; choose one")
    if scheduler is not None:
        # A worker may have another working directory.
        trace = [directory.absolute() for directory in trace or ()]
        snapshot = os.path.abspath(snapshot) if snapshot not in (None, "-") else snapshot
    if snapshot == "-" and (scheduler is not None or jobs not in (None, 1)):
        raise BadInputError("--snapshot -: other processes cannot read standard input; use a file")
    check_against_options(against, max_delta, confidence_interval, markdown, format)
    bounds = parse_max_delta(max_delta or ())
    replay = ReplayRequest(
        _build_sources(trace, prometheus_url, days or DAYS, now, snapshot, half, settings, options),
        [ReplayConfiguration(name, name, options) for name in policies],
        shown_node,
        with_time_lines=with_page,
    )
    terms = _build_terms(options, half, settings)
    if against is not None:
        _check_against_alone(policy, html, show_node)
        two = build_replay_configurations(options, load_reference_options(options, against))
        results = _replay(replace(replay, entries=two, with_hourly_counts=True), jobs, scheduler)
        return print_comparison(
            build_comparison_report(results, terms, two, against, bounds, confidence_interval), format, markdown
        )
    report = BacktestReport(_replay(replay, jobs, scheduler), terms)
    if html is not None:
        from cruise.interfaces.backtest.html import render_backtest_html

        save_report(html, [render_backtest_html(report, shown_node)], "--html")
    _print(report, format, shown_node)
    if shown_node is not None and not any(
        has_time_line(score) for one in report.results for score in one.policies.values()
    ):
        print_error(f"--show-node: no pod ran on node {shown_node}")
        return 2
    return 0


def _check_used(policies: list[str], risk: float | None, rules: RulesName | None, against: Path | None) -> None:
    """Raise BadInputError for an option that no replay uses."""
    if risk is not None and against is not None:
        raise BadInputError(
            "--risk is for policy cruise-risk, and --against compares policy cruise: set cpu_risk, memory_risk"
        )
    if risk is not None and "cruise-risk" not in policies:
        raise BadInputError(
            "--risk is for policy cruise-risk, which is not replayed: add it to --policy, or remove --risk"
        )
    if rules is not None and against is None and not _POLICIES_WITH_RULES & set(policies):
        raise BadInputError(
            f"--rules is for policies of cruise ({', '.join(sorted(_POLICIES_WITH_RULES))}), and none of them is "
            "replayed"
        )


def _check_against_alone(policy: list[str] | None, html: Path | None, show_node: str | None) -> None:
    """Raise BadInputError for options that do not apply to --against."""
    for option, given in (("--policy", policy), ("--html", html), ("--show-node", show_node)):
        if given is not None:
            raise BadInputError(f"{option} compares policies, and --against two configurations: remove one of them")


def _check_source(trace: list[Path] | None, prometheus_url: str | None, prometheus_options: dict[str, object]) -> None:
    """Raise BadInputError unless there is exactly one source, with its own options only."""
    if trace and prometheus_url is not None:
        raise BadInputError("--trace and --prometheus-url are both given; choose one source")
    if not trace and prometheus_url is None:
        raise BadInputError("nothing to replay: add --trace DIR…, or --prometheus-url URL")
    if trace:
        for option, value in prometheus_options.items():
            if value is not None:
                raise BadInputError(f"{option} needs --prometheus-url: a trace is replayed as it was recorded")


def _select_policies(names: list[str] | None) -> list[str]:
    """Return the policies to replay in the order of tables; BadInputError for an unknown one."""
    from cruise.backtest.policies.policies import POLICIES

    for name in names or ():
        if name not in POLICIES:
            known = suggest_similar(name, POLICIES) or f"; there are {', '.join(POLICIES)}"
            raise BadInputError(f"--policy: no policy is called {name}{known}")
    return [name for name in POLICIES if not names or name in names]


def _parse_node(cpu: str, memory: str) -> "Resources":
    from cruise.domain.policy import parse_size
    from cruise.domain.resources import ResourceName, Resources

    amounts = []
    for option, text, resource in (
        ("--node-cpu", cpu, ResourceName.CPU),
        ("--node-memory", memory, ResourceName.MEMORY),
    ):
        try:
            amounts.append(parse_size(resource, text))
        except ValueError as error:
            raise BadInputError(f"{option}: {error}") from error
    return Resources(*amounts)


def _build_options(
    node: "Resources",
    pod_creation: PodCreationTime,
    seed: int,
    risk: float,
    rules: RulesName | None,
    settings: "Settings",
) -> "ReplayOptions":
    from cruise.backtest.replay.policy import ReplayOptions

    if not 0 < risk < 1:
        raise BadInputError(f"--risk: {risk:g} is not between 0 and 1; write e.g. 1e-3")
    return ReplayOptions(
        node=node,
        pass_seconds=int(settings.pass_interval.total_seconds()),
        creation_time=pod_creation,
        seed=seed,
        risk=risk,
        policy=apply_rule_set(settings.to_policy(), rules),
        prices=settings.to_price_settings().resources,
    )


def _check_show_node(name: str | None, *, with_page: bool) -> str | None:
    if name is not None and not re.fullmatch(r"node-\d{3,}", name, re.ASCII):
        raise BadInputError(f"--show-node: no simulated node is called {name}; names are node-000, node-001, …")
    if name is not None and not with_page:
        raise BadInputError("--show-node is for the HTML page: add --html FILE, or --format html")
    return name


def _build_sources(
    traces: list[Path] | None,
    url: str | None,
    days: int,
    now: str | None,
    snapshot: str | None,
    half: RecordingHalf | None,
    settings: "Settings",
    options: "ReplayOptions",
) -> "list[RecordingSource]":
    """Return the recordings: trace directories, or days of a Prometheus server."""
    from cruise.app.process import get_current_time
    from cruise.backtest.tasks import PrometheusRecordingSource, TraceRecordingSource

    if traces:
        return [TraceRecordingSource(directory, options.pass_seconds, half) for directory in traces]
    prometheus = replace(settings.to_prometheus_settings(url), plausible=options.policy.rules.plausibility_checks)
    end = parse_time(now) or get_current_time()
    return [PrometheusRecordingSource(prometheus, days, end, options.pass_seconds, snapshot, half)]


def _replay(replay: "ReplayRequest", jobs: int | None, scheduler: str | None) -> "list[BacktestResult]":
    """Replay on this machine, or on a Dask cluster."""
    from cruise.backtest.tasks import CachedRecordingSource
    from cruise.cli.work.replay import replay_locally, replay_on_dask
    from cruise.runtime.cores import count_usable_cores

    if scheduler is None:
        return replay_locally(replay, 1 if jobs is None else jobs or count_usable_cores())
    return replay_on_dask(
        replace(replay, sources=[CachedRecordingSource(source) for source in replay.sources]), scheduler
    )


def _build_terms(options: "ReplayOptions", half: RecordingHalf | None, settings: "Settings") -> "ReplayParameters":
    from cruise.domain.backtest import ObjectivePrices
    from cruise.domain.prices import LIST_PRICES
    from cruise.interfaces.backtest.report import HourlyResourcePrices, ReplayParameters

    stated, prices = options.prices, options.prices or LIST_PRICES
    return ReplayParameters(
        options.pass_seconds,
        options.creation_time.value,
        options.seed,
        options.risk,
        half.value if half is not None else None,
        HourlyResourcePrices(stated.cpu_core_hour, stated.memory_gib_hour) if stated is not None else None,
        options.policy.rules.name,
        ObjectivePrices(
            prices.cpu_core_hour,
            prices.memory_gib_hour,
            settings.price_starved_minute,
            settings.price_oom_kill,
            settings.price_eviction,
            settings.price_resize,
        ),
        describe_hpa(options.added_autoscalers),
        settings.currency,
    )


def _print(report: "BacktestReport", format: ReportFormat, shown_node: str | None) -> None:
    from cruise.interfaces.backtest.html import render_backtest_html
    from cruise.interfaces.backtest.report import build_backtest_document, render_backtest_csv
    from cruise.interfaces.backtest.table import render_backtest_table

    write_report(
        format,
        None,
        lambda console: render_backtest_table(report, console, shown_node),
        partial(build_backtest_document, report),
        {
            ReportFormat.CSV: partial(render_backtest_csv, report),
            ReportFormat.HTML: partial(render_backtest_html, report, shown_node),
        },
    )
