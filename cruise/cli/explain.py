"""`cruise explain`: why a pod has, gets or keeps its numbers, from files or from the store."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    ModeName,
    ModeOption,
    NowOption,
    is_large,
    near,
    parse_time,
    policy_of,
    settings_of,
)
from cruise.cli.terminal import busy, print_parts, table_console, write_document
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.cli.stored import Remembered
    from cruise.domain.cluster import Pod, Snapshot


def explain(
    pod: Annotated[str, typer.Argument(metavar="NAMESPACE/POD", help="The pod to explain.", show_default=False)],
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="FILE", help="The cluster, as for `cruise plan`.", show_default=False),
    ] = None,
    usage: Annotated[
        str | None,
        typer.Option("--usage", metavar="FILE", help="Statistics; without it, those of the store.", show_default=False),
    ] = None,
    now: NowOption = None,
    mode: ModeOption = ModeName.FULL,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Explain one pod: why each of its numbers, who overrode what, and why it is held or evicted.

    From files nothing is contacted. Without --usage the statistics and the past come from the store; without
    --snapshot too, what the store alone knows is shown.

    Examples:
      cruise explain shop/web-1 --snapshot cluster.json --usage usage.json

      cruise explain shop/web-1 --snapshot cluster.json

      cruise explain shop/web-1
    """
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise BadInput(f'"{pod}" is not NAMESPACE/POD; write e.g. shop/web-7d9f8b6c5d-x2x4z')
    if usage is not None and snapshot is None:
        raise BadInput("--usage needs --snapshot: statistics alone do not tell what the pod asks for")
    at = parse_time(now)
    if snapshot is None:
        _from_store((namespace, name), at, format, config)
    else:
        _from_snapshot((namespace, name), snapshot, usage, at, mode, format, config)


def _from_store(name: tuple[str, str], at: datetime | None, format: Format, config: Path | None) -> None:
    from cruise.app.clock import wall_clock
    from cruise.cli.stored import remembered
    from cruise.interfaces.explanation_json import stored_json
    from cruise.interfaces.past_text import stored_text

    at = at or wall_clock()
    known = asyncio.run(remembered(settings_of(config), name, None, at))
    if not known.own_statistics.keys and not known.past.outcomes and not known.past.kills:
        raise BadInput(f"the store knows no pod {name[0]}/{name[1]}; give --snapshot to explain why")
    if format is Format.JSON:
        write_document([stored_json(*name, known.own_statistics, known.past)])
        return
    print_parts(stored_text(*name, known.own_statistics, known.past, at), table_console())


def _from_snapshot(
    name: tuple[str, str],
    snapshot: str,
    usage: str | None,
    at: datetime | None,
    mode: ModeName,
    format: Format,
    config: Path | None,
) -> None:
    from cruise.adapters.files import load_snapshot, load_usage
    from cruise.decisions.explanation import explain as explain_pod
    from cruise.interfaces.explanation_json import explanation_json
    from cruise.interfaces.explanation_text import explanation_text
    from cruise.interfaces.past_text import past_text

    policy = policy_of(config, mode)
    with busy(f"reading {snapshot}", is_large(snapshot)):
        cluster = load_snapshot(snapshot)
    found = _find(name, cluster)
    known: Remembered | None = None
    if usage is not None:
        with busy(f"reading {usage}", is_large(usage)):
            statistics, at = load_usage(usage, cluster, at)
    else:
        from cruise.app.clock import wall_clock
        from cruise.cli.stored import remembered

        at = at or wall_clock()
        known = asyncio.run(remembered(settings_of(config), name, found, at))
        statistics = known.statistics
    explanation = explain_pod(
        found,
        cluster,
        statistics,
        policy,
        at,
        stored=known.overrides if known is not None else None,
        refused=known.refused if known is not None else None,
    )
    past = known.past if known is not None else None
    if format is Format.JSON:
        write_document([explanation_json(explanation, at, past)])
        return
    console = table_console()
    print_parts(explanation_text(explanation, policy, at), console)
    if past is not None:
        print_parts(past_text(past, at), console)


def _find(name: tuple[str, str], snapshot: "Snapshot") -> "Pod":
    for pod in snapshot.pods:
        if (pod.namespace, pod.name) == name:
            return pod
    namespaces = {pod.namespace for pod in snapshot.pods}
    if name[0] not in namespaces:
        raise BadInput(f"the snapshot has no pod in namespace {name[0]}{near(name[0], sorted(namespaces))}")
    names = [pod.name for pod in snapshot.pods if pod.namespace == name[0]]
    raise BadInput(f"the snapshot has no pod {name[0]}/{name[1]}{near(name[1], names)}")
