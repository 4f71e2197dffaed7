"""Let the time of an event loop pass at once, so that a test of a deadline does not depend on how fast it runs."""

import asyncio

import pytest


def advance_loop_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock of the running event loop ahead: whatever waits for less is due in its next turn."""
    loop = asyncio.get_running_loop()
    earlier_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: earlier_time() + seconds)
