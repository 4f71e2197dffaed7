"""Samples that contradict their node's total: a node of four cores that used 1,000 m."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.decisions.usage.node_totals import find_nodes_with_new_container_peaks, reject_samples_above_node_usage
from cruise.decisions.usage.plausibility import BIT_OF, CheckedSampleBlock, RejectedSample
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import ContainerKey, NodeUsage, SampleBlock, SampleRejectionReason
from tests.builders import make_container, make_pod

NAN = float("nan")
GIBIBYTE = 1024 * MEBIBYTE
START = 1_800_000_000
STEPS = 5


def block(cpu: dict[str, float | list[float]], memory: float | list[float] = 1.0, node: str = "n1") -> SampleBlock:
    """Containers by the names of their pods, with the same memory each."""
    shape = (len(cpu), STEPS)
    use = np.array([np.broadcast_to(one, STEPS) for one in cpu.values()], dtype=np.float32).reshape(shape)
    return SampleBlock(
        keys=[ContainerKey("shop", name, "app") for name in cpu],
        times=START + 60 * np.arange(1, STEPS + 1),
        cpu_demand_millicores=use,
        memory_bytes=np.broadcast_to(np.array(memory, dtype=np.float64), shape).copy(),
        psi_known=np.ones(len(cpu), dtype=np.bool_),
        nodes=[node] * len(cpu),
        cpu_use_millicores=use,
    )


def roots(
    cpu: float | list[float] = 1000.0, memory: float | list[float] = 8.0 * GIBIBYTE, node: str = "n1"
) -> NodeUsage:
    times = START + 60 * np.arange(1, STEPS + 1)
    both = (np.broadcast_to(np.array(one, dtype=np.float64), (1, STEPS)) for one in (cpu, memory))
    return NodeUsage([node], times, *both)


def pods(*blocks: SampleBlock, **fields) -> dict[tuple[str, str], Pod]:
    keys = [key for one in blocks for key in one.keys]
    return {(key.namespace, key.pod): make_pod(key.pod, node="n1", **fields) for key in keys}


def together(*blocks: SampleBlock, use: NodeUsage, known=None) -> list[CheckedSampleBlock]:
    return reject_samples_above_node_usage(
        [CheckedSampleBlock.accept_all(one) for one in blocks], pods(*blocks) if known is None else known, use
    )


def refused(check: CheckedSampleBlock) -> dict[str, list[int]]:
    """The rejected steps by pod."""
    if check.block.rejected is None:
        return {}
    rows = zip(check.block.keys, check.block.rejected, strict=True)
    return {key.pod: np.flatnonzero(row).tolist() for key, row in rows if row.any()}


def test_only_the_container_above_its_whole_node_is_rejected():
    """3,500 m is below the node's four cores, but the node did not use as much."""
    [found] = together(block({"web": [100, 100, 3500, 3500, 100], "db": 900}), use=roots())
    assert refused(found) == {"web": [2, 3]}
    np.testing.assert_array_equal(found.block.cpu_demand_millicores[0], [100, 100, NAN, NAN, 100])
    assert found.counts == {SampleRejectionReason.ABOVE_NODE_USAGE: 2}
    assert found.reasons.tolist() == [BIT_OF[SampleRejectionReason.ABOVE_NODE_USAGE], 0]
    web = ContainerKey("shop", "web", "app")
    assert found.examples == {
        SampleRejectionReason.ABOVE_NODE_USAGE: RejectedSample(web, START + 180, "cpu", 3500, 1.1 * 1000)
    }


def test_if_several_together_exceed_their_node_all_are_rejected():
    first, second = together(block({"web": 800}), block({"db": 700, "idle": NAN}), use=roots())
    assert refused(first) == {"web": [0, 1, 2, 3, 4]}
    assert refused(second) == {"db": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("use", [1000.0, 1100.0])
def test_a_container_may_have_used_all_that_its_node_used(use):
    given = block({"web": use})
    assert together(given, use=roots())[0].block is given


def test_a_late_scrape_does_not_reject_usage_of_the_step_before():
    given = block({"web": [1000, 1900, 100, 1000, 1000]})
    assert together(given, use=roots())[0].counts == {}
    given = block({"web": 1000})
    assert together(given, use=roots([1000, 400, 1600, 1000, 1000]))[0].counts == {}


def test_unknown_node_usage_rejects_nothing():
    given = block({"web": 3500}, 16.0 * GIBIBYTE)
    for use in (roots(NAN, NAN), roots(0.0, 0.0), roots(node="n2")):
        assert together(given, use=use)[0].counts == {}


def test_only_containers_of_pods_on_the_node_are_summed():
    """Series of a deleted pod linger for minutes with its last usage."""
    given = block({"web": 600, "old": 800}, 5.0 * GIBIBYTE)
    running = pods(block({"web": 0}))
    ended = replace(make_pod("old", node="n1"), phase="Succeeded")
    elsewhere = make_pod("old", node="n2")
    first = make_pod("old", node="n1", containers=[make_container("app", role=ContainerRole.INIT)])
    for others in ({}, *({("shop", "old"): one} for one in (ended, elsewhere, first))):
        assert together(given, use=roots(), known=running | others)[0].counts == {}
    assert together(given, use=roots())[0].counts == {SampleRejectionReason.ABOVE_NODE_USAGE: 20}


def test_memory_is_compared_with_what_the_node_held_within_a_step():
    given = block({"web": 10, "db": 10}, [1.0 * GIBIBYTE, 4.2 * GIBIBYTE, 6.0 * GIBIBYTE, 1.0 * GIBIBYTE, GIBIBYTE])
    [found] = together(given, use=roots(memory=[8.0 * GIBIBYTE, 2.0 * GIBIBYTE] + [2.5 * GIBIBYTE] * 3))
    assert refused(found) == {"web": [2], "db": [2]}
    assert np.isnan(found.block.memory_bytes[:, 2]).all()
    np.testing.assert_array_equal(found.block.cpu_demand_millicores, given.cpu_demand_millicores)


def test_a_block_with_fewer_steps_is_compared_at_its_own_times():
    given = block({"web": [100, 100, 100, 100, 5000]})
    short = replace(
        given,
        times=given.times[3:],
        cpu_demand_millicores=given.cpu_demand_millicores[:, 3:],
        cpu_use_millicores=given.cpu_demand_millicores[:, 3:],
        memory_bytes=given.memory_bytes[:, 3:],
    )
    [found] = together(short, use=roots())
    assert refused(found) == {"web": [1]}
    assert found.examples[SampleRejectionReason.ABOVE_NODE_USAGE].at == START + 300


def test_a_node_is_checked_if_a_container_has_a_new_peak():
    given = block({"web": [100, 100, 100, 500, 100]}, 200.0 * MEBIBYTE)
    nothing = np.array([NAN])
    assert find_nodes_with_new_container_peaks(given, np.array([480.0]), np.array([200.0 * MEBIBYTE])) == set()
    assert find_nodes_with_new_container_peaks(given, np.array([450.0]), np.array([200.0 * MEBIBYTE])) == {"n1"}
    assert find_nodes_with_new_container_peaks(given, np.array([480.0]), nothing) == {"n1"}
    assert find_nodes_with_new_container_peaks(block({"web": 90}), nothing, nothing) == set()
    assert find_nodes_with_new_container_peaks(replace(given, nodes=()), nothing, nothing) == set()
