"""The eviction order, and which marks are undone."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.eviction.ranking import (
    EvictionCandidate,
    EvictionDecision,
    EvictionDecisionOptions,
    EvictionMark,
    decide_evictions,
    rank_for_eviction,
)
from cruise.domain.policy import EvictionRanking
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources

BOTH = frozenset(ResourceName)
TOGETHER = EvictionDecisionOptions(check_each_resource_alone=False)


def candidate(
    name: str,
    *,
    base: tuple[int, int] = (100, 100),
    headroom: tuple[int, int] = (0, 0),
    ranking: EvictionRanking = EvictionRanking.LOW,
    evictable_for: frozenset[ResourceName] = BOTH,
    priority: int = 0,
) -> EvictionCandidate:
    return EvictionCandidate("shop", name, ranking, Resources(*base), Resources(*headroom), evictable_for, priority)


def need_of(candidates: list[EvictionCandidate]) -> Resources:
    """The need of pods together: the sum of their bases plus the largest single headroom."""
    base = largest = NO_RESOURCES
    for one in candidates:
        base, largest = base + one.base, largest.max_with(one.headroom)
    return base + largest


amounts = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: Resources(*pair))
candidates = st.lists(
    st.builds(
        EvictionCandidate,
        namespace=st.sampled_from(["a", "b"]),
        name=st.uuids().map(str),
        ranking=st.sampled_from(EvictionRanking),
        base=amounts,
        headroom=amounts,
        evictable_for=st.sampled_from(
            [BOTH, frozenset(), frozenset({ResourceName.CPU}), frozenset({ResourceName.MEMORY})]
        ),
        priority=st.sampled_from([0, 0, 0, 10, 1000]),
    ),
    max_size=8,
)
rooms = st.tuples(st.integers(0, 4000), st.integers(0, 4000)).map(lambda pair: Resources(*pair))


def names(pods: list[EvictionCandidate], decision: EvictionDecision) -> list[str]:
    return [pods[mark.index].name for mark in decision.marked]


def test_low_is_evicted_before_medium_before_high() -> None:
    pods = [
        candidate("high", ranking=EvictionRanking.HIGH),
        candidate("low", ranking=EvictionRanking.LOW),
        candidate("medium", ranking=EvictionRanking.MEDIUM),
    ]
    assert [pods[i].name for i in rank_for_eviction(pods, ResourceName.CPU)] == ["low", "medium", "high"]


def test_within_a_ranking_the_largest_headroom_is_evicted_first() -> None:
    pods = [candidate("idle", headroom=(10, 90)), candidate("spiky", headroom=(90, 10))]
    assert [pods[i].name for i in rank_for_eviction(pods, ResourceName.CPU)] == ["spiky", "idle"]
    assert [pods[i].name for i in rank_for_eviction(pods, ResourceName.MEMORY)] == ["idle", "spiky"]


def test_only_pods_that_do_not_fit_are_evicted() -> None:
    pods = [candidate("a", headroom=(0, 50)), candidate("b"), candidate("c")]
    # 300 of base and 50 of headroom in 300: without `a` 200 are left, and no headroom.
    assert names(pods, decide_evictions(pods, Resources(1000, 300))) == ["a"]


def test_an_unneeded_eviction_is_undone() -> None:
    # Memory marks `small` first (larger memory headroom), then `large`; with `large` gone, `small` fits again.
    pods = [
        candidate("small", base=(10, 10), headroom=(0, 5)),
        candidate("large", base=(10, 500), headroom=(0, 4)),
    ]
    assert names(pods, decide_evictions(pods, Resources(1000, 100))) == ["large"]


def test_no_pod_is_evicted_if_all_evictions_would_not_suffice() -> None:
    pods = [candidate("stays", base=(0, 500), evictable_for=frozenset()), candidate("could-go")]
    decision = decide_evictions(pods, Resources(1000, 400))
    assert (decision.marked, decision.does_not_fit) == ((), frozenset({ResourceName.MEMORY}))
    assert decide_evictions(pods, Resources(1000, 400), TOGETHER).does_not_fit == BOTH


def test_memory_is_relieved_before_cpu() -> None:
    pods = [candidate("cpu", base=(900, 10), headroom=(9, 0)), candidate("memory", base=(10, 900), headroom=(0, 9))]
    decision = decide_evictions(pods, Resources(500, 500))
    assert list(decision.marked) == [EvictionMark(1, ResourceName.MEMORY), EvictionMark(0, ResourceName.CPU)]


def test_a_resource_that_cannot_fit_prevents_no_eviction_for_the_other() -> None:
    pods = [candidate("stays", base=(0, 500), evictable_for=frozenset()), candidate("goes", base=(900, 0))]
    decision = decide_evictions(pods, Resources(500, 400))
    assert (names(pods, decision), decision.does_not_fit) == (["goes"], frozenset({ResourceName.MEMORY}))
    assert decide_evictions(pods, Resources(500, 400), TOGETHER).marked == ()


def test_memory_that_fits_after_evictions_for_cpu_is_not_unfit() -> None:
    """For memory the pod of lower priority comes first; it requests no CPU and may not be evicted."""
    stays = candidate("stays", base=(0, 100), evictable_for=frozenset())
    pods = [stays, candidate("goes", base=(100, 100), priority=1000)]
    decision = decide_evictions(pods, Resources(0, 100))
    assert names(pods, decision) == ["goes"]
    assert (decision.over_capacity, decision.does_not_fit) == (frozenset(), frozenset())


def test_only_the_given_resources_are_relieved() -> None:
    pods = [candidate("a", base=(900, 900))]
    decision = decide_evictions(
        pods, Resources(500, 1000), EvictionDecisionOptions(resources=frozenset({ResourceName.MEMORY}))
    )
    assert decision == EvictionDecision((), over_capacity=frozenset({ResourceName.CPU}))


def test_within_a_ranking_the_lower_priority_is_evicted_first() -> None:
    pods = [candidate("above", priority=1000, headroom=(0, 90)), candidate("below", headroom=(0, 10))]
    assert names(pods, decide_evictions(pods, Resources(1000, 195))) == ["below"]


def test_no_pod_is_evicted_before_one_of_lower_priority() -> None:
    pods = [candidate("low", priority=1000), candidate("medium", ranking=EvictionRanking.MEDIUM)]
    assert names(pods, decide_evictions(pods, Resources(1000, 150))) == ["medium"]
    assert names(pods, decide_evictions(pods, Resources(1000, 50))) == ["medium", "low"]


def test_no_pod_is_evicted_while_one_of_lower_priority_remains() -> None:
    # A small pod requests 900 and is never evicted; three others of high priority are not evicted for it.
    tenant = candidate("tenant", base=(0, 900), evictable_for=frozenset())
    pods = [tenant, *(candidate(name, base=(0, 300), priority=1_000_000) for name in ("a", "b", "c"))]
    decision = decide_evictions(pods, Resources(1000, 1000))
    assert (decision.marked, decision.does_not_fit) == ((), frozenset({ResourceName.MEMORY}))
    assert set(decision.not_evicted.values()) == {ReasonDetailCode.LOWER_PRIORITY_STAYS}
    apart = EvictionDecisionOptions(lowest_other_priority={ResourceName.MEMORY: 10})
    assert decide_evictions(pods[1:], Resources(1000, 700), apart).marked == ()
    assert len(decide_evictions(pods[1:], Resources(1000, 700)).marked) == 1


class Places:
    """Capacity for a few replacements, and which pods have it."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[int] = []

    def evict(self, index: int) -> bool:
        if len(self.taken) == self.room:
            return False
        self.taken.append(index)
        return True

    def undo_eviction(self, index: int) -> None:
        self.taken.remove(index)


def test_no_pod_without_a_destination_is_evicted() -> None:
    pods = [candidate(name, base=(0, 100)) for name in "abc"]
    decision = decide_evictions(pods, Resources(1000, 150), EvictionDecisionOptions(destinations=Places(1)))
    assert (decision.marked, decision.does_not_fit) == ((), frozenset({ResourceName.MEMORY}))
    places = Places(2)
    assert names(pods, decide_evictions(pods, Resources(1000, 150), EvictionDecisionOptions(destinations=places))) == [
        "a",
        "b",
    ]
    assert places.taken == [0, 1]


@given(candidates, rooms, st.integers(0, 4))
def test_a_destination_is_reserved_for_exactly_the_evicted_pods(
    pods: list[EvictionCandidate], room: Resources, places: int
) -> None:
    exits = Places(places)
    decision = decide_evictions(pods, room, EvictionDecisionOptions(destinations=exits))
    assert sorted(exits.taken) == sorted(mark.index for mark in decision.marked)
    gone = {mark.index for mark in decision.marked}
    for mark in decision.marked:
        staying = [one for at, one in enumerate(pods) if at not in gone and one.base.get(mark.resource)]
        assert all(one.priority >= pods[mark.index].priority for one in staying)
        assert mark.resource not in decision.over_capacity


def equal(pods: list[EvictionCandidate]) -> list[EvictionCandidate]:
    """The same pods, all of the same priority."""
    return [replace(pod, priority=0) for pod in pods]


@given(candidates.map(equal), rooms)
def test_remaining_pods_fit_and_every_eviction_is_needed(pods: list[EvictionCandidate], room: Resources) -> None:
    decision = decide_evictions(pods, room, TOGETHER)
    if decision.does_not_fit:
        assert decision.marked == ()
        forced = [pod for pod in pods if not pod.evictable_for]
        one_resource_short = [[pod for pod in pods if resource not in pod.evictable_for] for resource in ResourceName]
        assert not all(need_of(staying).fits_in(room) for staying in [forced, *one_resource_short])
        return
    gone = {mark.index for mark in decision.marked}
    staying = [pod for index, pod in enumerate(pods) if index not in gone]
    assert need_of(staying).fits_in(room)
    for mark in decision.marked:
        assert mark.resource in pods[mark.index].evictable_for
        assert not need_of([*staying, pods[mark.index]]).fits_in(room)


@given(candidates, rooms, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    pods: list[EvictionCandidate], room: Resources, chance: random.Random
) -> None:
    shuffled = list(pods)
    chance.shuffle(shuffled)
    one, other = decide_evictions(pods, room), decide_evictions(shuffled, room)
    assert one.does_not_fit == other.does_not_fit
    assert [pods[m.index] for m in one.marked] == [shuffled[m.index] for m in other.marked]
