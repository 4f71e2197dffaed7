"""Which policies apply to a pod, in which order, and when a policy is not known yet."""

import itertools
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.policy_objects import PolicyIndex, reuse_policy_index
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import EffectivePolicy, Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.namespace_patterns import matches_any_pattern
from cruise.domain.overrides import parse_overrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from tests.builders import NOW, make_pod, make_ref, make_snapshot, make_statistic_for, make_table

KINDS, NAMES = ("Deployment", "StatefulSet"), ("web", "web-1", "db")
LABELS: tuple[Mapping[str, str], ...] = ({}, {"team": "a"}, {"team": "b", "tier": "front"})
NAMESPACES: Mapping[str, Mapping[str, str]] = {"shop": {"env": "live"}, "shop-2": {"env": "test"}, "blog": {}}


def label(key: str, *values: str) -> LabelSelector:
    return LabelSelector((LabelRequirement(key, SelectorOperator.IN, values),))


def policy(name: str, namespace: str = "", stated: Mapping[str, str] | None = None, **selector) -> RightsizingPolicy:
    overrides = parse_overrides({f"cruise.io/{key}": value for key, value in (stated or {}).items()})
    return RightsizingPolicy(namespace, name, PolicySelector(**selector), overrides)


def world(*policies: RightsizingPolicy, pods: tuple[Pod, ...] = (), **more) -> ClusterSnapshot:
    ordered = tuple(sorted(policies, key=lambda one: (one.namespace, one.name)))
    snapshot = make_snapshot(pods, **more)
    labels = {name: {"kubernetes.io/metadata.name": name, **found} for name, found in NAMESPACES.items()}
    storage = replace(snapshot.storage_and_namespaces, namespace_labels=labels)
    return replace(snapshot, rightsizing_policies=ordered, storage_and_namespaces=storage)


def order(snapshot: ClusterSnapshot, pod: Pod) -> list[str]:
    return [source.name for source, _ in PolicyIndex(snapshot).find_for_pod(pod).layers]


def effective(pod: Pod, snapshot: ClusterSnapshot, mode: Mode = Mode.FULL) -> EffectivePolicy:
    found = Eligibility(snapshot, make_table(), {}, Policy(mode=mode), NOW).get_effective_policy(pod)
    assert isinstance(found, EffectivePolicy)
    return found


def test_more_specific_policies_take_precedence_and_those_of_the_namespace_over_the_clusters():
    pod = make_pod(workload="Deployment/web", labels={"team": "a"})
    snapshot = world(
        policy("1-name", "shop", names=frozenset({"web"})),
        policy("2-pattern", "shop", names=frozenset({"w*"})),
        policy("3-labels", "shop", pod_labels=label("team", "a")),
        policy("4-kinds", "shop", kinds=frozenset({"Deployment"})),
        policy("5-all", "shop"),
        policy("6-name", names=frozenset({"web"})),
        policy("7-pattern", names=frozenset({"w*"})),
        policy("8-labels", pod_labels=label("team", "a")),
        policy("90-namespaces", namespaces=frozenset({"shop"})),
        policy("91-kinds", kinds=frozenset({"Deployment"})),
        policy("92-all"),
        policy("not-other-namespace", "blog"),
        policy("not-other-name", "shop", names=frozenset({"db"})),
        policy("not-other-labels", namespace_labels=label("env", "test")),
    )
    found = order(snapshot, pod)
    assert found == sorted(found)
    assert len(found) == 11


def test_of_equally_specific_policies_the_lowest_mode_takes_precedence_then_the_name():
    pod = make_pod()
    assert order(world(policy("b", "shop"), policy("a", "shop")), pod) == ["a", "b"]
    cautious = policy("c", "shop", {"mode.app": "off"})
    assert order(world(policy("b", "shop", {"mode": "resize"}), policy("a", "shop"), cautious), pod) == ["c", "b", "a"]


def test_the_nearest_value_applies_and_others_fill_what_it_leaves_out():
    pod = make_pod(annotations={"cruise.io/cpu-max": "2"})
    found = effective(
        pod,
        world(
            policy("web", "shop", {"cpu-min": "100m", "cpu-max": "1"}, names=frozenset({"web"})),
            policy("all", "shop", {"cpu-min": "50m", "memory-min": "64Mi"}),
            policy("cluster", "", {"memory-min": "32Mi", "headroom-factor": "2"}),
            namespace_annotations={"shop": {"cruise.io/memory-max": "1Gi"}},
        ),
    )
    assert (found.bounds.minimum.cpu_millicores, found.bounds.maximum.cpu_millicores) == (100, 2000)
    assert (found.bounds.minimum.memory_bytes, found.bounds.maximum.memory_bytes) == (64 << 20, 1 << 30)
    assert found.headroom_factor == 2


@pytest.mark.parametrize(
    ("stated", "most"),
    [
        ({"cpu-max": "4"}, 2000),
        ({"cpu-max.app": "4"}, 2000),
        ({"cpu-max.app": "4", "cpu-max": "1"}, 2000),
        ({"cpu-max": "1"}, 1000),
        ({"cpu-max.app": "500m", "cpu-max": "4"}, 500),
        ({}, 2000),
    ],
)
@pytest.mark.parametrize("source", ["pod", "namespace", "policy"])
def test_no_nearer_maximum_exceeds_that_of_the_cluster(stated: dict[str, str], most: int, source: str):
    annotations = {f"cruise.io/{key}": value for key, value in stated.items()}
    found = effective(
        make_pod(annotations=annotations if source == "pod" else {}),
        world(
            *([policy("own", "shop", stated)] if source == "policy" else []),
            policy("limit", "", {"cpu-max": "2"}, namespaces=frozenset({"shop"})),
            policy("everywhere", "", {"cpu-max": "300m"}),
            namespace_annotations={"shop": annotations} if source == "namespace" else {},
        ),
    )
    assert found.get_for_container("app").bounds.maximum.cpu_millicores == most
    assert found.bounds.maximum.memory_bytes is None


def test_a_maximum_of_the_cluster_for_one_container_limits_that_container():
    limits = policy("limit", "", {"cpu-max": "1", "cpu-max.app": "3"})
    found = effective(make_pod(annotations={"cruise.io/cpu-max": "4", "cruise.io/cpu-max.app": "4"}), world(limits))
    of_containers = [found.get_for_container(name).bounds.maximum.cpu_millicores for name in ("app", "proxy")]
    assert of_containers == [3000, 1000]


def test_a_setting_above_the_maximum_of_the_cluster_names_it_and_a_minimum_above_it_skips_the_pod():
    own = policy("own", "shop", {"cpu-max.app": "4", "memory-max": "1Gi"})
    limits = policy("limit", "", {"cpu-max": "2", "memory-max": "2Gi"})
    pod = make_pod()
    checks = Eligibility(world(own, limits, pods=(pod,)), make_table(), {}, Policy(mode=Mode.FULL), NOW)
    said = {(one.setting, str(one.source)): one for one in checks.get_stated_settings(pod)}
    exceeding, limit = (
        said["cpu-max.app", "RightsizingPolicy own"],
        said["cpu-max", "ClusterRightsizingPolicy limit"],
    )
    assert not exceeding.is_effective and exceeding.limited_by == limit.source
    assert limit.is_effective and limit.limited_by is None
    assert said["memory-max", "RightsizingPolicy own"].is_effective
    greedy = policy("own", "shop", {"cpu-min.app": "3", "cpu-max.app": "4"})
    checks = Eligibility(world(greedy, limits, pods=(pod,)), make_table(), {}, Policy(mode=Mode.FULL), NOW)
    found = checks.get_effective_policy(pod)
    assert isinstance(found, UnreadableAnnotations)
    assert found.detail.startswith("RightsizingPolicy own and ClusterRightsizingPolicy limit: cruise.io/…-min.app: ")


@pytest.mark.parametrize(
    ("modes", "mode"),
    [
        ({"web": "resize", "all": "observe"}, Mode.RESIZE),
        ({"web": "resize", "all": "observe", "cluster": "initial"}, Mode.INITIAL),
        ({"web": "full", "cluster": "observe", "cluster-shop": "resize"}, Mode.RESIZE),
        ({"all": "off", "cluster": "full"}, Mode.OFF),
    ],
)
def test_of_one_kind_of_policy_the_most_specific_mode_counts_and_of_both_the_lowest(modes, mode):
    selectors = {"web": ("shop", {"names": frozenset({"web"})}), "all": ("shop", {})}
    selectors |= {"cluster": ("", {}), "cluster-shop": ("", {"namespaces": frozenset({"shop"})})}
    policies = [policy(name, selectors[name][0], {"mode": text}, **selectors[name][1]) for name, text in modes.items()]
    assert effective(make_pod(), world(*policies)).mode is mode
    assert effective(make_pod(), world(*policies), Mode.OBSERVE).mode is min(mode, Mode.OBSERVE)
    annotated = make_pod(annotations={"cruise.io/mode": "initial"})
    assert effective(annotated, world(*policies)).mode is min(mode, Mode.INITIAL)


def test_a_policy_of_the_namespace_costs_no_neighbour_and_one_of_the_cluster_may():
    stated = {"cpu-min": "3"}
    own = effective(make_pod(), world(policy("own", "shop", stated)))
    assert own.set_by_administrator is not None
    assert own.set_by_administrator.bounds.minimum.cpu_millicores is None
    assert effective(make_pod(), world(policy("all", "", stated))).set_by_administrator is None


@pytest.mark.parametrize("namespace", ["shop", ""])
def test_pods_that_an_unreadable_policy_may_select_are_skipped(namespace: str):
    broken = RightsizingPolicy(namespace, "broken", overrides=UnreadableAnnotations("spec.mode: is wrong"))
    pods = make_pod("web-1"), make_pod("other-1", "blog")
    rows = [make_statistic_for(pod) for pod in pods]
    checks = Eligibility(world(broken, pods=pods), make_table(*rows), {}, Policy(mode=Mode.FULL), NOW)
    kind = "RightsizingPolicy" if namespace else "ClusterRightsizingPolicy"
    found = checks.check(pods[0])
    assert found == SkippedPod("shop", "web-1", ReasonCode.UNREADABLE_ANNOTATION, f"{kind} broken: spec.mode: is wrong")
    assert isinstance(checks.check(pods[1]), SkippedPod) is (namespace == "")


def test_pods_of_one_workload_with_other_labels_may_have_other_policies():
    by_label = policy("canary", "shop", {"mode": "off"}, pod_labels=label("track", "canary"))
    pods = make_pod("web-1"), make_pod("web-2", labels={"track": "canary"})
    checks = Eligibility(world(by_label, pods=pods), make_table(), {}, Policy(mode=Mode.FULL), NOW)
    modes = [checks.get_effective_policy(pod) for pod in pods]
    assert [one.mode for one in modes if isinstance(one, EffectivePolicy)] == [Mode.FULL, Mode.OFF]
    assert checks.get_policy_group(pods[0]) is None
    assert checks.get_policy_group(make_pod(namespace="blog")) is not None


def names_of(pool: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(pool), max_size=2)


@st.composite
def selectors(draw: st.DrawFn, *, of_cluster: bool) -> PolicySelector:
    requirement = st.builds(
        LabelRequirement,
        st.sampled_from(("team", "tier", "env")),
        st.sampled_from((SelectorOperator.IN, SelectorOperator.NOT_IN)),
        st.sampled_from((("a",), ("a", "b"), ("front",), ("live",))),
    )
    labels = st.none() | st.builds(LabelSelector, st.lists(requirement, max_size=2).map(tuple))
    return PolicySelector(
        kinds=draw(names_of(KINDS)),
        names=draw(names_of((*NAMES, "web*", "?b"))),
        pod_labels=draw(labels),
        namespaces=draw(names_of((*NAMESPACES, "shop*", "[a-c]*"))) if of_cluster else frozenset(),
        namespace_labels=draw(labels) if of_cluster else None,
    )


@st.composite
def policies(draw: st.DrawFn) -> list[RightsizingPolicy]:
    found = []
    for index in range(draw(st.integers(0, 8))):
        namespace = draw(st.sampled_from(("", *NAMESPACES)))
        selector = draw(selectors(of_cluster=not namespace))
        mode = draw(st.none() | st.sampled_from(Mode))
        found.append(RightsizingPolicy(namespace, f"p{index}", selector, Overrides(mode=mode)))
    return found


def selects(one: RightsizingPolicy, pod: Pod) -> bool:
    """The plain rule, without an index."""
    selector, workload = one.selector, pod.workload
    return all(
        (
            one.namespace in ("", pod.namespace),
            not selector.namespaces or matches_any_pattern(selector.namespaces, pod.namespace),
            selector.namespace_labels is None or selector.namespace_labels.matches(NAMESPACES[pod.namespace]),
            not selector.kinds or (workload is not None and workload.kind in selector.kinds),
            not selector.names or (workload is not None and matches_any_pattern(selector.names, workload.name)),
            selector.pod_labels is None or selector.pod_labels.matches(pod.labels),
        )
    )


@given(
    policies(),
    st.sampled_from(tuple(NAMESPACES)),
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
    st.sampled_from(LABELS),
)
def test_the_index_finds_what_the_plain_rule_selects(drawn, namespace, kind, name, labels):
    pod = make_pod(namespace=namespace, workload=make_ref(f"{kind}/{name}"), labels=labels)
    assert sorted(order(world(*drawn), pod)) == sorted(one.name for one in drawn if selects(one, pod))


PODS = tuple(
    make_pod(f"pod-{number}", namespace, workload=f"{kind}/{name}", labels=labels)
    for number, (namespace, kind, name, labels) in enumerate(itertools.product(NAMESPACES, KINDS[:1], NAMES, LABELS))
)


@st.composite
def changes(draw: st.DrawFn) -> list[ClusterSnapshot]:
    """Snapshots in the order in which they are taken: each has the policies and labels of an earlier one, or others."""
    found: list[ClusterSnapshot] = []
    drawn, env, seen = draw(policies()), "live", PODS
    for _ in range(draw(st.integers(1, 6))):
        match draw(st.sampled_from(("same", "one policy", "all policies", "labels of a namespace", "pods"))):
            case "one policy" if drawn:
                at = draw(st.integers(0, len(drawn) - 1))
                overrides = draw(
                    st.builds(Overrides, mode=st.sampled_from(Mode)) | st.just(UnreadableAnnotations("is wrong"))
                )
                drawn = [*drawn[:at], replace(drawn[at], overrides=overrides), *drawn[at + 1 :]]
            case "all policies":
                drawn = draw(policies())
            case "labels of a namespace":
                env = draw(st.sampled_from(("live", "a", "b")))
            case "pods":
                # Objects that are read again are equal, and not the same.
                seen = tuple(replace(pod, labels=dict(draw(st.sampled_from(LABELS)))) for pod in PODS)
        snapshot = world(*drawn, policy("labels", namespace_labels=label("env", "a")), pods=seen)
        storage = snapshot.storage_and_namespaces
        labels = {**storage.namespace_labels, "shop": {"env": env}}
        found.append(replace(snapshot, storage_and_namespaces=replace(storage, namespace_labels=labels)))
    return found


@given(changes(), st.booleans())
def test_an_index_of_an_earlier_snapshot_finds_what_a_new_one_does(taken: list[ClusterSnapshot], forgets: bool):
    index = None
    for snapshot in taken:
        index, new = reuse_policy_index(snapshot, index), PolicyIndex(snapshot)
        if forgets:
            index.forget_pods()
        for pod in snapshot.pods:
            found, expected = index.find_for_pod(pod), new.find_for_pod(pod)
            assert found == expected
            assert index.resolve(found, Mode.RESIZE) == new.resolve(expected, Mode.RESIZE)
            assert index.depends_on_labels(pod.namespace) == new.depends_on_labels(pod.namespace)


def test_an_index_is_used_again_until_policies_or_the_labels_that_they_select_by_change():
    first = world(policy("a", "shop"), policy("b", namespace_labels=label("env", "live")), pods=PODS)
    index = reuse_policy_index(first, None)
    assert reuse_policy_index(replace(first, pods=PODS[:1]), index) is index
    assert reuse_policy_index(world(policy("a", "shop", {"mode": "off"})), index) is not index
    without_labels = replace(first.storage_and_namespaces, namespace_labels={})
    assert reuse_policy_index(replace(first, storage_and_namespaces=without_labels), index) is not index


def test_threads_that_share_an_index_find_the_same_object_for_the_same_policies():
    """Results are kept by the identity of that object: of two, one could be gone, and its place taken by others."""
    names = [f"web-{number}" for number in range(200)]
    drawn = [policy(name, "shop", names=frozenset({name})) for name in names]
    pods = [make_pod(name, workload=f"Deployment/{name}") for name in names]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(20):
                index = PolicyIndex(world(*drawn))
                find_all = partial(map, index.find_for_pod, pods)
                found = [one for of_thread in threads.map(lambda run: list(run()), [find_all] * 4) for one in of_thread]
                assert len(set(map(id, found))) == len(names)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("stated", [{"direction": "grow"}, {"cpu-max": "2", "startup-cpu": "2x"}])
def test_policies_with_equal_settings_have_one_effective_policy(stated: dict[str, str]):
    """A node pass computes bounds once for each effective policy."""
    index = PolicyIndex(world(policy("a", "shop", stated), policy("b", "blog", stated)))
    shop, blog = (index.find_for_pod(make_pod(namespace=namespace)) for namespace in ("shop", "blog"))
    first, second = index.resolve(shop, Mode.FULL), index.resolve(blog, Mode.FULL)
    assert first.effective_policy is second.effective_policy
    assert [one.source for one in first.statements] != [one.source for one in second.statements]
    assert index.resolve(shop, Mode.RESIZE).effective_policy != first.effective_policy
