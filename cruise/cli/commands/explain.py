"""`cruise explain`: the reason for each number of a pod, from files, the cluster or the database."""

import asyncio
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    FormatOption,
    ModeName,
    NowOption,
    OutputFormat,
    RulesName,
    RulesOption,
    create_option_without_default,
    load_process_settings,
    parse_time,
    resolve_policy,
)
from cruise.cli.terminal import print_error, print_result
from cruise.errors import BadInputError, UnavailableError
from cruise.interfaces.text import suggest_similar

if TYPE_CHECKING:
    from datetime import datetime

    from cruise.cli.inputs.store import StoredPodData
    from cruise.domain.cluster import ClusterSnapshot, Pod
    from cruise.domain.usage import StatisticsTable

_HISTORY = "1d"


def explain(
    pod: Annotated[str, typer.Argument(metavar="NAMESPACE/POD", help="The pod to explain.", show_default=False)],
    snapshot: Annotated[
        str | None,
        create_option_without_default("--snapshot", "FILE", "The cluster, as for `cruise plan`."),
    ] = None,
    usage: Annotated[
        str | None,
        create_option_without_default("--usage", "FILE", "Statistics; default: those of the database."),
    ] = None,
    now: NowOption = None,
    mode: Annotated[
        ModeName | None,
        create_option_without_default("--mode", None, "Decide for this mode of the cluster; full by default."),
    ] = None,
    rules: RulesOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Explain one pod: the reason for each number, its overrides, and why it is skipped or evicted.

    Without --snapshot the cluster is kubectl's; without a cluster, the data
    in the database is shown. Without --usage the statistics and the history
    come from the database; for a live cluster without a database, statistics
    come from the last day in its Prometheus. With both files nothing is
    contacted.

    Examples:
      cruise explain shop/web-1 --snapshot cluster.json --usage usage.json

      cruise explain shop/web-1 --snapshot cluster.json

      cruise explain shop/web-1
    """
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise BadInputError(f'"{pod}" is not NAMESPACE/POD; write e.g. shop/web-7d9f8b6c5d-x2x4z')
    if usage is not None and snapshot is None:
        raise BadInputError("--usage needs --snapshot, which has the pod's requests")
    at = parse_time(now)
    request = _ExplainRequest((namespace, name), at, mode, rules, format, config)
    if snapshot is not None:
        _explain_from_snapshot(request, snapshot, usage)
        return
    from cruise.cli.inputs.live_cluster import has_cluster_credentials

    if at is None and has_cluster_credentials(load_process_settings(config)):
        _explain_from_cluster(request)
    else:
        _explain_from_database(request)


@dataclass(frozen=True, slots=True)
class _ExplainRequest:
    """The pod, the time, mode and rules of the decision, and the output format."""

    name: tuple[str, str]
    at: "datetime | None"
    mode: ModeName | None
    rules: RulesName | None
    format: OutputFormat
    config: Path | None


def _explain_from_database(request: _ExplainRequest) -> None:
    for option, given in (("--mode", request.mode), ("--rules", request.rules)):
        if given is not None:
            raise BadInputError(f"{option} needs the cluster or --snapshot: the database has no cluster to decide for")
    from cruise.app.process import get_current_time
    from cruise.cli.inputs.store import read_stored_pod_data
    from cruise.interfaces.explain.document import render_stored_pod_json
    from cruise.interfaces.explain.text import render_stored_text

    name, at = request.name, request.at or get_current_time()
    stored_data = asyncio.run(read_stored_pod_data(load_process_settings(request.config), name, None, at))
    if not stored_data.own_statistics.keys and not stored_data.history.outcomes and not stored_data.history.oom_kills:
        raise BadInputError(f"the database has no pod {name[0]}/{name[1]}; add --snapshot to explain why")
    print_result(
        request.format is OutputFormat.JSON,
        lambda: [render_stored_pod_json(*name, stored_data.own_statistics, stored_data.history)],
        lambda _: render_stored_text(*name, stored_data.own_statistics, stored_data.history, at),
    )


def _explain_from_cluster(request: _ExplainRequest) -> None:
    """Explain from the live cluster, with statistics of the database, or of Prometheus if it has none."""
    from cruise.app.process import get_current_time
    from cruise.cli.inputs.live_cluster import PrometheusRequirement, read_cluster
    from cruise.cli.inputs.store import has_existing_store, read_stored_pod_data

    settings = load_process_settings(request.config)
    has_database = has_existing_store(settings)
    try:
        live = read_cluster(
            settings, PrometheusRequirement.IF_FOUND if has_database else PrometheusRequirement.REQUIRED
        )
    except UnavailableError as error:
        if not has_database:
            raise
        if request.mode is None and request.rules is None:
            print_error(f"without the cluster, from the database: {error}")
        _explain_from_database(request)
        return
    pod = _find_pod(request.name, live.snapshot, "cluster")
    stored_data = (
        asyncio.run(read_stored_pod_data(settings, request.name, pod, get_current_time(), live.snapshot.pods))
        if has_database
        else None
    )
    if stored_data is not None and (stored_data.own_statistics.keys or live.prometheus is None):
        _print_explanation(request, pod, live.snapshot, stored_data.statistics, get_current_time(), stored_data)
        return
    from cruise.cli.inputs.usage import read_prometheus_usage

    assert live.prometheus is not None
    statistics, at, _ = read_prometheus_usage(live.snapshot, live.prometheus, _HISTORY, None, settings.to_policy())
    _print_explanation(request, pod, live.snapshot, statistics, at, stored_data)


def _explain_from_snapshot(request: _ExplainRequest, snapshot: str, usage: str | None) -> None:
    from cruise.cli.inputs.sources import load_snapshot_with_node_autoscaler, load_usage_of_snapshot

    cluster = load_snapshot_with_node_autoscaler(snapshot, load_process_settings(request.config).node_autoscaler)
    found = _find_pod(request.name, cluster, "snapshot")
    if usage is not None:
        policy = resolve_policy(request.config, request.mode or ModeName.FULL, request.rules)
        statistics, at = load_usage_of_snapshot(usage, cluster, request.at, policy)
        _print_explanation(request, found, cluster, statistics, at, None)
        return
    from cruise.app.process import get_current_time
    from cruise.cli.inputs.store import read_stored_pod_data

    at = request.at or get_current_time()
    stored_data = asyncio.run(
        read_stored_pod_data(load_process_settings(request.config), request.name, found, at, cluster.pods)
    )
    _print_explanation(request, found, cluster, stored_data.statistics, at, stored_data)


def _print_explanation(
    request: _ExplainRequest,
    pod: "Pod",
    snapshot: "ClusterSnapshot",
    statistics: "StatisticsTable",
    at: "datetime",
    stored_data: "StoredPodData | None",
) -> None:
    from cruise.decisions.explanation.pod_explanation import explain_pod
    from cruise.decisions.sizing.node_plans import SizingContext
    from cruise.domain.overrides import NO_PAUSED_WORKLOADS
    from cruise.interfaces.explain.document import render_explanation_json
    from cruise.interfaces.explain.text import render_explanation_text, render_pod_history

    policy = resolve_policy(request.config, request.mode or ModeName.FULL, request.rules)
    context = SizingContext() if stored_data is None else SizingContext(stored_data.refused)
    if stored_data is not None and stored_data.statistics is statistics:
        context = replace(context, headroom=stored_data.headroom)
    explanation = explain_pod(
        pod,
        snapshot,
        statistics,
        policy,
        at,
        paused_workloads=stored_data.paused_workloads if stored_data is not None else NO_PAUSED_WORKLOADS,
        context=context,
    )
    history = stored_data.history if stored_data is not None else None
    print_result(
        request.format is OutputFormat.JSON,
        lambda: [render_explanation_json(explanation, at, history)],
        lambda _: chain(
            render_explanation_text(explanation, policy, at),
            render_pod_history(history, at) if history is not None else (),
        ),
    )


def _find_pod(name: tuple[str, str], snapshot: "ClusterSnapshot", source: str) -> "Pod":
    for pod in snapshot.pods:
        if (pod.namespace, pod.name) == name:
            return pod
    namespaces = {pod.namespace for pod in snapshot.pods}
    if name[0] not in namespaces:
        raise BadInputError(
            f"the {source} has no pod in namespace {name[0]}{suggest_similar(name[0], sorted(namespaces))}"
        )
    names = [pod.name for pod in snapshot.pods if pod.namespace == name[0]]
    raise BadInputError(f"the {source} has no pod {name[0]}/{name[1]}{suggest_similar(name[1], names)}")
