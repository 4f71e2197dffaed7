"""`cruise explain`: why a pod has, gets or keeps its numbers, from files or from the store."""

import asyncio
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    ModeName,
    NowOption,
    RulesName,
    RulesOption,
    near,
    optional,
    parse_time,
    policy_of,
    settings_of,
)
from cruise.cli.terminal import complain, print_result
from cruise.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from datetime import datetime

    from cruise.cli.inputs.store import Remembered
    from cruise.domain.cluster import Pod, Snapshot
    from cruise.domain.usage import StatisticsTable

_HISTORY = "1d"


def explain(
    pod: Annotated[str, typer.Argument(metavar="NAMESPACE/POD", help="The pod to explain.", show_default=False)],
    snapshot: Annotated[
        str | None,
        optional("--snapshot", "FILE", "The cluster, as for `cruise plan`."),
    ] = None,
    usage: Annotated[
        str | None,
        optional("--usage", "FILE", "Statistics; without it, those of the store."),
    ] = None,
    now: NowOption = None,
    mode: Annotated[
        ModeName | None, optional("--mode", None, "Decide as this mode of the cluster; full by default.")
    ] = None,
    rules: RulesOption = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Explain one pod: why each of its numbers, what was overridden where, and why it is held or evicted.

    Without --snapshot the cluster is the one that kubectl speaks to, or where
    there is none, what the store alone knows is shown. Without --usage the
    statistics and the past come from the store; for a live cluster that no
    store knows, statistics come from the last day in its Prometheus. With
    both files nothing is contacted.

    Examples:
      cruise explain shop/web-1 --snapshot cluster.json --usage usage.json

      cruise explain shop/web-1 --snapshot cluster.json

      cruise explain shop/web-1
    """
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise BadInput(f'"{pod}" is not NAMESPACE/POD; write e.g. shop/web-7d9f8b6c5d-x2x4z')
    if usage is not None and snapshot is None:
        raise BadInput("--usage needs --snapshot: statistics alone do not say what the pod requests")
    at = parse_time(now)
    request = _Request((namespace, name), at, mode, rules, format, config)
    if snapshot is not None:
        _from_snapshot(request, snapshot, usage)
        return
    from cruise.cli.inputs.live_cluster import knows_a_cluster

    if at is None and knows_a_cluster(settings_of(config)):
        _from_cluster(request)
    else:
        _from_store(request)


@dataclass(frozen=True, slots=True)
class _Request:
    """Which pod, judged when, as which mode and by which rules, and how to answer."""

    name: tuple[str, str]
    at: "datetime | None"
    mode: ModeName | None
    rules: RulesName | None
    format: Format
    config: Path | None


def _from_store(request: _Request) -> None:
    for option, given in (("--mode", request.mode), ("--rules", request.rules)):
        if given is not None:
            raise BadInput(f"{option} needs the cluster or --snapshot: the store alone has sizes, and decides nothing")
    from cruise.app.clock import wall_clock
    from cruise.cli.inputs.store import remembered
    from cruise.interfaces.explain.document import stored_json
    from cruise.interfaces.explain.past import stored_text

    name, at = request.name, request.at or wall_clock()
    known = asyncio.run(remembered(settings_of(request.config), name, None, at))
    if not known.own_statistics.keys and not known.past.outcomes and not known.past.kills:
        raise BadInput(f"the store knows no pod {name[0]}/{name[1]}; give --snapshot to explain why")
    print_result(
        request.format is Format.JSON,
        lambda: [stored_json(*name, known.own_statistics, known.past)],
        lambda _: stored_text(*name, known.own_statistics, known.past, at),
    )


def _from_cluster(request: _Request) -> None:
    """Explain from the cluster as it is now, by the store's statistics or, where it has none, by Prometheus'."""
    from cruise.app.clock import wall_clock
    from cruise.cli.inputs.live_cluster import Prometheus, read_cluster
    from cruise.cli.inputs.store import has_store, remembered

    settings = settings_of(request.config)
    stored = has_store(settings)
    try:
        live = read_cluster(settings, Prometheus.IF_FOUND if stored else Prometheus.NEEDED)
    except Unavailable as error:
        if not stored:
            raise
        if request.mode is None and request.rules is None:
            complain(f"without the cluster, by the store alone: {error}")
        _from_store(request)
        return
    pod = _find(request.name, live.snapshot, "cluster")
    known = asyncio.run(remembered(settings, request.name, pod, wall_clock())) if stored else None
    if known is not None and (known.own_statistics.keys or live.prometheus is None):
        _answer(request, pod, live.snapshot, known.statistics, wall_clock(), known)
        return
    from cruise.cli.inputs.prometheus_usage import read_usage_of

    assert live.prometheus is not None
    statistics, at, _ = read_usage_of(live.snapshot, live.prometheus, _HISTORY, None, settings.policy())
    _answer(request, pod, live.snapshot, statistics, at, known)


def _from_snapshot(request: _Request, snapshot: str, usage: str | None) -> None:
    from cruise.cli.inputs.files import load_snapshot, load_usage

    cluster = load_snapshot(snapshot, settings_of(request.config).node_autoscaler)
    found = _find(request.name, cluster, "snapshot")
    if usage is not None:
        policy = policy_of(request.config, request.mode or ModeName.FULL, request.rules)
        statistics, at = load_usage(usage, cluster, request.at, policy)
        _answer(request, found, cluster, statistics, at, None)
        return
    from cruise.app.clock import wall_clock
    from cruise.cli.inputs.store import remembered

    at = request.at or wall_clock()
    known = asyncio.run(remembered(settings_of(request.config), request.name, found, at))
    _answer(request, found, cluster, known.statistics, at, known)


def _answer(
    request: _Request,
    pod: "Pod",
    snapshot: "Snapshot",
    statistics: "StatisticsTable",
    at: "datetime",
    known: "Remembered | None",
) -> None:
    from cruise.decisions.explaining.explanation import explain as explain_pod
    from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
    from cruise.interfaces.explain.document import explanation_json
    from cruise.interfaces.explain.past import past_text
    from cruise.interfaces.explain.text import explanation_text

    policy = policy_of(request.config, request.mode or ModeName.FULL, request.rules)
    explanation = explain_pod(
        pod,
        snapshot,
        statistics,
        policy,
        at,
        stored=known.overrides if known is not None else None,
        refused=known.refused if known is not None else None,
        headroom=known.headroom if known is not None and known.statistics is statistics else SHARED_MAX,
    )
    past = known.past if known is not None else None
    print_result(
        request.format is Format.JSON,
        lambda: [explanation_json(explanation, at, past)],
        lambda _: chain(explanation_text(explanation, policy, at), past_text(past, at) if past is not None else ()),
    )


def _find(name: tuple[str, str], snapshot: "Snapshot", source: str) -> "Pod":
    for pod in snapshot.pods:
        if (pod.namespace, pod.name) == name:
            return pod
    namespaces = {pod.namespace for pod in snapshot.pods}
    if name[0] not in namespaces:
        raise BadInput(f"the {source} has no pod in namespace {name[0]}{near(name[0], sorted(namespaces))}")
    names = [pod.name for pod in snapshot.pods if pod.namespace == name[0]]
    raise BadInput(f"the {source} has no pod {name[0]}/{name[1]}{near(name[1], names)}")
