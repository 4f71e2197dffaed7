"""Provisioned requests cut to what a node has: a pod that fits no node would run under some policies only."""

from dataclasses import replace

from cruise.backtest.recordings.recording import Recording
from cruise.domain.resources import Resources


def capped_to(recording: Recording, node: Resources) -> tuple[Recording, int]:
    """Return the recording with no request above a node's allocatable, and how many containers that changed."""
    containers = [
        one if one.requests.fits_in(node) else replace(one, requests=_smaller(one.requests, node))
        for one in recording.containers
    ]
    count = sum(now is not before for now, before in zip(containers, recording.containers, strict=True))
    return (replace(recording, containers=containers) if count else recording), count


def _smaller(one: Resources, other: Resources) -> Resources:
    return Resources(
        min(one.cpu_millicores, other.cpu_millicores),
        min(one.memory_bytes, other.memory_bytes),
    )
