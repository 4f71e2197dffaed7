"""The tables belong to the version of kube-scheduler that the other tests run."""

import re

import pytest

from tests.controlplane import binaries
from tests.scheduler_tables import building


def version_in(text: str) -> str:
    """The Kubernetes version that a go.mod requires."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", text)
    assert found is not None
    return found[1]


def test_the_version_is_the_control_planes():
    own, others = ((place / "go.mod").read_text() for place in (building.MODULE, binaries.MODULE))
    assert version_in(own) == version_in(others)


def test_what_is_not_built_is_said_and_not_built_by_tests(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setattr(building, "go_program", lambda: "go")
    monkeypatch.setattr(building, "run_go", lambda command: "go1.99.0")
    monkeypatch.setattr(building, "CACHE", tmp_path / "cache")
    with pytest.raises(binaries.NotAvailable, match=r"50-scheduler-tables\.sh builds them"):
        building.verdicts()
    assert not (tmp_path / "cache").exists()
