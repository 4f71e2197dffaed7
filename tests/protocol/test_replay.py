"""Random runs of the model, replayed on the simulated cluster with the real passes and the real writer."""

from collections import Counter
from pathlib import Path

import pytest

from tests.protocol.replaying import Differs, Replay
from tests.protocol.spin import WHY_NOT, Event, random_run
from tests.tiers import Seeds

pytestmark = [pytest.mark.server, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

SIZE = ("TERMS=3", "PLANS=9", "FAULTS=4", "BUSY")
RUNS = 1000
# Words of the model that the runs of the smallest tier have to show.
SHOWN = {"acquire", "expire", "crash", "tick", "pause", "restore", "lost", "rise", "kill", "guest", "react", "skip"}
# Rare, so that only a hundred runs show it.
SHOWN_IN_MANY = {"infeasible", "deferred"}


async def test_the_code_does_what_the_model_does(tmp_path: Path, seeds: Seeds):
    words, counts = Counter[str](), Counter[str]()
    for seed in seeds(RUNS):
        events = random_run(tmp_path, seed + 1, (*SIZE, f"ODD={1 + seed % 3}"))
        replay = Replay()
        try:
            await replay.play(events)
        except AssertionError as error:
            error.add_note(f"run {seed + 1}")
            raise
        words.update(event.word for event in events)
        counts.update(replay.counts)
    print(f"{dict(counts)}: {dict(words)}")
    assert words.keys() >= (SHOWN | SHOWN_IN_MANY if len(seeds(RUNS)) >= 100 else SHOWN)
    assert counts["writes"] > len(SHOWN)


async def test_a_model_that_does_something_else_is_noticed(tmp_path: Path):
    events = [Event("acquire", ("0",)), Event("plan", ("0", "37", "2", "6", "1"))]
    with pytest.raises(Differs, match="in the model 6 units"):
        await Replay().play(events)
