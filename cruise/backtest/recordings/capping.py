"""Requests that no node has room for."""

from dataclasses import replace

from cruise.backtest.recordings.recording import Recording
from cruise.domain.resources import Resources


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
