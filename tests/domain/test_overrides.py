"""Override annotations: parsed, rejected, and resolved with the nearest first."""

from collections.abc import Sequence

import pytest

from cruise.domain.annotations import (
    ContainerOverrides,
    EffectivePolicy,
    Overrides,
    OverrideSource,
    UnreadableAnnotations,
)
from cruise.domain.overrides import SettingSource, parse_overrides, resolve_override_layers
from cruise.domain.policy import EvictionRanking, MemoryLimitPolicy, Mode, RequestBounds
from cruise.domain.resources import ResourceName, StatedResources


def resolve_policy(mode: Mode, layers: Sequence[Overrides]) -> EffectivePolicy | UnreadableAnnotations:
    return resolve_override_layers(
        mode, [(SettingSource(OverrideSource.POD), layer) for layer in layers]
    ).effective_policy


def test_every_annotation_is_read() -> None:
    read = parse_overrides(
        {
            "cruise.io/mode": "resize",
            "cruise.io/eviction-ranking": "no-eviction",
            "cruise.io/resources": "memory",
            "cruise.io/cpu-min": "100m",
            "cruise.io/memory-max": "1Gi",
            "cruise.io/memory-max.app": "2Gi",
            "cruise.io/headroom-factor": "1.5",
            "cruise.io/original-resources": "{}",
            "example.com/other": "anything",
        }
    )
    assert read == Overrides(
        mode=Mode.RESIZE,
        ranking=EvictionRanking.NEVER,
        resources=frozenset({ResourceName.MEMORY}),
        bounds=RequestBounds(StatedResources(100, None), StatedResources(None, 1 << 30)),
        containers={"app": ContainerOverrides(bounds=RequestBounds(StatedResources(), StatedResources(None, 2 << 30)))},
        headroom_factor=1.5,
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cruise.io/mode", "ful", "no mode"),
        ("cruise.io/mdoe", "full", "cruise.io/mode"),
        ("cruise.io/eviction-ranking", "lowest", "no ranking"),
        ("cruise.io/resources", "cpu,disk", "no resources"),
        ("cruise.io/resources", "", "no resources"),
        ("cruise.io/cpu-max", "1.5Gx", "not a quantity"),
        ("cruise.io/memory-min", "-1Gi", "negative"),
        ("cruise.io/headroom-factor", "nan", "no factor"),
        ("cruise.io/headroom-factor", "-1", "no factor"),
        ("cruise.io/headroom-factor.app", "-1", "no factor"),
        ("cruise.io/eviction-ranking.app", "low", "whole pod; write cruise.io/eviction-ranking"),
    ],
)
def test_what_cannot_be_read_names_the_key_and_the_fix(key: str, value: str, said: str) -> None:
    read = parse_overrides({key: value})
    assert isinstance(read, UnreadableAnnotations)
    assert key in read.detail
    assert said in read.detail


def test_a_minimum_above_the_maximum_is_unreadable() -> None:
    assert isinstance(parse_overrides({"cruise.io/cpu-min": "2", "cruise.io/cpu-max": "1"}), UnreadableAnnotations)


def test_the_foreign_exclusion_counts_as_off() -> None:
    assert parse_overrides({"cruisekube.truefoundry.com/excluded": "true"}) == Overrides(mode=Mode.OFF)
    both = parse_overrides({"cruisekube.truefoundry.com/excluded": "true", "cruise.io/mode": "full"})
    assert both == Overrides(mode=Mode.OFF)
    assert parse_overrides({"cruisekube.truefoundry.com/excluded": "false"}) == Overrides()


def test_the_lowest_mode_counts_and_the_nearest_value_wins() -> None:
    pod = Overrides(mode=Mode.FULL, bounds=RequestBounds(maximum=StatedResources(500, None)))
    workload = Overrides(
        mode=Mode.RESIZE, ranking=EvictionRanking.HIGH, bounds=RequestBounds(maximum=StatedResources(900, 1 << 30))
    )
    namespace = Overrides(ranking=EvictionRanking.LOW, headroom_factor=2.0)
    assert resolve_policy(Mode.FULL, [pod, workload, namespace]) == EffectivePolicy(
        mode=Mode.RESIZE,
        ranking=EvictionRanking.HIGH,
        headroom_factor=2.0,
        bounds=RequestBounds(maximum=StatedResources(500, 1 << 30)),
        set_by_administrator=EffectivePolicy(Mode.FULL),
    )
    assert resolve_policy(Mode.OBSERVE, [pod]) == EffectivePolicy(Mode.OBSERVE, bounds=pod.bounds)


def test_a_container_takes_its_own_bound_and_the_pods_for_the_rest() -> None:
    policy = resolve_policy(
        Mode.FULL,
        [
            Overrides(
                bounds=RequestBounds(StatedResources(100, 1), StatedResources(200, 2)),
                containers={"app": ContainerOverrides(bounds=RequestBounds(maximum=StatedResources(300, None)))},
            )
        ],
    )
    assert isinstance(policy, EffectivePolicy)
    assert policy.get_for_container("app").bounds == RequestBounds(StatedResources(100, 1), StatedResources(300, 2))
    assert policy.get_for_container("other").bounds == RequestBounds(StatedResources(100, 1), StatedResources(200, 2))


def test_each_value_of_a_container_is_its_nearest_or_the_pods() -> None:
    near = Overrides(memory_limits=MemoryLimitPolicy.NEVER, containers={"app": ContainerOverrides(headroom_factor=2.0)})
    far = Overrides(
        headroom_factor=0.5,
        containers={"app": ContainerOverrides(headroom_factor=3.0, memory_limits=MemoryLimitPolicy.ALWAYS)},
    )
    policy = resolve_policy(Mode.FULL, [near, far])
    assert isinstance(policy, EffectivePolicy)
    app, other = policy.get_for_container("app"), policy.get_for_container("other")
    assert (app.headroom_factor, app.memory_limits) == (2.0, MemoryLimitPolicy.ALWAYS)
    assert (other.headroom_factor, other.memory_limits) == (0.5, MemoryLimitPolicy.NEVER)
