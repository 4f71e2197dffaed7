"""The table of annotations: complete, round-trips, described, and the only place with their names."""

import ast
import re
from pathlib import Path

import pytest

from cruise.domain import annotations
from cruise.domain.annotations import (
    ALL_ANNOTATIONS,
    CRUISE_RECORDS,
    DO_NOT_DISRUPT,
    EVICTION_PROTECTION,
    EXCLUDED_LABEL,
    OVERRIDES,
    PLACEMENT_HINT,
    PREFIX,
    OverrideSource,
    UnreadableAnnotations,
    format_placement_hint,
    is_override_annotation,
    is_read_by_decisions,
    parse_placement_hint,
)
from cruise.domain.overrides import parse_overrides

ROOT = Path(__file__).parents[2]
NAMES = {one.name for one in ALL_ANNOTATIONS}


def strings_of(path: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_each_name_is_stated_once_and_only_in_the_table():
    assert len(NAMES) == len(ALL_ANNOTATIONS)
    own = Path(annotations.__file__)
    elsewhere = {
        str(path.relative_to(ROOT)): found
        for path in (ROOT / "cruise").rglob("*.py")
        if path != own and (found := strings_of(path) & NAMES)
    }
    assert elsewhere == {}


def test_the_readme_describes_every_override_and_who_may_set_it():
    readme = (ROOT / "README.md").read_text()
    for setting, override in OVERRIDES.items():
        assert f"`{setting}`" in readme or f"`{PREFIX}{setting}`" in readme, setting
        assert override.allowed_sources == (
            OverrideSource.POD,
            OverrideSource.WORKLOAD,
            OverrideSource.NAMESPACE,
        )


@pytest.mark.parametrize(
    ("setting", "texts"),
    [
        ("mode", ["off", "observe", "initial", "resize", "full"]),
        ("eviction-ranking", ["low", "medium", "high", "never"]),
        ("resources", ["cpu", "memory", "cpu,memory"]),
        ("headroom-factor", ["0", "1.5", "10", "0.12345678"]),
        ("cpu-min", ["100m", "2"]),
        ("cpu-max", ["100m", "2"]),
        ("memory-min", ["257Mi", "2Gi", "0"]),
        ("memory-max", ["257Mi", "2Gi", "16777217"]),
    ],
)
def test_what_is_written_is_read_back(setting: str, texts: list[str]):
    override = OVERRIDES[setting]
    assert [override.write(override.read(text)) for text in texts] == texts


SLIPS = {
    "cpu-min": ["0.5m", "9m", "512Mi", "1e9", "-1", "1k0"],
    "cpu-max": ["0", "0.5m", "5m", "1Gi", "500n"],
    "memory-min": ["512m", "512", "15Mi", "1", "2Ei", "-1Gi"],
    "memory-max": ["0", "512m", "512", "500k", "100E", "1Gb"],
    "headroom-factor": ["-1", "11", "100", "150%", "nan", "inf"],
}


@pytest.mark.parametrize(("setting", "text"), [(setting, text) for setting, texts in SLIPS.items() for text in texts])
def test_what_cannot_be_meant_is_rejected_with_the_text(setting: str, text: str):
    with pytest.raises(ValueError, match=re.escape(f'"{text}"')):
        OVERRIDES[setting].read(text)


@pytest.mark.parametrize(
    ("setting", "text", "amount"),
    [
        ("cpu-min", "0", 0),
        ("memory-min", "0", 0),
        ("cpu-min", "10m", 10),
        ("memory-max", "16Mi", 16 << 20),
        ("memory-max", "536870912000m", 512 << 20),
        ("cpu-max", "2000", 2_000_000),
    ],
)
def test_what_can_be_meant_is_read(setting: str, text: str, amount: int):
    assert OVERRIDES[setting].read(text) == amount


@pytest.mark.parametrize(("text", "excluded"), [("true", True), ("True", True), (" TRUE ", True), ("false", False)])
def test_an_exclusion_is_read_however_it_is_written(text: str, excluded: bool):
    assert EXCLUDED_LABEL.read(text) is excluded


@pytest.mark.parametrize("text", ["yes", "1", "on", ""])
def test_an_exclusion_that_is_neither_true_nor_false_is_unreadable(text: str):
    found = parse_overrides({EXCLUDED_LABEL.name: text})
    assert isinstance(found, UnreadableAnnotations)
    assert EXCLUDED_LABEL.name in found.detail


def test_a_pod_with_a_placement_hint_names_the_replaced_pod_and_the_node():
    assert parse_placement_hint(format_placement_hint(("uid-1", "n1"))) == ("uid-1", "n1")


@pytest.mark.parametrize(
    ("name", "protecting", "other"),
    [("cluster-autoscaler.kubernetes.io/safe-to-evict", ["false", "False"], ["true", ""])]
    + [(name, ["true", "10m", ""], ["false"]) for name in DO_NOT_DISRUPT],
)
def test_protective_annotations(name: str, protecting: list[str], other: list[str]):
    [one] = [one for one in EVICTION_PROTECTION if one.name == name]
    assert [one.read(text) for text in [*protecting, *other]] == [True] * len(protecting) + [False] * len(other)


def test_decisions_keep_overrides_and_eviction_protection_and_ignore_records():
    kept = {one.name for one in ALL_ANNOTATIONS if is_read_by_decisions(one.name)}
    assert kept >= {
        *(one.name for one in EVICTION_PROTECTION),
        *(one.name for one in OVERRIDES.values()),
        EXCLUDED_LABEL.name,
    }
    assert is_read_by_decisions(f"{PREFIX}mdoe")
    assert is_override_annotation(f"{PREFIX}mdoe")
    assert PLACEMENT_HINT in kept
    assert not any(is_override_annotation(name) for name in CRUISE_RECORDS)
    assert not is_read_by_decisions("example.com/other")
