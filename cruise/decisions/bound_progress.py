"""How far a policy has come from VPA's slack to the clairvoyant's, who knows the future of each node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cruise.domain.backtest import PolicyScore

START, BOUND = "vpa", "clairvoyant"


@dataclass(frozen=True, slots=True)
class BoundProgress:
    """Shares of the way for CPU and memory slack: 0 is VPA's slack, 1 the clairvoyant's; None where not known."""

    cpu: float | None
    memory: float | None


def bound_progress(policies: Mapping[str, PolicyScore]) -> Mapping[str, BoundProgress]:
    """Return each policy's (vpa - slack) / (vpa - clairvoyant); empty where one of the two was not replayed.

    A resource has no progress where the clairvoyant leaves no less unused than VPA.
    """
    start, bound = policies.get(START), policies.get(BOUND)
    if start is None or bound is None:
        return {}

    def share(score: PolicyScore, slack: Callable[[PolicyScore], float | None]) -> float | None:
        at, of, to = slack(score), slack(start), slack(bound)
        return (of - at) / (of - to) if at is not None and of is not None and to is not None and of > to else None

    return {name: BoundProgress(share(score, _cpu), share(score, _memory)) for name, score in policies.items()}


def _cpu(score: PolicyScore) -> float | None:
    return score.cpu.relative_slack


def _memory(score: PolicyScore) -> float | None:
    return score.memory.relative_slack if score.memory is not None else None
