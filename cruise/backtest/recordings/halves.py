"""One half of a recording's containers: rules are tuned on one, and judged on the other."""

from dataclasses import replace
from enum import StrEnum

import numpy as np

from cruise.backtest.recordings.recording import RecordedContainer, Recording
from cruise.errors import BadInput


class Half(StrEnum):
    """Which of the containers, sorted by name: those at even places, counted from zero, or at odd ones."""

    TUNE = "tune"
    REPORT = "report"


def take_half(recording: Recording, half: Half) -> Recording:
    """Return the recording with half of its containers, in the order they had.

    Raises BadInput where none is left.
    """
    in_order = sorted(range(len(recording.containers)), key=lambda at: _name(recording.containers[at]))
    places = np.array(sorted(in_order[0 if half is Half.TUNE else 1 :: 2]), dtype=np.int64)
    if not places.size:
        raise BadInput(f"--half {half.value}: {recording.name} has one series only, and it is in the other half")
    return replace(
        recording,
        containers=tuple(recording.containers[at] for at in places.tolist()),
        cpu_millicores=recording.cpu_millicores[:, places],
        memory_bytes=recording.memory_bytes[:, places],
    )


def _name(container: RecordedContainer) -> tuple[str, str, str]:
    return container.namespace, container.pod, container.container
