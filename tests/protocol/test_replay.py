"""Random runs of the model, replayed on the simulated cluster with the real passes and the real writer."""

from collections import Counter
from pathlib import Path

import pytest

from tests.protocol.replaying import Differs, Replay
from tests.protocol.replaying_plans import PackingReplay
from tests.protocol.spin import PACKING_MODEL, WHY_NOT, Event, random_run
from tests.tiers import Seeds

pytestmark = [pytest.mark.server, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

SIZE = ("TERMS=3", "PLANS=9", "FAULTS=4", "BUSY")
PACKING_SIZE = ("TERMS=6", "PLANS=3", "GROWS=3", "WAITS=3", "FAULTS=5", "BUSY")
RUNS = 1000
# Words of the model that the runs of the smallest tier have to show.
SHOWN = {"acquire", "expire", "crash", "tick", "pause", "restore", "lost", "rise", "kill", "guest", "react", "skip"}
# Rare, so that only a hundred runs show it.
SHOWN_IN_MANY = {"infeasible", "deferred"}
PACKING_SHOWN = {"acquire", "expire", "crash", "lost", "pack", "bind", "gone", "grow", "age", "abort"} | {
    f"step {choice}" for choice in range(5)
}
PACKING_SHOWN_IN_MANY = {"infeasible", "skip", "drop"}


async def test_the_code_does_what_the_model_does(tmp_path: Path, seeds: Seeds):
    words, counts = Counter[str](), Counter[str]()
    for seed in seeds(RUNS):
        events = random_run(tmp_path, seed + 1, (*SIZE, f"ODD={1 + seed % 3}"))
        counts.update(await replayed(Replay(), events, seed))
        words.update(event.word for event in events)
    print(f"{dict(counts)}: {dict(words)}")
    assert words.keys() >= (SHOWN | SHOWN_IN_MANY if len(seeds(RUNS)) >= 100 else SHOWN)
    assert counts["writes"] > len(SHOWN)


async def test_the_code_does_what_the_model_of_packing_plans_does(tmp_path: Path, seeds: Seeds):
    words, counts = Counter[str](), Counter[str]()
    for seed in seeds(RUNS, fewest=50):
        events = random_run(tmp_path, seed + 1, PACKING_SIZE, model=PACKING_MODEL)
        counts.update(await replayed(PackingReplay(), events, seed))
        words.update(f"step {one.arguments[1]}" if one.word == "step" else one.word for one in events)
    print(f"packing plans: {dict(counts)}: {dict(words)}")
    many = len(seeds(RUNS, fewest=50)) >= 100
    assert words.keys() >= (PACKING_SHOWN | PACKING_SHOWN_IN_MANY if many else PACKING_SHOWN)


async def replayed(replay: Replay, events: tuple[Event, ...], seed: int) -> dict[str, int]:
    """Play a run, and return its counts; name it if it differs."""
    try:
        await replay.play(events)
    except AssertionError as error:
        error.add_note(f"run {seed + 1}")
        raise
    return replay.counts


async def test_a_model_that_does_something_else_is_noticed(tmp_path: Path):
    events = [Event("acquire", ("0",)), Event("plan", ("0", "37", "2", "6", "1"))]
    with pytest.raises(Differs, match="in the model 6 units"):
        await Replay().play(events)
