from dataclasses import replace

from cruise.domain.actions import ResizePod
from cruise.domain.cluster import Container, Pod
from cruise.domain.resources import Amounts
from cruise.runtime.writing.grows import RecentGrows
from tests.simulation.scenes import amounts, resize, resources

ONE, OTHER = object(), object()


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def pod(name: str = "web-1", requests: Amounts | None = None, limits: Amounts | None = None) -> Pod:
    container = Container("app", requests=requests or amounts(100, 128), limits=limits or Amounts())
    return Pod("shop", name, f"uid-{name}", (container,), node="n1")


def grow(name: str = "web-1") -> ResizePod:
    return replace(resize(pod(name), amounts(600, 128)), growth=resources(500, 0), node="n1")


def test_a_grow_counts_where_the_snapshot_may_not_show_it():
    clock = Clock()
    grows = RecentGrows(clock)
    grows.add(ONE, grow())
    assert grows.on_node("n2", clock()) == {}
    [known] = grows.on_node("n1", clock()).values()
    assert (known.by, known.growth) == (ONE, resources(500, 0))
    assert not known.shows_in(pod())
    assert known.shows_in(pod(requests=amounts(600, 128), limits=amounts(None, 256)))
    # A plan begun two minutes later has seen it.
    assert grows.on_node("n1", clock() + 120) == {}


def test_a_grow_that_was_not_done_gives_way_to_the_one_before():
    grows = RecentGrows(Clock())
    first = grows.add(ONE, grow())
    second = grows.add(OTHER, grow())
    assert first is None
    assert second is not None
    grows.put_back(grow(), second)
    assert [known.by for known in grows.on_node("n1", grows.now()).values()] == [ONE]
    grows.put_back(grow(), first)
    assert grows.on_node("n1", grows.now()) == {}


def test_old_grows_are_forgotten():
    clock = Clock()
    grows = RecentGrows(clock)
    grows.add(ONE, grow("a"))
    clock.seconds += 3601
    grows.add(ONE, grow("b"))
    assert list(grows.on_node("n1", 0)) == ["uid-b"]
