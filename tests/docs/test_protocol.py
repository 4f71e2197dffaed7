"""The pages on the write protocol name the test of every fault, and tests that exist."""

import re

from scripts.site import ROOT

PROTOCOL = ROOT / "docs" / "protocol"


def first_column(page: str, heading: str) -> list[str]:
    """The first cells of the table whose first heading is given."""
    text = (PROTOCOL / page).read_text()
    [table] = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [line.split("|")[1].strip() for line in table.splitlines()]


def test_every_fault_has_a_test():
    assert first_column("checking.md", "fault") == first_column("README.md", "fault")


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (PROTOCOL / "checking.md").read_text())
    assert len(named) >= len(first_column("README.md", "fault"))
    missing = [one for one in named if f"def {one[1]}(" not in (ROOT / one[0]).read_text()]
    assert missing == []
