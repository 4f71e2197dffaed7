"""Event loops: the listener is also tested on the loop that the programs use in production."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops on which a test runs."""
    usual = {"asyncio": asyncio.new_event_loop}
    return usual | {"uvloop": uvloop.new_event_loop} if item.path.stem.startswith("test_http") else usual
