"""The stage of the live scenes, for processes that are tried on it."""

from tests.e2e.live.conftest import stage

__all__ = ["stage"]
