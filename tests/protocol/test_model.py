"""The model of the write protocol keeps its laws in every state, and each seeded bug breaks one."""

from pathlib import Path

import pytest

from tests.protocol.spin import PACKING_MODEL, WHY_NOT, check

# spin compiles and runs programs of its own.
pytestmark = [pytest.mark.server, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

RISE, KILL, GUEST = "ODD=1", "ODD=2", "ODD=3"


@pytest.mark.parametrize(
    "defines",
    [
        ("FAULTS=1",),
        *(("FAULTS=2", odd) for odd in (RISE, KILL, GUEST)),
        ("FAULTS=2", "POLICY", RISE),
        *(
            pytest.param(defines, marks=pytest.mark.long)
            for defines in (
                ("FAULTS=2", "POLICY"),
                ("FAULTS=2", "TERMS=3"),
                ("FAULTS=3", "TERMS=3", RISE),
                ("FAULTS=3", GUEST),
                # Three leaders in turn, with passes to shrink, grow and grow again, and a node that is full then.
                ("FAULTS=2", "TERMS=3", "PLANS=4", KILL),
                ("FAULTS=2", "TERMS=3", "PLANS=5", "CAP=12", RISE),
            )
        ),
    ],
    ids=" ".join,
)
def test_no_run_breaks_a_law(tmp_path: Path, defines: tuple[str, ...]):
    found = check(tmp_path, defines)
    print(f"{' '.join(defines)}: {found.states} states, depth {found.depth}, {found.seconds} s")
    assert (found.broken, found.complete) == (None, True)
    assert found.states > 50_000


@pytest.mark.parametrize(
    "defines",
    [
        ("FAULTS=2", "TERMS=3"),
        *(
            pytest.param(defines, marks=pytest.mark.long)
            for defines in (("FAULTS=3", "TERMS=3", "GROWS=2"), ("FAULTS=3", "TERMS=4", "PLANS=3"))
        ),
    ],
    ids=" ".join,
)
def test_no_run_of_a_packing_plan_breaks_a_law(tmp_path: Path, defines: tuple[str, ...]):
    found = check(tmp_path, defines, model=PACKING_MODEL)
    print(f"packing plan, {' '.join(defines)}: {found.states} states, depth {found.depth}, {found.seconds} s")
    assert (found.broken, found.complete) == (None, True)
    assert found.states > 50_000


def test_every_packing_plan_ends_in_runs_of_any_length(tmp_path: Path):
    found = check(tmp_path, ("LIVE", "FAULTS=1"), "plan_ends", model=PACKING_MODEL)
    print(f"plan_ends: {found.states} states, depth {found.depth}, {found.seconds} s")
    assert (found.broken, found.complete) == (None, True)
    assert found.states > 10_000


@pytest.mark.parametrize("claim", ["plans_end", "pause_rests"])
def test_plans_end_and_a_pause_rests_in_runs_of_any_length(tmp_path: Path, claim: str):
    found = check(tmp_path, ("LIVE", "FAULTS=1"), claim)
    print(f"{claim}: {found.states} states, depth {found.depth}, {found.seconds} s")
    assert (found.broken, found.complete) == (None, True)
    assert found.states > 50_000


def test_a_pause_that_is_not_heeded_breaks_a_law(tmp_path: Path):
    assert check(tmp_path, ("FAULTS=1", "DEAF")).broken == "law_pause"
