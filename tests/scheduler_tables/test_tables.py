"""cruise says what kube-scheduler's plugins say in their own tests, or that it does not judge the pod."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from cruise.decisions.scheduling.board import Board
from cruise.decisions.scheduling.claims import why_not_judged
from cruise.decisions.scheduling.filters import (
    refuse_by_attach_limits,
    refuse_by_node,
    refuse_by_ports,
    refuse_by_room,
    refuse_by_volumes,
)
from cruise.decisions.scheduling.neighbours import Spreads, refuse_by_affinity, refuse_by_anti_affinity
from cruise.decisions.scheduling.scheduler import Scheduler
from cruise.domain.cluster import Node, Pod
from cruise.errors import BadInput
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.controlplane.binaries import NotAvailable
from tests.scheduler_tables.building import verdicts
from tests.scheduler_tables.verdicts import NotConvertible, Verdict, read_lines, verdict_of

# At least so many verdicts of each plugin are agreed with: a suite that lost cases would be a weaker one.
FLOORS = {
    "DynamicResources": 3,
    "InterPodAffinity": 64,
    "NodeAffinity": 28,
    "NodeDeclaredFeatures": 3,
    "NodeName": 1,
    "NodePorts": 20,
    "NodeResourcesFit": 58,
    "NodeUnschedulable": 3,
    "PodTopologySpread": 140,
    "SchedulingGates": 1,
    "TaintToleration": 13,
    "VolumeRestrictions": 13,
    "VolumeZone": 22,
}


@dataclass(slots=True)
class Tally:
    """What became of one plugin's verdicts."""

    agreed: int = 0
    wrong: list[str] = field(default_factory=list)
    not_judged: Counter[str] = field(default_factory=Counter)
    not_convertible: Counter[str] = field(default_factory=Counter)


def of_plugin(plugin: str, board: Board, pod: Pod, node: Node) -> Iterator[str]:
    """Say what cruise's own rules about the same as one plugin of kube-scheduler refuse."""
    match plugin:
        case "NodeAffinity" | "NodeName" | "NodeUnschedulable" | "TaintToleration":
            yield from refuse_by_node(board, pod, node)
        case "NodeResourcesFit":
            yield from refuse_by_room(board, pod, node)
        case "DynamicResources":
            yield from (one for one in refuse_by_room(board, pod, node) if one.startswith("lacks device:"))
        case "NodePorts":
            yield from refuse_by_ports(board, pod, node)
        case "VolumeBinding" | "VolumeRestrictions" | "VolumeZone":
            yield from refuse_by_volumes(board, pod, node)
        case "NodeVolumeLimits":
            yield from refuse_by_attach_limits(board, pod, node)
            yield from (one for one in refuse_by_volumes(board, pod, node) if one.endswith("does not exist"))
        case "InterPodAffinity":
            yield from refuse_by_affinity(board, pod, node)
            yield from refuse_by_anti_affinity(board, pod, node)
        case "PodTopologySpread":
            yield from Spreads(board).refuse(pod, node)


def judge(verdict: Verdict, tally: Tally) -> None:
    """Compare one verdict with what cruise says."""
    try:
        snapshot = read_snapshot([json.dumps(verdict.cluster).encode()], "table")
    except BadInput as error:
        tally.not_convertible[f"no API server has it: {error}"] += 1
        return
    pod = next(one for one in snapshot.pods if (one.namespace, one.name) == verdict.pod)
    node = next(one for one in snapshot.nodes if one.name == verdict.node)
    unjudged = why_not_judged(snapshot.surroundings, pod)
    board = Board(snapshot)
    refusals = list(of_plugin(verdict.plugin, board, pod, node))
    if unjudged is not None:
        tally.not_judged[unjudged] += 1
    elif verdict.allowed == (not refusals) and (verdict.allowed or any(Scheduler(board).refuse(pod, node))):
        tally.agreed += 1
    else:
        said = "; ".join(refusals) or "may run there"
        tally.wrong.append(f"{verdict.plugin} {verdict.test}: {verdict.code} {verdict.reasons}, cruise: {said}")


@pytest.fixture(scope="module")
def tallies() -> dict[str, Tally]:
    """What became of the verdicts, by plugin."""
    try:
        path = verdicts()
    except NotAvailable as missing:
        pytest.skip(f"no tables of kube-scheduler on this machine: {missing}")
    found: defaultdict[str, Tally] = defaultdict(Tally)
    for line in read_lines(path):
        if line["plugin"] not in FLOORS:
            continue
        tally = found[line["plugin"]]
        try:
            judge(verdict_of(line), tally)
        except NotConvertible as error:
            tally.not_convertible[str(error)] += 1
    return dict(sorted(found.items()))


def table(tallies: dict[str, Tally]) -> str:
    """Lay out the figures by plugin, then each reason with its number."""
    lines = [f"{'plugin':<22}{'agreed':>8}{'wrong':>8}{'not judged':>12}{'not convertible':>17}"]
    for plugin, one in tallies.items():
        counts = one.agreed, len(one.wrong), one.not_judged.total(), one.not_convertible.total()
        lines.append(f"{plugin:<22}{counts[0]:>8}{counts[1]:>8}{counts[2]:>12}{counts[3]:>17}")
    lines += reasons("not judged", {plugin: one.not_judged for plugin, one in tallies.items()}.items())
    lines += reasons("not convertible", {plugin: one.not_convertible for plugin, one in tallies.items()}.items())
    return "\n".join(lines)


def reasons(heading: str, counted: Iterable[tuple[str, Counter[str]]]) -> list[str]:
    """List why verdicts were left out."""
    return ["", heading, *(f"  {plugin}: {many} × {why}" for plugin, by in counted for why, many in sorted(by.items()))]


def test_no_verdict_is_contradicted(tallies: dict[str, Tally]):
    print(table(tallies))
    assert [wrong for tally in tallies.values() for wrong in tally.wrong] == []


def test_the_suite_has_not_shrunk(tallies: dict[str, Tally]):
    fewer = {
        plugin: (tallies[plugin].agreed if plugin in tallies else 0, floor)
        for plugin, floor in FLOORS.items()
        if plugin not in tallies or tallies[plugin].agreed < floor
    }
    assert fewer == {}
