import re
from string import ascii_lowercase, digits

from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.seen_pods import PARTITIONS, build_pod_patterns, get_partition

NAMES = st.one_of(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
    st.builds("web-{}-{}".format, st.sampled_from(["7d9f8b6c5d", "6b7c9"]), st.text("bcdf24", min_size=5, max_size=5)),
    st.builds("db-{}".format, st.integers(0, 12)),
)


def test_every_ending_is_in_one_partition():
    assert sorted("".join(PARTITIONS.values())) == sorted(ascii_lowercase + digits)


@given(NAMES)
def test_a_pods_partition_is_that_of_its_ending(pod):
    assert pod[-1] in PARTITIONS[get_partition(pod)]


@given(
    st.sampled_from(sorted(PARTITIONS)), st.dictionaries(NAMES, st.integers(1, 4)), st.integers(1, 12), st.lists(NAMES)
)
def test_the_selectors_of_a_partition_select_each_of_its_pods_once_and_no_other(partition, containers, limit, others):
    known = {pod: count for pod, count in containers.items() if get_partition(pod) == partition}
    expressions = [re.compile(one) for one in build_pod_patterns(partition, known, limit)]
    for pod in [*containers, *others]:
        selected_by = sum(bool(expression.fullmatch(pod)) for expression in expressions)
        assert selected_by == (get_partition(pod) == partition), pod


@given(st.sets(NAMES.filter(lambda pod: len(pod) < 40)), st.integers(1, 12))
def test_no_selector_selects_more_than_the_limit(pods, limit):
    for partition in PARTITIONS:
        known = {pod: 1 for pod in pods if get_partition(pod) == partition}
        for one in build_pod_patterns(partition, known, limit):
            assert sum(bool(re.fullmatch(one, pod)) for pod in known) <= limit


def test_a_partition_that_is_small_enough_is_one_query():
    assert build_pod_patterns("pods-ending-bcd0", {"web-b": 2, "db-0": 1}, 3) == [".*[bcd0]"]


def test_does_not_split_names_with_the_same_long_ending():
    long = "x" * 45
    pods = {f"{first}{long}b": 1 for first in "cdf"}
    assert any(
        sum(bool(re.fullmatch(one, pod)) for pod in pods) == 3
        for one in build_pod_patterns("pods-ending-bcd0", pods, 1)
    )
