import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.original_resources import (
    convert_amounts_to_json,
    format_original_resources,
    parse_original_resources,
)
from cruise.domain.resources import LARGEST_QUANTITY, StatedResources
from tests.builders import make_amounts

numbers = st.none() | st.integers(0, 10**7) | st.integers(0, LARGEST_QUANTITY)
amounts = st.builds(
    StatedResources, numbers.map(lambda n: n if n is None else min(n, LARGEST_QUANTITY // 1000)), numbers
)


def test_the_annotation_is_compact_and_sorted():
    text = format_original_resources(
        {
            "web": (make_amounts(100, 128), make_amounts(None, 256)),
            "app": (make_amounts(2000, None), make_amounts()),
        }
    )
    assert text == (
        '{"app":{"limits":{},"requests":{"cpu":"2"}},'
        '"web":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}}}'
    )


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.tuples(amounts, amounts), max_size=4))
def test_what_is_written_is_read_back(original):
    assert parse_original_resources(format_original_resources(original)) == original


def test_what_people_may_have_written_is_read_too():
    text = json.dumps({"app": {"requests": {"cpu": "0.5", "memory": "1G"}}})
    assert parse_original_resources(text) == {"app": (StatedResources(500, 10**9), StatedResources())}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '"app"', '{"app":[]}', '{"app":{"requests":{"cpu":1}}}', '{"app":{"requests":{"cpu":"1.5Gx"}}}'],
)
def test_anything_else_is_a_value_error(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_original_resources(text)


def test_a_stated_zero_is_written_and_what_is_absent_is_not():
    assert convert_amounts_to_json(StatedResources(0, None)) == {"cpu": "0"}
    assert convert_amounts_to_json(StatedResources()) == {}
