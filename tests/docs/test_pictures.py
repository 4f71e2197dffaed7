"""The pictures of the documentation show what cruise decides now."""

import re

import pytest

from scripts.pictures import PICTURES, PLACE


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_decided_now(name):
    assert (PLACE / name).read_text() == PICTURES[name](), "run make docs-pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_fetches_nothing_and_says_what_it_shows(name):
    text = (PLACE / name).read_text()
    assert re.findall(r"(?:href|src|url\()[^>]*", text) == []
    assert re.search(r"<title>[^<]{10,}</title>", text)
