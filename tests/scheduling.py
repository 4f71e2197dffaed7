"""What a worker takes next: a file, whose fixtures are then made once, or one test of those that mostly wait."""

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Their fixtures are a worker's or a test's own, so that nothing is made twice.
ONE_BY_ONE = ("tests/adapters/kube/leading/", "tests/e2e/live/", "tests/e2e/test_serve", "tests/e2e/test_webhook")
# Who waits longest begins first, and what only computes fills up the end.
FIRST = ("e2e", "adapters")


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Files in the order of the collection, and the tests of some by themselves."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what waits longest first, and files without servers last; the order within a folder stays."""
    with_servers = {item.path for item in items if item.get_closest_marker("server")}

    def turn(item: pytest.Item) -> int:
        folders = item.path.relative_to(config.rootpath).parts
        others = len(FIRST) + (item.path not in with_servers)
        return next((place for place, name in enumerate(FIRST) if name in folders), others)

    items.sort(key=turn)
