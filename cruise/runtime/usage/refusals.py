"""The samples that were refused: how many and why since the process began, and when, for as long as windows reach."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from cruise.decisions.usage.plausibility import WINDOWS_SECONDS, Judgement, RefusedSample, refused_percent
from cruise.domain.usage import ContainerKey, Refusal, SampleBlock


class Refusals:
    """Few containers have any, so there is room for each from its first on."""

    def __init__(self) -> None:
        self.counts: Counter[Refusal] = Counter()
        self._news: dict[Refusal, tuple[int, RefusedSample]] = {}
        self._times: dict[ContainerKey, set[int]] = {}
        self._reasons: dict[ContainerKey, int] = {}

    def add(self, judgement: Judgement) -> None:
        """Take over what was refused of a block."""
        self.counts.update(judgement.counts)
        for reason, count in judgement.counts.items():
            before, _ = self._news.get(reason, (0, None))
            self._news[reason] = (before + count, judgement.examples[reason])
        self._mark(judgement.block, judgement.reasons.tolist())

    def news(self) -> dict[Refusal, tuple[int, RefusedSample]]:
        """Return how many were refused since the last call, and the latest of each kind."""
        news, self._news = self._news, {}
        return news

    def restore(self, block: SampleBlock) -> None:
        """Take over what had been refused of a block that was stored; why is not known any more."""
        self._mark(block, [0] * len(block.keys))

    def shares(self, at: int, step: int) -> dict[ContainerKey, tuple[int, int]]:
        """Return what was refused of a window up to a time, as (percent, bits of the reasons); older is forgotten."""
        found = {}
        for key, times in list(self._times.items()):
            times = {one for one in times if one > at - max(WINDOWS_SECONDS)}
            if not times:
                del self._times[key]
                self._reasons.pop(key, None)
                continue
            self._times[key] = times
            found[key] = (refused_percent(np.fromiter(times, np.int64), at, step), self._reasons.get(key, 0))
        return found

    def _mark(self, block: SampleBlock, reasons: Iterable[int]) -> None:
        if block.refused is None:
            return
        oldest = int(block.times[-1]) - max(WINDOWS_SECONDS) if len(block.times) else 0
        young = block.times > oldest
        for row, bits in enumerate(reasons):
            marked = block.times[block.refused[row] & young]
            if len(marked):
                key = block.keys[row]
                self._times.setdefault(key, set()).update(marked.tolist())
                self._reasons[key] = self._reasons.get(key, 0) | bits
