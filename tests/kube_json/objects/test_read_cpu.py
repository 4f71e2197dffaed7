"""Quantities in objects: the error messages, and values that count as absent."""

import pytest

from cruise.domain.resources import MEBIBYTE, StatedResources
from cruise.errors import BadInputError
from cruise.kube_json.objects.quantities import (
    MAXIMUM_QUANTITY,
    is_extra_resource,
    read_amounts,
    read_cpu,
    read_extended,
    read_memory,
)


def test_numbers_are_accepted_next_to_text():
    assert read_amounts({"cpu": 2, "memory": 1048576}, "requests") == StatedResources(2000, MEBIBYTE)
    assert read_cpu(0.5, "cpu") == 500
    assert read_cpu(1e-05, "cpu") == 1
    assert read_memory(1.5e9, "memory") == 1_500_000_000


def test_null_and_absent_are_absent_and_zero_is_zero():
    assert read_amounts(None, "requests") == StatedResources()
    assert read_amounts({"cpu": None}, "requests") == StatedResources()
    assert read_amounts({"cpu": "0"}, "requests") == StatedResources(0, None)


@pytest.mark.parametrize("value", ["1.5Gx", float("nan"), float("inf"), True])
def test_a_error_names_the_place(value):
    with pytest.raises(
        BadInputError, match=r"^requests\.memory: .* is not a quantity; write e\.g\. 500m, 2 or 1\.5Gi$"
    ):
        read_amounts({"memory": value}, "requests")


@pytest.mark.parametrize("value", ["-1", -1, "-0.1m", -0.5])
def test_negative_amounts_are_rejected(value):
    with pytest.raises(BadInputError, match=r"^requests\.cpu: .* is negative"):
        read_amounts({"cpu": value}, "requests")


def test_amounts_beyond_any_machine_are_capped_so_that_sums_stay_in_64_bits():
    assert read_memory("8Ei", "memory") == MAXIMUM_QUANTITY
    assert 1000 * MAXIMUM_QUANTITY < 1 << 63


def test_what_is_added_up_by_its_name():
    names = [
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "attachable-volumes-csi-x",
        "nvidia.com/gpu",
    ]
    assert [name for name in names if is_extra_resource(name)] == [
        "ephemeral-storage",
        "hugepages-2Mi",
        "nvidia.com/gpu",
    ]


def test_extended_resources_are_counted_whole():
    assert read_extended({"cpu": "1", "nvidia.com/gpu": "2", "example.com/x": None}, "limits") == {"nvidia.com/gpu": 2}
