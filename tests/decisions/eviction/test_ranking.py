"""Laws of the eviction order and of sparing."""

import random

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.eviction.ranking import Contender, Marked, decide_evictions, rank_for_eviction
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources

BOTH = frozenset(ResourceName)


def contender(
    name: str,
    *,
    base: tuple[int, int] = (100, 100),
    headroom: tuple[int, int] = (0, 0),
    ranking: EvictionRanking = EvictionRanking.LOW,
    candidate_for: frozenset[ResourceName] = BOTH,
) -> Contender:
    return Contender("shop", name, ranking, Resources(*base), Resources(*headroom), candidate_for)


def need_of(contenders: list[Contender]) -> Resources:
    """What pods need together: the sum of their bases and the largest single headroom."""
    base = largest = NO_RESOURCES
    for one in contenders:
        base, largest = base + one.base, largest.at_least(one.headroom)
    return base + largest


amounts = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: Resources(*pair))
contenders = st.lists(
    st.builds(
        Contender,
        namespace=st.sampled_from(["a", "b"]),
        name=st.uuids().map(str),
        ranking=st.sampled_from(EvictionRanking),
        base=amounts,
        headroom=amounts,
        candidate_for=st.sampled_from(
            [BOTH, frozenset(), frozenset({ResourceName.CPU}), frozenset({ResourceName.MEMORY})]
        ),
    ),
    max_size=8,
)
rooms = st.tuples(st.integers(0, 4000), st.integers(0, 4000)).map(lambda pair: Resources(*pair))


def names(pods: list[Contender], marked: list[Marked] | None) -> list[str]:
    assert marked is not None
    return [pods[mark.index].name for mark in marked]


def test_low_goes_before_medium_before_high() -> None:
    pods = [
        contender("high", ranking=EvictionRanking.HIGH),
        contender("low", ranking=EvictionRanking.LOW),
        contender("medium", ranking=EvictionRanking.MEDIUM),
    ]
    assert [pods[i].name for i in rank_for_eviction(pods, ResourceName.CPU)] == ["low", "medium", "high"]


def test_within_a_ranking_the_largest_headroom_of_that_resource_goes_first() -> None:
    pods = [contender("calm", headroom=(10, 90)), contender("spiky", headroom=(90, 10))]
    assert [pods[i].name for i in rank_for_eviction(pods, ResourceName.CPU)] == ["spiky", "calm"]
    assert [pods[i].name for i in rank_for_eviction(pods, ResourceName.MEMORY)] == ["calm", "spiky"]


def test_only_what_cannot_fit_goes() -> None:
    pods = [contender("a", headroom=(0, 50)), contender("b"), contender("c")]
    # 300 of base and 50 of headroom in 300: without `a` 200 are left, and no headroom.
    assert names(pods, decide_evictions(pods, Resources(1000, 300))) == ["a"]


def test_a_pod_that_need_not_have_gone_is_spared() -> None:
    # Memory marks `small` first (larger memory headroom), then `large`; with `large` gone, `small` fits again.
    pods = [
        contender("small", base=(10, 10), headroom=(0, 5)),
        contender("large", base=(10, 500), headroom=(0, 4)),
    ]
    assert names(pods, decide_evictions(pods, Resources(1000, 100))) == ["large"]


def test_nobody_goes_where_even_all_would_not_suffice() -> None:
    pods = [contender("stays", base=(0, 500), candidate_for=frozenset()), contender("could-go")]
    assert decide_evictions(pods, Resources(1000, 400)) is None


def test_memory_is_settled_before_cpu() -> None:
    pods = [contender("cpu", base=(900, 10), headroom=(9, 0)), contender("memory", base=(10, 900), headroom=(0, 9))]
    marked = decide_evictions(pods, Resources(500, 500))
    assert marked == [Marked(1, ResourceName.MEMORY), Marked(0, ResourceName.CPU)]


@given(contenders, rooms)
def test_what_stays_fits_and_no_eviction_is_in_vain(pods: list[Contender], room: Resources) -> None:
    marked = decide_evictions(pods, room)
    if marked is None:
        forced = [pod for pod in pods if not pod.candidate_for]
        one_resource_short = [[pod for pod in pods if resource not in pod.candidate_for] for resource in ResourceName]
        assert not all(need_of(staying).fits_in(room) for staying in [forced, *one_resource_short])
        return
    gone = {mark.index for mark in marked}
    staying = [pod for index, pod in enumerate(pods) if index not in gone]
    assert need_of(staying).fits_in(room)
    for mark in marked:
        assert mark.resource in pods[mark.index].candidate_for
        assert not need_of([*staying, pods[mark.index]]).fits_in(room)


@given(contenders, rooms, st.randoms(use_true_random=False))
def test_the_order_of_the_input_decides_nothing(pods: list[Contender], room: Resources, chance: random.Random) -> None:
    shuffled = list(pods)
    chance.shuffle(shuffled)
    one, other = decide_evictions(pods, room), decide_evictions(shuffled, room)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert [pods[m.index] for m in one] == [shuffled[m.index] for m in other]
