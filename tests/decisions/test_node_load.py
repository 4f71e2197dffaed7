"""The overload taint: hysteresis, the largest number of tainted nodes, and implausible loads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.node_load import (
    NodeLoadDecision,
    NodeLoadReadings,
    build_taint_removals,
    compute_relative_load,
    decide_node_load,
    has_running_successor,
    is_plausible_load,
)
from cruise.domain.actions import ReasonCode, TaintNode, UntaintNode
from cruise.domain.cluster import ClusterSnapshot, Node, Workload, WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import Resources
from cruise.domain.scheduling import OVERLOADED_TAINT, Taint, TaintEffect
from tests.builders import NOW, make_pod

FULL = Policy(mode=Mode.FULL)
CALM = Node("n1", Resources(4000, 1 << 34))
TAINTED = replace(CALM, taints=(OVERLOADED_TAINT,))
SERVE = WorkloadRef("Deployment", "cruise-serve")


def named(node: Node, count: int, first: int = 0) -> list[Node]:
    return [replace(node, name=f"n{number:03d}") for number in range(first, first + count)]


def decide(
    nodes: Sequence[Node],
    loads: Mapping[str, Sequence[float | None]],
    policy: Policy = FULL,
    silent: timedelta = timedelta(0),
) -> NodeLoadDecision:
    readings = {node.name: NodeLoadReadings(tuple(loads.get(node.name, ())), NOW - silent) for node in nodes}
    return decide_node_load(nodes, readings, policy, NOW)


def beside(node: Node) -> list[Node]:
    """The node among idle ones: alone it would be the whole cluster."""
    return [node, *named(CALM, 4, 100)]


@pytest.mark.parametrize(
    ("node", "readings", "expected"),
    [
        (CALM, [1.1, 1.2], [TaintNode("n1", ReasonCode.OVERLOADED)]),
        (CALM, [0.9, 1.2], []),
        (CALM, [1.2], []),
        (CALM, [1.2, None], []),
        (CALM, [None, 1.2], []),
        (CALM, [1.0, 1.0], []),
        (TAINTED, [1.1, 1.2], []),
        (TAINTED, [0.95, 0.8], []),
        (TAINTED, [0.89, 0.8], [UntaintNode("n1", ReasonCode.LOAD_NORMAL)]),
        (TAINTED, [0.9, 0.9], []),
        (TAINTED, [None, None], []),
        (TAINTED, [], []),
    ],
)
def test_two_readings_in_a_row_decide(node: Node, readings: list[float | None], expected: list[object]) -> None:
    assert list(decide(beside(node), {"n1": readings}).actions) == expected


def test_a_taint_of_another_client_is_not_cruises() -> None:
    foreign = replace(CALM, taints=(Taint("node.kubernetes.io/x", "true", TaintEffect.NO_SCHEDULE),))
    assert decide(beside(foreign), {"n1": [0.1, 0.1]}).actions == ()
    assert build_taint_removals([foreign]) == ()


def test_a_hundred_overloaded_nodes_of_a_hundred_are_not_tainted() -> None:
    nodes = named(CALM, 100)
    assert decide(nodes, {node.name: [3.0, 3.0] for node in nodes}) == NodeLoadDecision((), 100)


def test_of_fifty_overloaded_nodes_a_fifth_of_all_is_tainted_the_most_loaded_first() -> None:
    nodes = named(CALM, 100)
    loads = {node.name: [1.1, 1.0 + number / 100] for number, node in enumerate(nodes[:51]) if number}
    decided = decide(nodes, loads)
    assert [action.node for action in decided.actions] == [f"n{number:03d}" for number in range(50, 30, -1)]
    assert {type(action) for action in decided.actions} == {TaintNode}


@pytest.mark.parametrize(("nodes", "most"), [(2, 1), (4, 1), (9, 1), (10, 2), (100, 20)])
def test_at_least_one_node_may_have_the_taint(nodes: int, most: int) -> None:
    one_more = {f"n{number:03d}": [2.0, 2.0] for number in range(min(most + 1, nodes // 2))}
    assert len(decide(named(CALM, nodes), one_more).actions) == most


def test_the_only_node_is_never_tainted() -> None:
    assert decide([CALM], {"n1": [9.0, 9.0]}) == NodeLoadDecision((), 1)


def test_taints_that_are_there_count() -> None:
    nodes = [*named(TAINTED, 2), *named(CALM, 8, 2)]
    assert decide(nodes, {"n005": [9.0, 9.0], "n000": [1.5, 1.5], "n001": [1.4, 1.4]}).actions == ()


def test_surplus_taints_are_removed_from_the_least_loaded_nodes_first() -> None:
    nodes = named(TAINTED, 10)
    decided = decide(nodes, {node.name: [2.0, 1.1 + number / 100] for number, node in enumerate(nodes[:9])})
    assert decided.overloaded_at_once == 9
    # n009 has no reading: nothing supports its taint.
    assert {action.node for action in decided.actions} == {node.name for node in nodes} - {"n007", "n008"}
    assert {(type(action), action.reason) for action in decided.actions} == {(UntaintNode, ReasonCode.TOO_MANY_TAINTS)}


def test_a_taint_is_kept_for_an_hour_after_its_last_reading() -> None:
    nodes = beside(TAINTED)
    assert decide(nodes, {"n1": [None, None]}, silent=timedelta(minutes=59)).actions == ()
    freed = decide(nodes, {"n1": [None, None]}, silent=timedelta(hours=1)).actions
    assert freed == (UntaintNode("n1", ReasonCode.LOAD_UNKNOWN),)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.INITIAL, Mode.RESIZE])
def test_where_cruise_taints_no_nodes_none_keeps_its_taint(mode: Mode) -> None:
    freed = decide(beside(TAINTED), {"n1": [9.0, 9.0]}, Policy(mode=mode)).actions
    assert freed == (UntaintNode("n1", ReasonCode.TAINTING_DISABLED),)


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.none() | st.floats(0, 50), max_size=2)), min_size=1, max_size=40),
    st.sampled_from([Mode.RESIZE, Mode.FULL]),
)
def test_never_more_than_a_fifth_of_nodes_is_tainted(
    drawn: Sequence[tuple[bool, Sequence[float | None]]], mode: Mode
) -> None:
    nodes = [replace(TAINTED if one else CALM, name=f"n{number:03d}") for number, (one, _) in enumerate(drawn)]
    loads = {node.name: readings for node, (_, readings) in zip(nodes, drawn, strict=True)}
    decided = decide(nodes, loads, Policy(mode=mode))
    tainted = {node.name for node in nodes if node.taints}
    for action in decided.actions:
        assert (action.node in tainted) == isinstance(action, UntaintNode)
        tainted ^= {action.node}
    if mode is Mode.FULL:
        assert len(tainted) <= max(1, len(nodes) // 5)
    # Deciding again changes nothing.
    after = [replace(node, taints=(OVERLOADED_TAINT,) if node.name in tainted else ()) for node in nodes]
    if mode is Mode.FULL:
        assert decide(after, loads).actions == ()


def test_load_is_relative_to_the_cpu_of_the_node() -> None:
    assert compute_relative_load(6.0, CALM) == 1.5
    assert compute_relative_load(None, CALM) is None
    assert compute_relative_load(1.0, Node("empty", Resources())) is None


def test_no_machine_exports_fifty_times_its_cores() -> None:
    assert is_plausible_load(0.0)
    assert is_plausible_load(50.0)
    assert not is_plausible_load(50.1)
    assert not is_plausible_load(-0.1)


@pytest.mark.parametrize(
    ("replicas", "process", "follows"),
    [
        (2, "cruise-serve-a", True),
        # A rolling update or a drain: the only pod is created again.
        (1, "cruise-serve-a", True),
        # Scaled down, or uninstalled.
        (0, "cruise-serve-a", False),
        (None, "cruise-serve-a", False),
        # Not a pod of the cluster.
        (2, "laptop", False),
    ],
)
def test_another_process_takes_over_if_the_workload_has_replicas(
    replicas: int | None, process: str, follows: bool
) -> None:
    pod = make_pod("cruise-serve-a", namespace="cruise", workload=SERVE)
    workloads = {} if replicas is None else {("cruise", SERVE): Workload("cruise", SERVE, replicas)}
    assert has_running_successor(ClusterSnapshot(pods=(pod,), workloads=workloads), "cruise", process) is follows
