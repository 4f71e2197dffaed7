"""The shared environment of the live scenes."""

from tests.e2e.live.conftest import stage

__all__ = ["stage"]
