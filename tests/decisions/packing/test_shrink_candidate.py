"""The fewest pods that must shrink to free enough capacity."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.packing.plan_sizes import ShrinkCandidate, choose_pods_to_shrink

candidates = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=7).map(
    lambda gains: [ShrinkCandidate(pod, cpu, memory) for pod, (cpu, memory) in enumerate(gains)]
)


def enough(chosen: list[ShrinkCandidate], cpu: int, memory: int) -> bool:
    return sum(one.cpu for one in chosen) >= cpu and sum(one.memory for one in chosen) >= memory


@given(among=candidates, cpu=st.integers(-5, 30), memory=st.integers(-5, 30))
def test_one_or_two_evictions_are_necessary_if_no_pod_can_be_spared(
    among: list[ShrinkCandidate], cpu: int, memory: int
) -> None:
    found = choose_pods_to_shrink(among, cpu, memory)
    if found is None:
        assert not enough(among, cpu, memory)
        return
    chosen = [among[pod] for pod in found]
    assert enough(chosen, cpu, memory)
    assert not any(enough([one for one in chosen if one is not spared], cpu, memory) for spared in chosen)
    least = next(
        size for size in range(8) if any(enough(list(some), cpu, memory) for some in combinations(among, size))
    )
    assert len(chosen) == least or least > 2
