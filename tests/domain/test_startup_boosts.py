"""The record of a boost on a pod: whatever it says, it can only decrease the pod's own CPU."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.startup_boosts import (
    StartupBoost,
    find_startup_boosts,
    format_startup_boosts,
    settle_boosted_pod,
)
from tests.builders import make_amounts, make_container, make_pod

BOOST = StartupBoost("app", 1000, None, 400, None)


def make_boosted(*containers, text=None):
    boosted = containers or (make_container(cpu=1000),)
    return make_pod(containers=boosted, annotations={STARTUP_BOOST: text or format_startup_boosts([BOOST])})


def test_a_boost_ends_with_the_sizes_that_admission_recorded():
    pod = make_boosted(make_container(cpu=1000, memory_mib=64), make_container("proxy", cpu=1000))
    assert find_startup_boosts(pod) == (BOOST,)
    app, proxy = settle_boosted_pod(pod).containers
    assert (app.requests, proxy.requests) == (make_amounts(400, 64), make_amounts(1000, 128))


def test_a_container_of_another_size_is_not_boosted_any_more():
    assert not find_startup_boosts(make_boosted(make_container(cpu=999)))
    assert not find_startup_boosts(make_boosted(make_container(cpu=1000, cpu_limit=2000)))
    pod = make_boosted()
    assert not find_startup_boosts(settle_boosted_pod(pod))
    assert settle_boosted_pod(replace(pod, annotations={})) == replace(pod, annotations={})


amounts = st.none() | st.sampled_from(["1", "400m", "0", "-1", "1e30", "x", ""])
records = st.dictionaries(
    st.sampled_from(["boosted", "request", "boostedLimit", "limit", "other"]), amounts | st.integers(), max_size=5
)


@given(st.text(max_size=60) | st.just("[" * 4000) | st.builds(lambda one: str(one).replace("'", '"'), records))
def test_no_text_increases_anything(text):
    wrapped = '{"app":' + text.replace("None", "null") + "}"
    for stated in (text, wrapped):
        pod = make_boosted(make_container(cpu=1000, cpu_limit=1000), text=stated)
        for boost in find_startup_boosts(pod):
            target = boost.get_sizes_after_start(pod.containers[0])
            cpu, limit = target.requests.resources.cpu_millicores, target.limits.resources.cpu_millicores
            assert 0 < cpu < 1000
            assert cpu <= limit <= 1000
            assert replace_spec_resources(pod, [target]).containers[0].requests.memory_bytes == 128 << 20


@given(st.integers(1, 5000), st.integers(1, 5000), st.none() | st.integers(0, 5000))
def test_what_is_written_is_read_again(request_cpu, more, slack):
    limit = None if slack is None else request_cpu + slack
    boosted_limit = None if limit is None else limit + more
    boost = StartupBoost("app", request_cpu + more, boosted_limit, request_cpu, limit)
    container = make_container(cpu=request_cpu + more, cpu_limit=boosted_limit)
    assert find_startup_boosts(make_boosted(container, text=format_startup_boosts([boost]))) == (boost,)
