"""Some policies over one recording, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import Judgement, ReplayOptions
from cruise.backtest.replay.replay import replay
from cruise.domain.backtest import BacktestResult, PolicyScore
from cruise.domain.resources import Resources


def backtest(
    recording: Recording,
    policies: Sequence[str],
    options: ReplayOptions,
    *,
    on_progress: Callable[[str, float], None] | None = None,
    watched_node: str | None = None,
) -> BacktestResult:
    """Return the scores of policies, named as in POLICIES, in that order; `on_progress` gets name and share done.

    Each is replayed twice, as consolidation may judge in two ways. Provisioned requests above a node's allocatable are
    cut to it, for all policies.
    """
    recording, capped = capped_to(recording, options.node)
    scores: dict[str, PolicyScore] = {}
    for name in policies:
        begun = perf_counter()
        progress = _unheard if on_progress is None else partial(on_progress, name)
        score = _both_ways(recording, name, options, watched_node, progress)
        scores[name] = replace(score, seconds=perf_counter() - begun)
    return BacktestResult(
        trace=recording.name,
        containers=len(recording.containers),
        days=recording.days,
        step_seconds=recording.step_seconds,
        node=options.node,
        policies=scores,
        capped_containers=capped,
    )


def _both_ways(
    recording: Recording, name: str, options: ReplayOptions, watched_node: str | None, progress: Callable[[float], None]
) -> PolicyScore:
    replays = 1 + options.both_judgements
    score = replay(
        recording,
        POLICIES[name](recording, options),
        options,
        watched_node=watched_node,
        on_progress=lambda share: progress(share / replays),
    )
    if not options.both_judgements:
        return score
    if score.nodes_peak == 1:
        # A single node cannot be emptied, however that is judged.
        again = score
        progress(1.0)
    else:
        again = replay(
            recording,
            POLICIES[name](recording, options),
            options,
            judgement=Judgement.REQUESTS,
            on_progress=lambda share: progress((1 + share) / replays),
        )
    return replace(score, nodes_mean_by_requests=again.nodes_mean, moves_by_requests=again.moves_per_1000_pod_days)


def _unheard(share: float) -> None:
    """Take in progress that is of no interest."""


def capped_to(recording: Recording, node: Resources) -> tuple[Recording, int]:
    """Return the recording with no request above a node's allocatable, and how many containers that changed.

    Under some policies a pod that fits no node would run, under others not.
    """
    containers = [
        one if one.requests.fits_in(node) else replace(one, requests=one.requests.at_most(node))
        for one in recording.containers
    ]
    count = sum(now is not before for now, before in zip(containers, recording.containers, strict=True))
    return (replace(recording, containers=containers) if count else recording), count
