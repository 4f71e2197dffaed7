"""The time line of one node."""

import numpy as np
import pytest

from cruise.backtest.replay.nodes import format_node_name
from cruise.backtest.replay.policy import NO_CONTAINERS, ReplayDecision, ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import NodeTimeLine
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import FixedSizesPolicy, get_placements, sizes

TERMS = ReplayOptions(node=Resources(1000, 1000))
WANTED = ReplayDecision(
    get_placements(0),
    sizes((300, 30, 0)),
    NO_CONTAINERS,
    base=(get_placements(200, 1), get_placements(20, 2)),
    headroom=(get_placements(100, 3), get_placements(10, 4)),
)


def watched(node: str | None, decision: ReplayDecision = WANTED) -> NodeTimeLine:
    cpu = np.array([[100, 700], [150.5, 700], [400, 700], [50, 700]])
    policy = FixedSizesPolicy(sizes((500, 50, 0), (800, 80, 0)), {300: decision})
    line = replay_policy(
        make_recording(cpu, cpu / 10, step_seconds=150, start=150), policy, TERMS, watched_node=node
    ).time_line
    assert line is not None
    return line


def test_an_entry_has_the_requests_and_usage_of_the_interval_that_ends():
    line = watched(None)
    assert (line.node, line.allocatable, line.times.tolist()) == ("node-000", TERMS.node, [300, 600])
    assert line.requested_cpu_millicores.tolist() == [500, 300]
    assert line.requested_memory_bytes.tolist() == [50, 30]
    assert line.peak_cpu_millicores.tolist() == [151, 400]
    assert line.peak_memory_bytes.tolist() == [16, 40]
    found = (line.base_cpu_millicores, line.base_memory_bytes, line.headroom_cpu_millicores, line.headroom_memory_bytes)
    assert [None if one is None else one.tolist() for one in found] == [[0, 200], [0, 20], [0, 100], [0, 10]]


def test_another_node_may_be_watched():
    line = watched("node-001")
    assert line.requested_cpu_millicores.tolist() == [800, 800]
    assert line.base_cpu_millicores is not None and line.base_cpu_millicores.tolist() == [0, 1]


def test_a_policy_without_base_and_headroom_has_none():
    line = watched(None, ReplayDecision(NO_CONTAINERS, sizes(), NO_CONTAINERS))
    assert line.base_cpu_millicores is None and line.headroom_memory_bytes is None


@pytest.mark.parametrize("node", ["node-007", "somewhere", "node-1", "node-"])
def test_a_node_that_never_was_has_zeros(node: str):
    line = watched(node)
    assert line.node == node
    assert line.requested_cpu_millicores.tolist() == line.peak_cpu_millicores.tolist() == [0, 0]


def test_names_keep_their_order_for_a_thousand_nodes():
    assert [format_node_name(0), format_node_name(12), format_node_name(1234)] == [
        "node-000",
        "node-012",
        "node-1234",
    ]
