"""All asked policies over one recording, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.capping import capped_to
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.replay import replay
from cruise.backtest.replay.terms import Terms
from cruise.domain.backtest import BacktestResult, PolicyScore


def backtest(
    recording: Recording,
    policies: Sequence[str],
    terms: Terms,
    *,
    on_progress: Callable[[str, float], None] | None = None,
    watched_node: str | None = None,
) -> BacktestResult:
    """Return the scores of policies, named as in POLICIES, in that order; `on_progress` gets name and share done.

    Provisioned requests above a node's allocatable are cut to it, for all policies.
    """
    recording, capped = capped_to(recording, terms.node)
    scores: dict[str, PolicyScore] = {}
    for name in policies:
        begun = perf_counter()
        progress = None if on_progress is None else partial(on_progress, name)
        score = replay(
            recording, POLICIES[name](recording, terms), terms, watched_node=watched_node, on_progress=progress
        )
        scores[name] = replace(score, seconds=perf_counter() - begun)
    return BacktestResult(
        trace=recording.name,
        containers=len(recording.containers),
        days=recording.days,
        step_seconds=recording.step_seconds,
        node=terms.node,
        policies=scores,
        capped_containers=capped,
    )
