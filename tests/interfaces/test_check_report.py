"""Preflight findings at both widths and as JSON."""

import json

import pytest

from cruise.domain.policy import Mode
from cruise.domain.preflight import CheckItem, CheckLevel
from cruise.interfaces.check_report import render_check_json, render_check_table
from tests.builders import NOW
from tests.shown import render_to_text

ITEMS = [
    CheckItem("cluster", "resize", CheckLevel.OK, "v1.36.3 resizes pods in place"),
    CheckItem(
        "rights",
        "RBAC",
        CheckLevel.RED,
        "system:serviceaccount:cruise:cruise-serve may not create pods/eviction, patch nodes",
        "kubectl apply -f deploy/rbac/observe.yaml -f deploy/rbac/initial.yaml -f deploy/rbac/resize.yaml",
    ),
    CheckItem("metrics", "history", CheckLevel.WARN, "samples reach back 1 d or more", "keep 7 days"),
]


@pytest.mark.parametrize("width", [80, 160])
def test_each_item_has_a_line_and_each_shortcoming_its_fix(width):
    text = render_to_text(lambda console: render_check_table(ITEMS, Mode.FULL, console), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert sorted(line.split()[0] for line in text.splitlines() if line[:4].strip() in ("ok", "red", "warn")) == [
        "ok",
        "red",
        "warn",
    ]
    assert "deploy/rbac/observe.yaml" in text
    assert text.endswith("cruise cannot run in mode full: 1 error, 1 warning.\n")


def test_the_summary_is_about_the_mode():
    assert "cruise can run in mode observe, with 1 warning." in render_to_text(
        lambda console: render_check_table(ITEMS[2:], Mode.OBSERVE, console)
    )
    assert "cruise can run in mode initial: all checks passed." in render_to_text(
        lambda console: render_check_table(ITEMS[:1], Mode.INITIAL, console)
    )


def test_the_document_counts_by_level():
    document = json.loads(render_check_json(ITEMS, Mode.FULL, NOW))
    assert (document["mode"], document["ok"], document["warn"], document["red"]) == ("full", 1, 1, 1)
    assert document["items"][1]["area"] == "rights"
    assert set(document["items"][0]) == {"area", "name", "level", "finding", "fix"}
