"""Overrides of single containers on random clusters: no patch contains a container in mode off."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ContainerTarget, ReasonCode, SkippedPod
from cruise.domain.annotations import MODE, RESOURCES
from cruise.domain.cluster import POD_LEVEL, Container, ContainerRole, Pod
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.kube_json.patches import build_resize_patch
from tests.builders import NOW, make_container, make_node, make_pod, make_snapshot, make_statistic_for, make_table
from tests.decisions.sizing.test_laws import applied, counted_on, each
from tests.strategies import DrawnClusterValues, clusters

FULL = Policy(mode=Mode.FULL)


@st.composite
def clusters_with_overrides(draw: st.DrawFn, *texts: str) -> DrawnClusterValues:
    """A cluster in which some containers have one of the given overrides, each as `setting=value`."""
    cluster = draw(clusters())

    def annotated(pod: Pod) -> Pod:
        names = [one.name for one in pod.containers if one.role is not ContainerRole.INIT]
        chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
        stated = {name: draw(st.sampled_from(texts)).split("=") for name in chosen}
        found = {f"cruise.io/{setting}.{name}": value for name, (setting, value) in stated.items()}
        return replace(pod, annotations={**pod.annotations, **found})

    pods = tuple(annotated(pod) for pod in cluster.snapshot.pods)
    return cluster._replace(snapshot=replace(cluster.snapshot, pods=pods))


def get_stated(pod: Pod, container: str, setting: str) -> str | None:
    return pod.annotations.get(f"cruise.io/{setting}.{container}")


def list_targets(cluster: DrawnClusterValues) -> Iterator[tuple[Pod, Container, ContainerTarget]]:
    """Yield everything that a node pass writes, and what new pods would be created with."""
    snapshot, table = cluster
    pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    for plan in decide_node_plans(snapshot, table, FULL, NOW):
        for resize in (one for one in plan.resize if one.reason is not ReasonCode.WITHDRAWN):
            pod = pods[resize.namespace, resize.pod]
            spec = build_resize_patch(resize)["spec"]
            written = {POD_LEVEL} if spec.pop("resources", None) else set()
            written |= {one["name"] for field in spec.values() for one in field}
            assert written == {target.container for target in resize.containers}
            yield from pair(pod, resize.containers)
    table = add_workload_rows(table)
    eligibility, nodes = Eligibility(snapshot, table, {}, FULL, NOW), NodeIndex(snapshot.known_nodes)
    for pod in snapshot.pods:
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        decision = decide_admission(pod, eligibility, table, nodes, ranges, FULL)
        if isinstance(decision, MutatePod):
            yield from pair(pod, decision.containers)


def add_workload_rows(table: StatisticsTable) -> StatisticsTable:
    """Add each pod's statistics to those of its workload, which new pods are sized by."""
    rows = {row.key: row for row in map(table.get_row, range(len(table.keys)))}
    for row in list(rows.values()):
        key = row.key._replace(pod="")
        rows.setdefault(key, replace(row, key=key))
    return make_table(*rows.values())


def pair(pod: Pod, targets: tuple[ContainerTarget, ...]) -> Iterator[tuple[Pod, Container, ContainerTarget]]:
    by_name: Mapping[str, Container] = {one.name: one for one in pod.containers}
    # What the pod as a whole gets is no container's.
    of_containers = [target for target in targets if target.container != POD_LEVEL]
    return ((pod, by_name[target.container], target) for target in of_containers)


@given(clusters_with_overrides("mode=off", "mode=observe", "resources=cpu"))
def test_nothing_of_a_container_that_is_off_is_written(cluster):
    for pod, container, _ in list_targets(cluster):
        mode = get_stated(pod, container.name, "mode")
        event(f"written next to one that is off: {any(name.startswith(f'{MODE.name}.') for name in pod.annotations)}")
        assert mode is None


@given(clusters_with_overrides("resources=cpu", "resources=memory", "mode=off"))
def test_a_resource_that_one_container_does_not_manage_keeps_its_sizes(cluster):
    for pod, container, target in list_targets(cluster):
        stated = get_stated(pod, container.name, "resources")
        event(f"resources {stated}")
        managed = ResourceName if stated is None else RESOURCES.read(stated)
        for resource in set(ResourceName) - set(managed):
            assert target.requests.get(resource) == container.requests.get(resource)
            assert target.limits.get(resource) == container.limits.get(resource)


@given(clusters_with_overrides("mode=off", "resources=memory", "resources=cpu"))
def test_what_containers_keep_is_counted_on_their_nodes(cluster):
    snapshot, table = cluster
    plans = decide_node_plans(snapshot, table, FULL, NOW)
    after = applied(snapshot, plans)
    for plan in plans:
        before, now = counted_on(snapshot, plan.node), counted_on(after, plan.node)
        for capacity, was, is_now in zip(each(plan.allocatable), each(before), each(now), strict=True):
            assert is_now <= max(capacity, was)


def amounts(stated: StatedResources) -> tuple[int | None, int | None]:
    return stated.cpu_millicores, stated.memory_bytes


@given(clusters_with_overrides("direction=shrink", "direction=grow", "direction=both"))
def test_sizes_change_in_their_direction_only(cluster):
    for pod, container, target in list_targets(cluster):
        direction = get_stated(pod, container.name, "direction")
        changed = (container.requests, container.limits) != (target.requests, target.limits)
        event(f"{direction}, changed {changed}")
        before = (*amounts(container.requests), *amounts(container.limits))
        after = (*amounts(target.requests), *amounts(target.limits))
        # A CPU limit that is removed at creation is no bound any more.
        for was, now in zip(before, after, strict=True):
            if was is None or now is None:
                assert direction != "shrink" or was == now
            else:
                assert direction != "shrink" or now <= was
                assert direction != "grow" or now >= was


@given(clusters_with_overrides("cpu-limits=keep", "cpu-limits=raise", "cpu-limits=remove-at-creation"))
def test_cpu_limits_follow_their_policy(cluster):
    for pod, container, target in list_targets(cluster):
        stated = get_stated(pod, container.name, "cpu-limits")
        was, now = container.limits.cpu_millicores, target.limits.cpu_millicores
        event(f"{stated}, had a limit: {was is not None}")
        if stated == "keep":
            assert now == was
            assert was is None or (target.requests.cpu_millicores or 0) <= was
        if stated == "raise" and was is not None:
            assert now is not None and now >= max(was, target.requests.cpu_millicores or 0)


@given(clusters_with_overrides("cpu-limits=keep", "memory-limits=existing", "direction=shrink", "mode=off"))
def test_no_limit_is_added_and_the_qos_class_is_kept(cluster):
    ranges = cluster.snapshot.limit_ranges
    for pod, container, target in list_targets(cluster):
        if not ranges.get(pod.namespace):
            for was, now in zip(amounts(container.limits), amounts(target.limits), strict=True):
                assert was is not None or now is None
        assert get_qos_class(replace_spec_resources(pod, [target])) is get_qos_class(pod)


@given(clusters_with_overrides("mode=off"))
def test_a_pod_of_which_every_container_is_off_is_skipped_for_that(cluster):
    snapshot, table = cluster
    for pod in snapshot.pods:
        sized = pod.sized_containers
        if all(get_stated(pod, one.name, "mode") for one in sized) and not pod.is_finished and not pod.terminating:
            verdict = Eligibility(snapshot, table, {}, FULL, NOW).check(pod)
            assert isinstance(verdict, SkippedPod)


def plan_for(*containers: Container, annotations: dict[str, str], without: str = "") -> NodePlan:
    pod = make_pod(containers=containers, annotations=annotations)
    rows = [make_statistic_for(pod, one.name) for one in containers if one.name != without]
    snapshot = make_snapshot([pod], nodes=[make_node()])
    [plan] = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
    return plan


APP, PROXY = make_container("app", 1000, 1024), make_container("proxy", 1000, 1024)
PROXY_OFF = {"cruise.io/mode.proxy": "off"}


def test_the_others_are_sized_even_if_one_that_is_off_has_no_statistics():
    plan = plan_for(APP, PROXY, annotations=PROXY_OFF, without="proxy")
    [resize] = plan.resize
    assert [target.container for target in resize.containers] == ["app"]


def test_all_off_is_mode_off_with_their_names():
    plan = plan_for(APP, PROXY, annotations={**PROXY_OFF, "cruise.io/mode.app": "observe"})
    [skipped] = plan.skipped
    assert (skipped.reason, skipped.detail) == (ReasonCode.MODE_OBSERVE, "app, proxy")


def test_mode_initial_of_a_container_sizes_it_at_creation_only():
    pod = make_pod(containers=(APP, PROXY), annotations={"cruise.io/mode.proxy": "initial"})
    snapshot = make_snapshot([pod], nodes=[make_node()])
    table = make_table(make_statistic_for(pod, "app"), make_statistic_for(pod, "proxy"))
    cluster = DrawnClusterValues(snapshot, table)
    assert [target.container for _, _, target in list_targets(cluster)] == ["app", "app", "proxy"]
