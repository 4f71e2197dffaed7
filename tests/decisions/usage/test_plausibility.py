"""Implausible samples, with the figures of spoofed series."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.decisions.usage.plausibility import RejectedSample, compute_rejected_percent, reject_implausible_samples
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import ContainerKey, SampleBlock, SampleRejectionReason
from tests.builders import make_amounts, make_container, make_node, make_pod, make_snapshot

NAN = float("nan")
GIBIBYTE = 1024 * MEBIBYTE
APP = ContainerKey("shop", "web-1", "app")
START = 1_800_000_000


def cluster(limit_cpu=None, limit_memory=None, uid="uid-1", **more) -> ClusterSnapshot:
    container = make_container(cpu_limit=limit_cpu, memory_limit_mib=limit_memory, **more)
    node = replace(make_node("n1"), cpu_capacity_millicores=4000, memory_capacity_bytes=8 * GIBIBYTE)
    pod = make_pod(containers=[container])
    return make_snapshot([replace(pod, uid=uid)], [node])


def block(cpu=(), memory=(), use=None, nodes=("n1",), key=APP, refused=None) -> SampleBlock:
    steps = max(len(cpu), len(memory))
    cpu, memory = list(cpu) or [NAN] * steps, list(memory) or [NAN] * steps
    demand = np.array([cpu], dtype=np.float32)
    return SampleBlock(
        keys=[key],
        times=START + 60 * np.arange(1, steps + 1),
        cpu_demand_millicores=demand,
        memory_bytes=np.array([memory], dtype=np.float64),
        psi_known=np.ones(1, dtype=np.bool_),
        nodes=nodes,
        cpu_use_millicores=demand if use is None else np.array([use], dtype=np.float32),
        rejected=refused,
    )


def known(snapshot: ClusterSnapshot) -> UsageBounds:
    """Bounds of a cluster that has not changed since the start."""
    return UsageBounds.create(snapshot, START + 300, UsageBounds.create(snapshot, START))


def test_implausible_samples_do_not_reject_the_plausible_ones():
    found = reject_implausible_samples(block([100, 100, 7500, 7500, 100]), known(cluster()))
    np.testing.assert_array_equal(found.block.cpu_demand_millicores, [[100, 100, NAN, NAN, 100]])
    assert found.block.rejected is not None
    assert found.block.rejected.tolist() == [[False, False, True, True, False]]
    assert found.counts == {SampleRejectionReason.ABOVE_NODE_CAPACITY: 2}
    assert found.examples[SampleRejectionReason.ABOVE_NODE_CAPACITY] == RejectedSample(
        APP, START + 180, "cpu", 7500, 4000
    )


def test_plausible_usage_is_unchanged():
    given = block([100, 3900, NAN, 0, 4000], [8 * GIBIBYTE] * 5)
    assert reject_implausible_samples(given, known(cluster())).block is given


def test_a_late_scrape_with_two_steps_is_capped_at_the_limit():
    found = reject_implausible_samples(block([1000, 700, 1330, 900, 1100]), known(cluster(limit_cpu=1000)))
    np.testing.assert_allclose(found.block.cpu_demand_millicores, [[1000, 700, 1100, 900, 1100]])
    assert (found.counts, found.block.rejected) == ({}, None)


def test_more_than_two_steps_in_one_and_lasting_excess_are_rejected():
    bounds = known(cluster(limit_cpu=1000))
    found = reject_implausible_samples(block([100, 100, 2300, 100, 100]), bounds)
    np.testing.assert_array_equal(found.block.cpu_demand_millicores, [[100, 100, NAN, 100, 100]])
    assert found.counts == {SampleRejectionReason.ABOVE_LIMIT: 1}
    lasting = reject_implausible_samples(block([1900] * 5), bounds)
    assert np.isnan(lasting.block.cpu_demand_millicores).all()


def test_demand_above_a_limit_is_pressure_where_the_use_is_below():
    given = block([1900] * 5, use=[1000] * 5)
    assert reject_implausible_samples(given, known(cluster(limit_cpu=1000))).block is given
    assert (
        reject_implausible_samples(
            replace(given, cpu_use_millicores=None), known(cluster(limit_cpu=1000))
        ).block.rejected
        is None
    )


@pytest.mark.parametrize(("limit", "over"), [(None, 9 * GIBIBYTE), (512, 600 * MEBIBYTE)])
def test_memory_above_the_node_or_the_limit_is_rejected(limit, over):
    found = reject_implausible_samples(
        block(memory=[400 * MEBIBYTE, over, 512 * MEBIBYTE]), known(cluster(limit_memory=limit))
    )
    np.testing.assert_array_equal(found.block.memory_bytes, [[400 * MEBIBYTE, NAN, 512 * MEBIBYTE]])
    assert found.counts == {
        SampleRejectionReason.ABOVE_NODE_CAPACITY if limit is None else SampleRejectionReason.ABOVE_LIMIT: 1
    }


def test_a_working_set_slightly_above_its_limit_is_plausible():
    given = block(memory=[520 * MEBIBYTE])
    assert reject_implausible_samples(given, known(cluster(limit_memory=512))).block is given


def test_a_limit_that_a_resize_changed_in_between_is_the_larger_of_both():
    before, after = cluster(limit_memory=1024), cluster(limit_memory=512)
    bounds = UsageBounds.create(after, START + 300, UsageBounds.create(before, START))
    assert reject_implausible_samples(block(memory=[GIBIBYTE]), bounds).block.rejected is None
    assert reject_implausible_samples(block(memory=[2 * GIBIBYTE]), bounds).counts == {
        SampleRejectionReason.ABOVE_LIMIT: 1
    }


def test_what_the_kubelet_has_not_lowered_yet_is_still_the_limit():
    resizing = cluster(limit_memory=512, actual_limits=make_amounts(None, 1024))
    assert reject_implausible_samples(block(memory=[GIBIBYTE]), known(resizing)).block.rejected is None


def test_a_limit_does_not_apply_before_it_was_seen():
    limited = cluster(limit_memory=512)
    assert (
        reject_implausible_samples(block(memory=[GIBIBYTE]), UsageBounds.create(limited, START + 300)).block.rejected
        is None
    )
    later = UsageBounds.create(limited, START + 300, UsageBounds.create(limited, START + 90))
    found = reject_implausible_samples(block(memory=[GIBIBYTE, GIBIBYTE]), later)
    assert found.block.rejected is not None
    assert found.block.rejected.tolist() == [[False, True]]


def test_a_new_pod_has_its_limit_from_the_start():
    limited = cluster(limit_memory=512, uid="uid-2")
    bounds = UsageBounds.create(limited, START + 300, UsageBounds.create(cluster(), START + 290))
    assert reject_implausible_samples(block(memory=[GIBIBYTE]), bounds).counts == {SampleRejectionReason.ABOVE_LIMIT: 1}


def test_a_former_pod_is_bounded_by_its_node_or_the_largest():
    gone = ContainerKey("shop", "web-0", "app")
    bounds = known(cluster())
    for nodes in (("n1",), ("n0",), ("",), ()):
        assert reject_implausible_samples(block([9000], nodes=nodes, key=gone), bounds).counts == {
            SampleRejectionReason.ABOVE_NODE_CAPACITY: 1
        }
    assert reject_implausible_samples(block([9000], key=gone), known(make_snapshot())).counts == {}


def test_samples_rejected_by_the_source_count_as_disagreement():
    refused = np.array([[False, True, True]])
    found = reject_implausible_samples(block([100, NAN, NAN], refused=refused), known(cluster()))
    assert found.counts == {SampleRejectionReason.SERIES_DISAGREE: 2}
    assert found.examples[SampleRejectionReason.SERIES_DISAGREE] == RejectedSample(APP, START + 120)
    assert found.reasons.tolist() == [4]


def test_the_window_with_the_most_rejections_counts():
    at, step = START, 60
    minutes = np.arange(60) * 60
    assert compute_rejected_percent(at - minutes[:1], at, step) == 10
    assert compute_rejected_percent(at - minutes[:2], at, step) == 20
    assert compute_rejected_percent(at - minutes[10:13], at, step) == 10
    assert compute_rejected_percent(at - minutes[10:14], at, step) == 14
    assert compute_rejected_percent(at - minutes[30:37], at, step) == 12
    assert compute_rejected_percent(at - minutes[60:], at, step) == 0
