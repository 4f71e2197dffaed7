"""cruise agrees with kube-scheduler's plugins in their own test cases, or reports the pod as not modelled."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.decisions.scheduling.filters import (
    check_attach_limits,
    check_host_ports,
    check_node,
    check_resources,
    check_volumes,
    explain_unsupported_constraints,
)
from cruise.decisions.scheduling.placements import PodPlacements
from cruise.decisions.scheduling.pod_affinity import (
    SchedulerFilters,
    TopologySpreadFilter,
    check_affinity,
    check_anti_affinity,
)
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.packing_plan import PackingProposal
from cruise.domain.reasons import UnschedulableCode, UnschedulableReason
from cruise.errors import BadInputError
from cruise.kube_json.reading.snapshot import read_snapshot
from cruise.packer.greedy import pack_quickly
from tests.controlplane.binaries import NotAvailable
from tests.scheduler_tables.building import verdicts
from tests.scheduler_tables.verdicts import NotConvertible, Verdict, read_lines, verdict_of

# At least so many verdicts of each plugin are agreed with: a suite that lost cases would be a weaker one.
FLOORS = {
    "DynamicResources": 3,
    "GangScheduling": 0,
    "InterPodAffinity": 82,
    "NodeAffinity": 28,
    "NodeDeclaredFeatures": 3,
    "NodeName": 1,
    "NodePorts": 20,
    "NodeResourcesFit": 58,
    "NodeUnschedulable": 3,
    "NodeVolumeLimits": 29,
    "PodTopologySpread": 305,
    "SchedulingGates": 1,
    "TaintToleration": 9,
    "VolumeBinding": 86,
    "VolumeRestrictions": 13,
    "VolumeZone": 22,
}

# NodeVolumeLimits refuses a pod for these as well.
_OF_CLAIM = ("does not exist", "is not the pod's own")


@dataclass(slots=True)
class Tally:
    """What became of one plugin's verdicts."""

    agreed: int = 0
    wrong: list[str] = field(default_factory=list)
    not_judged: Counter[str] = field(default_factory=Counter)
    not_convertible: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Case:
    """A verdict with its cluster as cruise reads it; no other node takes pods."""

    verdict: Verdict
    snapshot: ClusterSnapshot
    pod: Pod
    node: Node

    def contradiction(self, said: str) -> str:
        """Report that cruise disagrees."""
        one = self.verdict
        return f"{one.plugin} {one.test}: {one.code} {one.reasons}, cruise: {said}"


def case_of(verdict: Verdict) -> Case:
    """Read the cluster of a verdict. Raises NotConvertible."""
    try:
        snapshot = read_snapshot([json.dumps(verdict.cluster).encode()], "table")
    except BadInputError as error:
        raise NotConvertible(f"no API server has it: {error}") from error
    nodes = tuple(replace(one, ready=one.name == verdict.node) for one in snapshot.nodes)
    pod = next(one for one in snapshot.pods if (one.namespace, one.name) == verdict.pod)
    return Case(verdict, replace(snapshot, nodes=nodes), pod, next(one for one in nodes if one.ready))


def refused_as_by(plugin: str, board: PodPlacements, pod: Pod, node: Node) -> Iterator[str]:
    """Say what cruise's own rules about the same as one plugin of kube-scheduler refuse."""
    match plugin:
        case "NodeAffinity" | "NodeName" | "NodeUnschedulable" | "TaintToleration":
            yield from check_node(board, pod, node)
        case "NodeResourcesFit":
            yield from check_resources(board, pod, node)
        case "DynamicResources":
            yield from (one for one in check_resources(board, pod, node) if one.startswith("lacks device:"))
        case "NodePorts":
            yield from check_host_ports(board, pod, node)
        case "VolumeBinding" | "VolumeRestrictions" | "VolumeZone":
            yield from check_volumes(board, pod, node)
        case "NodeVolumeLimits":
            yield from check_attach_limits(board, pod, node)
            yield from (one for one in check_volumes(board, pod, node) if one.endswith(_OF_CLAIM))
        case "InterPodAffinity":
            yield from check_affinity(board, pod, node)
            yield from check_anti_affinity(board, pod, node)
        case "PodTopologySpread":
            yield from TopologySpreadFilter(board).check(pod, node)


def why_contradicted(case: Case) -> str | None:
    """Say what the rules that judge plans, and places for replacements, say otherwise; None for nothing."""
    board, allowed = PodPlacements(case.snapshot), case.verdict.allowed
    refusals = list(refused_as_by(case.verdict.plugin, board, case.pod, case.node))
    if allowed == (not refusals) and (allowed or any(SchedulerFilters(board).check(case.pod, case.node))):
        return None
    return case.contradiction("; ".join(refusals) or "may run there")


def why_planned_otherwise(case: Case) -> str | None:
    """Say what a plan does otherwise; None for nothing.

    It places the pod wherever all of kube-scheduler's rules allow it, except on a cordoned node, and reports that.
    """
    built = build_packing_problem(case.snapshot)
    plan = build_proposal(built, pack_quickly(built.problem))
    assert isinstance(plan, PackingProposal)
    placed = case.verdict.pod in {one.key for one in plan.placed}
    if placed == (not any(SchedulerFilters(PodPlacements(case.snapshot)).check(case.pod, case.node))):
        return None
    left = next((one for one in plan.unplaced if one.key == case.verdict.pod), None)
    if left is not None and (left.blocked_by, left.impossible) == (("cordoned",), False):
        return None
    return case.contradiction("placed" if placed else f"not placed: {left}")


def why_not_told(case: Case) -> str | None:
    """Return the pod that is not modelled and that no plan reports so; None if there is none."""
    unjudged = explain_unsupported_constraints(case.snapshot.storage_and_namespaces, case.pod)
    told = [one.reason for one in build_packing_problem(case.snapshot).ignored_pods if one.key == case.verdict.pod]
    if told == [UnschedulableReason(UnschedulableCode.NOT_EVALUATED, unsupported=unjudged or "")]:
        return None
    return case.contradiction(f"not judged for {unjudged}, but told {told}")


class Compared(NamedTuple):
    """The results by plugin, with the cases of agreement and those that are not modelled."""

    tallies: dict[str, Tally]
    agreed: list[Case]
    not_judged: list[Case]


@pytest.fixture(scope="module")
def compared() -> Compared:
    """All results, compared with cruise's."""
    try:
        path = verdicts()
    except NotAvailable as missing:
        pytest.skip(f"no tables of kube-scheduler on this machine: {missing}")
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    agreed: list[Case] = []
    not_judged: list[Case] = []
    for line in read_lines(path):
        tally = tallies[line["plugin"]]
        try:
            case = case_of(verdict_of(line))
        except NotConvertible as error:
            tally.not_convertible[str(error)] += 1
            continue
        unjudged = explain_unsupported_constraints(case.snapshot.storage_and_namespaces, case.pod)
        contradiction = None if unjudged else why_contradicted(case)
        if unjudged is not None:
            tally.not_judged[unjudged] += 1
            not_judged.append(case)
        elif contradiction is not None:
            tally.wrong.append(contradiction)
        else:
            tally.agreed += 1
            agreed.append(case)
    return Compared(dict(sorted(tallies.items())), agreed, not_judged)


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


def test_no_verdict_is_contradicted(compared: Compared):
    print(table(compared.tallies))
    assert [wrong for tally in compared.tallies.values() for wrong in tally.wrong] == []


def test_plans_place_pods_where_kube_scheduler_does(compared: Compared):
    assert list(filter(None, map(why_planned_otherwise, compared.agreed))) == []


def test_unchecked_kinds_are_reported(compared: Compared):
    assert list(filter(None, map(why_not_told, compared.not_judged))) == []


def test_the_suite_has_not_shrunk(compared: Compared):
    agreed = {plugin: tally.agreed for plugin, tally in compared.tallies.items()}
    assert agreed.keys() == FLOORS.keys()
    assert {plugin: many for plugin, many in agreed.items() if many < FLOORS[plugin]} == {}
