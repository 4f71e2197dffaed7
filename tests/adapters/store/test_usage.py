"""Samples and counters are unpacked to the same bits that were packed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cruise.adapters.store.usage import (
    deserialize_counter_tail,
    deserialize_sample_block,
    serialize_counter_tail,
    serialize_sample_block,
)
from cruise.domain.usage import ContainerKey, PartitionCounterTail, SampleBlock

sizes = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(sizes=sizes, data=st.data())
def test_unpacks_a_block_to_the_same_bits(sizes, data):
    containers, steps = sizes
    block = SampleBlock(
        keys=[ContainerKey("shop", f"wéb-{number}", "app") for number in range(containers)],
        times=data.draw(arrays.arrays(np.int64, steps)),
        cpu_demand_millicores=data.draw(arrays.arrays(np.float32, sizes)),
        memory_bytes=data.draw(arrays.arrays(np.float64, sizes)),
        psi_known=data.draw(arrays.arrays(np.bool_, containers)),
    )
    unpacked = deserialize_sample_block(serialize_sample_block(block))
    assert list(unpacked.keys) == block.keys
    for name in ("times", "cpu_demand_millicores", "memory_bytes", "psi_known"):
        left, right = getattr(block, name), getattr(unpacked, name)
        assert (right.dtype, right.shape, right.tobytes()) == (left.dtype, left.shape, left.tobytes())


@given(series=st.lists(st.text(max_size=5), max_size=5), data=st.data())
def test_unpacks_counters_to_the_same_bits(series, data):
    counters = arrays.arrays(np.float64, len(series))
    keys = [ContainerKey("a", "b", "c")] * len(series)
    changed_at = data.draw(arrays.arrays(np.int64, len(series)))
    tail = PartitionCounterTail(7, keys, series, data.draw(counters), data.draw(counters), changed_at)
    unpacked = deserialize_counter_tail(serialize_counter_tail(tail))
    assert (unpacked.at, list(unpacked.keys), list(unpacked.series)) == (tail.at, tail.keys, tail.series)
    assert unpacked.cpu_seconds.tobytes() == tail.cpu_seconds.tobytes()
    assert unpacked.cpu_waiting_seconds.tobytes() == tail.cpu_waiting_seconds.tobytes()
    assert unpacked.changed_at.tobytes() == tail.changed_at.tobytes()


def test_packs_the_values_of_a_matrix_that_is_not_contiguous():
    matrix = np.arange(12, dtype=np.float64).reshape(3, 4).T
    block = SampleBlock(
        keys=[ContainerKey("a", "b", str(number)) for number in range(4)],
        times=np.arange(3, dtype=np.int64),
        cpu_demand_millicores=matrix.astype(np.float32),
        memory_bytes=matrix,
        psi_known=np.ones(4, dtype=np.bool_),
    )
    np.testing.assert_array_equal(deserialize_sample_block(serialize_sample_block(block)).memory_bytes, matrix)
