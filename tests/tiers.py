"""The tiers of a test run: `--tier core` needs no server, `default` is required for a change, `long` is exhaustive.

A test needs a server where its folder, one of its fixtures or a mark says so, or where its module starts one. What has
the mark `long` is left to that tier: others show the same from another side, or sooner. `beyond_core` is for what takes
seconds, where the tier core shows the same of fewer cases, or where only tests depend on it.
"""

import os
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.postgres_servers import embedded_server
from tests.prometheus_server import running_prometheus

CORE, DEFAULT, LONG = TIERS = ("core", "default", "long")
# The number of examples of a property that does not state its own.
EXAMPLES = {CORE: 25, DEFAULT: 100, LONG: 1000}
# Which part of its seeds a test tries, and how many at least: among fifty drawn clusters is each kind.
SEEDS = {CORE: (0.02, 20), DEFAULT: (0.1, 50), LONG: (1.0, 0)}

SERVER_FOLDERS = tuple(
    Path(__file__).parent / name
    for name in ("adapters", Path("cli", "work", "test_replay.py"), "controlplane", "demo_real", "e2e")
)
SERVER_FIXTURES = frozenset({"control_plane", "day_server", "debian_postgres", "embedded_postgres"})
STARTERS = (embedded_server, running_prometheus)


def add_option(parser: pytest.Parser) -> None:
    """Add the option `--tier`."""
    parser.addoption("--tier", choices=TIERS, default=DEFAULT, help="how much is tried")


def begin(config: pytest.Config) -> None:
    """Settle how many examples are tried, before a test module is read."""
    config.addinivalue_line("markers", "server: needs a server or a process, which the tier core does without")
    config.addinivalue_line("markers", "beyond_core: left to make test, since core has the same of fewer cases")
    config.addinivalue_line("markers", "long: left to the tier long, since a test of the other tiers shows as much")
    config.addinivalue_line("markers", "smoke: enough of a suite for an implementation that others stand for")
    tier = config.getoption("--tier")
    # Shared machines stall at random, so no example has a deadline. CI replays the same examples on every run, which
    # keeps its verdict about the change; runs elsewhere go on searching.
    settings.register_profile(
        tier, deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")), max_examples=EXAMPLES[tier]
    )
    settings.load_profile(tier)
    if os.environ.get("CI"):
        # Hypothesis also draws constants of the project's modules: which examples CI replays would change with any of
        # them, and with the tests that a worker ran before.
        pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda path: False)


def leaves_out(config: pytest.Config, path: Path) -> bool:
    """Return whether nothing below a folder is for the tier, so that its modules need not even be read."""
    return config.getoption("--tier") == CORE and path in SERVER_FOLDERS


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, and leave out what the tier has no place for."""
    for item in items:
        if _needs_server(item):
            item.add_marker("server")
    unwanted = {CORE: ("server", "beyond_core", "long"), DEFAULT: ("long",), LONG: ()}[config.getoption("--tier")]
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in unwanted)]
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


class Seeds(Protocol):
    """Gives the first seeds below a number."""

    def __call__(self, count: int, fewest: int = 0) -> range:
        """Return as many as the tier tries, and no fewer than a test needs."""


def seeds_of(config: pytest.Config) -> Seeds:
    """Return what gives the seeds that a tier tries: all in the tier long, a tenth by default, fewer still in core."""
    share, usual = SEEDS[config.getoption("--tier")]

    def seeds(count: int, fewest: int = 0) -> range:
        return range(max(round(count * share), min(count, max(usual, fewest))))

    return seeds


def is_long(config: pytest.Config) -> bool:
    """Return whether nothing is spared."""
    return bool(config.getoption("--tier") == LONG)


def examples(count: int) -> settings:
    """Settings of a property that tries so many examples where others try a hundred."""
    return settings(max_examples=-(-count * settings().max_examples // 100))


def _needs_server(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    named = vars(item.module)
    return (
        any(item.path.is_relative_to(folder) for folder in SERVER_FOLDERS)
        or not SERVER_FIXTURES.isdisjoint(item.fixturenames)
        or any(named.get(starter.__name__) is starter for starter in STARTERS)
    )
