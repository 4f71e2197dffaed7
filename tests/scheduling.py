"""Distribution of tests over workers: by file, to share fixtures, or single tests that mostly wait."""

from collections.abc import Iterable, Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Their fixtures are a worker's or a test's own, so that nothing is made twice; but for those files that share a stage.
ONE_BY_ONE = (
    "tests/adapters/kube/leading/",
    "tests/e2e/live/",
    "tests/e2e/test_serve",
    "tests/e2e/test_webhook",
    "tests/fuzz/",
)
TOGETHER = ("tests/e2e/live/test_scene_check.py", "tests/e2e/live/test_scene_commands.py")
# What takes longest begins first.
FIRST = ("e2e", "demo_real", "fuzz", "adapters")


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Files in the order of the collection, and the tests of some by themselves."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """Return what a worker takes at once: the test, or its file."""
    alone = nodeid.startswith(ONE_BY_ONE) and not nodeid.startswith(TOGETHER)
    return nodeid if alone else nodeid.partition("::")[0]


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes longest first; where workers share the tests, spread those that compute evenly among the others.

    The order within a file stays.
    """
    with_servers = {item.path for item in items if item.get_closest_marker("server")}

    def turn(item: pytest.Item) -> int:
        folders = item.path.relative_to(config.rootpath).parts
        return next((place for place, name in enumerate(FIRST) if name in folders), len(FIRST))

    waiting = sorted((item for item in items if item.path in with_servers), key=turn)
    computing = [item for item in items if item.path not in with_servers]
    items[:] = spread(units(waiting), units(computing)) if hasattr(config, "workerinput") else waiting + computing


def units(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests by what a worker takes at once, in the order of each one's first."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(unit_of(item.nodeid), []).append(item)
    return list(found.values())


def spread(*kinds: Sequence[Sequence[pytest.Item]]) -> list[pytest.Item]:
    """Return all tests in such an order that units of each kind are as frequent in the beginning as in the end."""
    placed = [((place + 0.5) / len(kind), unit) for kind in kinds for place, unit in enumerate(kind)]
    return [item for _, unit in sorted(placed, key=lambda one: one[0]) for item in unit]
