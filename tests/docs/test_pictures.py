"""The images of the documentation show current decisions."""

import re

import pytest

from scripts.pictures import PICTURES, PLACE


@pytest.mark.parametrize("name", PICTURES)
def test_a_chart_shows_the_present_decisions(name):
    assert (PLACE / name).read_text() == PICTURES[name](), "run make docs-pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_chart_loads_nothing_and_has_a_description(name):
    text = (PLACE / name).read_text()
    assert re.findall(r"(?:href|src|url\()[^>]*", text) == []
    assert re.search(r"<title>[^<]{10,}</title>", text)
