"""Whether figures that were read elsewhere can be those of the kubelets.

A counter only grows: what was shown before the kubelet was asked is no more than it told, and what is shown later is no
less. How much memory a container has changes; what the kubelet told has to be near what was shown around that time.
"""

import numpy as np

from cruise.domain.cross_check import CrossCheck, Disagreement, NodeTold
from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock

SLACK_SECONDS = 1.0
# A scrape may show what cAdvisor had measured a while before, and a step may show the scrape before.
APART_SECONDS = 120
MEMORY_SHARE = 0.25
MEMORY_SLACK_BYTES = 64 * 2**20


def compare_counters(told: NodeTold, tail: CounterTail, step_seconds: int, into: CrossCheck) -> None:
    """Compare what was shown up to the tail's time with what a kubelet told, of the containers that both know."""
    row_of = {(key, series): row for row, (key, series) in enumerate(zip(told.keys, told.series, strict=True))}
    wanted = set(told.keys)
    before, after = tail.at <= told.at, tail.at - told.at >= APART_SECONDS + step_seconds
    if not (before or after):
        return
    for place, key in enumerate(tail.keys):
        if key not in wanted:
            continue
        row = row_of.get((key, tail.series[place]))
        shown = float(tail.cpu_seconds[place])
        if row is None or np.isnan(shown) or np.isnan(told.cpu_seconds[row]):
            continue
        known = float(told.cpu_seconds[row])
        into.compared.add(key)
        # A counter that has begun anew since, under the same id, says nothing of before.
        behind = after and known - SLACK_SECONDS > shown > known / 2
        if (before and shown > known + SLACK_SECONDS) or behind:
            into.disagreements[key] = Disagreement(told.node, "cpu", shown, known)


def compare_memory(told: NodeTold, block: SampleBlock, into: CrossCheck) -> None:
    """Compare the memory that a kubelet told with what was shown within two minutes of it."""
    near = np.flatnonzero(np.abs(block.times - told.at) <= APART_SECONDS)
    if not len(near):
        return
    row_of = {key: row for row, key in enumerate(block.keys)}
    known: dict[ContainerKey, float] = {}
    for key, memory in zip(told.keys, told.memory_bytes.tolist(), strict=True):
        # Of an id that is over and the one that runs now the larger counts, as it does elsewhere.
        known[key] = float(np.fmax(memory, known.get(key, np.nan)))
    for key, memory in known.items():
        row = row_of.get(key)
        shown = np.full(1, np.nan) if row is None else block.memory_bytes[row, near]
        if np.isnan(memory) or np.isnan(shown).all():
            continue
        low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
        into.compared.add(key)
        slack = MEMORY_SLACK_BYTES + MEMORY_SHARE * memory
        if memory > high + slack or memory < low - slack:
            into.disagreements.setdefault(key, Disagreement(told.node, "memory", high, memory))
