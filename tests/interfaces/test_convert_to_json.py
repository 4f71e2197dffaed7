from dataclasses import dataclass
from datetime import timedelta

import pytest

from cruise.domain.policy import Mode
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.text import convert_to_camel_case, convert_to_json
from tests.builders import NOW


@dataclass(frozen=True)
class Sample:
    memory_7d_max: int
    mode: Mode
    by_resource: dict[ResourceName, Resources]


def test_values_become_plain_json():
    sample = Sample(3, Mode.FULL, {ResourceName.CPU: Resources(1, 2)})
    assert convert_to_json(sample) == {
        "memory7dMax": 3,
        "mode": "full",
        "byResource": {"cpu": {"cpuMillicores": 1, "memoryBytes": 2}},
    }
    assert convert_to_json((NOW, timedelta(minutes=1), frozenset({"b", "a"}), None, True, 1.5)) == [
        "2026-01-01T12:00:00Z",
        60.0,
        ["a", "b"],
        None,
        True,
        1.5,
    ]


def test_what_has_no_shape_is_refused():
    with pytest.raises(TypeError, match="object cannot be converted to JSON"):
        convert_to_json(object())


def test_names_lose_their_underscores():
    assert convert_to_camel_case("memory_limit_bytes") == "memoryLimitBytes"
