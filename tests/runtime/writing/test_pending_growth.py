from dataclasses import replace

from cruise.domain.actions import ResizePod
from cruise.domain.cluster import Container, Pod
from cruise.domain.resources import StatedResources
from cruise.runtime.writing.evictions import PendingGrowths
from tests.simulation.scenes import amounts, resize, resources

ONE, OTHER = object(), object()


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def pod(name: str = "web-1", requests: StatedResources | None = None, limits: StatedResources | None = None) -> Pod:
    container = Container("app", requests=requests or amounts(100, 128), limits=limits or StatedResources())
    return Pod("shop", name, f"uid-{name}", (container,), node="n1")


def grow(name: str = "web-1") -> ResizePod:
    return replace(resize(pod(name), amounts(600, 128)), growth=resources(500, 0), node="n1")


def test_a_grow_counts_where_the_snapshot_may_not_show_it():
    clock = Clock()
    grows = PendingGrowths(clock)
    grows.add(ONE, grow())
    assert grows.get_on_node("n2", clock()) == {}
    [known] = grows.get_on_node("n1", clock()).values()
    assert (known.plan_run, known.growth) == (ONE, resources(500, 0))
    assert not known.is_visible_in(pod())
    assert known.is_visible_in(pod(requests=amounts(600, 128), limits=amounts(None, 256)))
    # A plan begun two minutes later has seen it.
    assert grows.get_on_node("n1", clock() + 120) == {}


def test_a_growth_that_failed_is_replaced_by_the_earlier_one():
    grows = PendingGrowths(Clock())
    first = grows.add(ONE, grow())
    second = grows.add(OTHER, grow())
    assert first is None
    assert second is not None
    grows.restore(grow(), second)
    assert [known.plan_run for known in grows.get_on_node("n1", grows.get_current()).values()] == [ONE]
    grows.restore(grow(), first)
    assert grows.get_on_node("n1", grows.get_current()) == {}


def test_old_grows_are_forgotten():
    clock = Clock()
    grows = PendingGrowths(clock)
    grows.add(ONE, grow("a"))
    clock.seconds += 3601
    grows.add(ONE, grow("b"))
    assert list(grows.get_on_node("n1", 0)) == ["uid-b"]
