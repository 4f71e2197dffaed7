"""The fast replacement of fields equals `dataclasses.replace`."""

from dataclasses import replace

import pytest

from cruise.domain.cluster import Container, Pod, QosClass
from cruise.domain.pod_resources import create_fast_replace
from tests.builders import make_amounts, make_container, make_pod


def test_the_copy_is_the_one_that_the_standard_library_makes():
    pod = make_pod(containers=(make_container(restart_count=3),), labels={"a": "b"})
    containers = (make_container("other"),)
    assert create_fast_replace(Pod, "containers", "qos")(pod, containers, QosClass.GUARANTEED) == replace(
        pod, containers=containers, qos=QosClass.GUARANTEED
    )
    container = make_container(restart_count=3)
    limits = make_amounts(1, 2)
    assert create_fast_replace(Container, "limits")(container, limits) == replace(container, limits=limits)


def test_an_unknown_field_and_a_value_too_many_are_rejected():
    with pytest.raises(ValueError, match="sizes"):
        create_fast_replace(Pod, "sizes")
    with pytest.raises(ValueError, match="zip"):
        create_fast_replace(Container, "limits")(make_container(), make_amounts(1, 2), 7)
