"""Random valid clusters: what the API server admits, the scheduler places and the kubelet reports.

Every pod's class of service follows from its resources, limits are never under requests, and every node holds what
kube-scheduler counts on it. Within that anything goes: all controllers and none, sidecars, init containers, overhead,
resizes under way, annotations that make sense or not, statistics that are missing, stale or too young.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from hypothesis import strategies as st

from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import (
    ClusterSnapshot,
    Container,
    ContainerRole,
    HorizontalPodAutoscaler,
    Node,
    Pod,
    PodDisruptionBudget,
    Workload,
    WorkloadRef,
)
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.pod_resources import count_pod_requests, get_qos_class
from cruise.domain.resources import (
    MEBIBYTE,
    NO_RESOURCES,
    ResizePending,
    ResizeState,
    ResourceName,
    Resources,
    StatedResources,
)
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from tests.builders import LONG_AGO, NOW, NOW_SECONDS, make_pod_level


class DrawnClusterValues(NamedTuple):
    """A snapshot, what is known of its usage, and when (`tests.builders.NOW`)."""

    snapshot: ClusterSnapshot
    statistics: StatisticsTable


NAMESPACES = ("shop", "bank", "kube-system")
POD_ANNOTATIONS: tuple[dict[str, str], ...] = (
    *[{}] * 20,
    {"cruise.io/eviction-ranking": "high"},
    {"cruise.io/eviction-ranking": "never"},
    {"cruise.io/eviction-ranking": "medium"},
    {"cruise.io/mode": "observe"},
    {"cruise.io/mode": "off"},
    {"cruise.io/mode": "sideways"},
    {"cruise.io/resources": "cpu"},
    {"cruise.io/resources": "memory"},
    {"cruise.io/headroom-factor": "0"},
    {"cruise.io/headroom-factor": "2.5"},
    {"cruise.io/cpu-min": "150m", "cruise.io/memory-max": "300Mi"},
    {"cruise.io/cpu-max.app": "50m", "cruise.io/memory-min.proxy": "64Mi"},
    {"cruisekube.truefoundry.com/excluded": "true"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    {"karpenter.sh/do-not-disrupt": "true"},
)

millicores = st.sampled_from([1, 10, 50, 100, 100, 250, 500, 1000]) | st.integers(1, 3000)
memory_bytes = (
    st.sampled_from([16, 64, 128, 128, 256, 512, 1024]).map(lambda mebibytes: mebibytes * MEBIBYTE)
    | st.integers(1, 1200).map(lambda mebibytes: mebibytes * MEBIBYTE)
    | st.integers(1, 1 << 30)
)


heaps = st.builds(
    HeapBound,
    st.sampled_from(HeapRuntime),
    st.just("an option"),
    fixed_bytes=st.just(0) | memory_bytes,
    limit_share=st.sampled_from([0.0, 0.25, 0.75, 1.0]),
    request_share=st.sampled_from([0.0, 0.0, 1.0]),
    is_known=st.sampled_from([True, True, False]),
    holds_request=st.booleans(),
)


@st.composite
def containers(draw: st.DrawFn, name: str, role: ContainerRole = ContainerRole.MAIN) -> Container:
    """A container that the API server admits, settled on its node."""
    cpu, memory = draw(st.none() | millicores), draw(st.none() | memory_bytes)
    shape = draw(st.sampled_from(["requests", "requests", "memory limit", "both limits", "equal"]))
    cpu_limit = memory_limit = None
    if shape == "equal":
        cpu_limit, memory_limit = cpu, memory
    elif shape != "requests":
        memory_limit = (memory or 0) + draw(memory_bytes)
        if shape == "both limits":
            cpu_limit = (cpu or 0) + draw(millicores)
    requests = StatedResources(cpu if cpu is not None else cpu_limit, memory if memory is not None else memory_limit)
    heap = None if role is ContainerRole.INIT else draw(st.none() | st.none() | heaps)
    limits = StatedResources(cpu_limit, memory_limit)
    return _settled(Container(name=name, role=role, requests=requests, limits=limits, heap=heap))


def _settled(container: Container) -> Container:
    """Let the kubelet report the requests of the spec; of init containers it reports nothing that counts."""
    if container.role is ContainerRole.INIT:
        return container
    return replace(container, allocated=container.requests, actual=container.requests, actual_limits=container.limits)


@st.composite
def container_sets(draw: st.DrawFn) -> tuple[Container, ...]:
    """The containers of one pod template: one or two main ones, perhaps a sidecar and init containers around it."""
    found = []
    if draw(st.integers(0, 3)) == 0:
        found.append(draw(containers("migrate", ContainerRole.INIT)))
    if draw(st.integers(0, 3)) == 0:
        found.append(draw(containers("proxy", ContainerRole.SIDECAR)))
        if draw(st.booleans()):
            found.append(draw(containers("warm", ContainerRole.INIT)))
    found.append(draw(containers("app")))
    if draw(st.integers(0, 2)) == 0:
        found.append(draw(containers("log")))
    return tuple(found)


@st.composite
def _under_way(draw: st.DrawFn, container: Container) -> Container:
    """The same container while a resize of its requests is not yet done."""
    if container.role is ContainerRole.INIT or container.requests.cpu_millicores is None:
        return container
    earlier = replace(container.requests, cpu_millicores=draw(millicores))
    reported = draw(st.sampled_from(["allocated", "neither"]))
    return replace(container, actual=earlier, allocated=earlier if reported == "neither" else container.allocated)


resize_states = st.sampled_from(
    [
        ResizeState(ResizePending.DEFERRED, NOW - timedelta(minutes=1)),
        ResizeState(ResizePending.DEFERRED, NOW - timedelta(minutes=30)),
        ResizeState(ResizePending.INFEASIBLE, NOW - timedelta(minutes=1)),
        ResizeState(in_progress=True),
        ResizeState(in_progress=True, error=True),
    ]
)


@st.composite
def _pods_of(draw: st.DrawFn, index: int, nodes: Sequence[str]) -> tuple[list[Pod], Workload | None]:
    """One workload with its pods; a DaemonSet has one on each node, some pods have no controller at all."""
    kind = draw(st.sampled_from(["Deployment"] * 6 + ["StatefulSet", "DaemonSet", "Job", "CronJob", "bare", "static"]))
    namespace, name = draw(st.sampled_from(NAMESPACES[:2] * 8 + NAMESPACES[2:])), f"w{index}"
    template = draw(container_sets())
    annotations = draw(st.sampled_from(POD_ANNOTATIONS))
    overhead = draw(st.sampled_from([NO_RESOURCES] * 4 + [Resources(50, 20 * MEBIBYTE)]))
    alone = kind in ("bare", "static")
    places = (
        list(nodes) if kind == "DaemonSet" else [draw(st.sampled_from(nodes)) for _ in range(draw(st.integers(1, 3)))]
    )
    if alone:
        places = places[:1]
    ref = None if alone else WorkloadRef(kind, name)
    pods = []
    for ordinal, node in enumerate(places):
        owner_kind = {"Deployment": "ReplicaSet", "CronJob": "Job", "bare": None, "static": "Node"}.get(kind, kind)
        pod = Pod(
            namespace=namespace,
            name=f"{name}-{node}" if kind == "DaemonSet" else f"{name}-{ordinal}",
            uid=f"uid-{name}-{ordinal}",
            containers=template,
            node=node,
            workload=ref,
            owner_kind=owner_kind,
            owner_name=None if owner_kind is None else f"{name}-5c4d" if owner_kind == "ReplicaSet" else name,
            identity={"StatefulSet": str(ordinal), "DaemonSet": node}.get(kind, ""),
            labels={"app": name},
            annotations=annotations,
            created_at=LONG_AGO,
            priority=draw(st.sampled_from([0, 0, 0, 1000])),
            overhead=overhead,
            is_mirror_pod=kind == "static",
        )
        pods.append(draw(_in_some_state(pod)))
    if ref is None:
        return pods, None
    return pods, Workload(
        namespace=namespace,
        ref=ref,
        replicas=None if kind == "DaemonSet" else len(pods),
        annotations=draw(st.sampled_from([{}] * 20 + [*POD_ANNOTATIONS[20:25]])),
        created_at=draw(st.sampled_from([LONG_AGO] * 20 + [NOW - timedelta(minutes=20)])),
    )


@st.composite
def _in_some_state(draw: st.DrawFn, pod: Pod) -> Pod:
    """The pod as it mostly is, or in one of the many states that need care."""
    state = draw(
        st.sampled_from(
            ["ordinary"] * 25
            + ["resize in progress", "resize condition", "resize condition", "finished", "terminating", "windows"]
            + ["extended", "pod-level", "restarts", "pending"]
        )
    )
    match state:
        case "resize in progress":
            pod = replace(pod, containers=tuple(draw(_under_way(container)) for container in pod.containers))
        case "resize condition":
            pod = replace(pod, resize=draw(resize_states))
        case "finished":
            pod = replace(pod, phase=draw(st.sampled_from(["Succeeded", "Failed"])))
        case "terminating":
            pod = replace(pod, terminating=True)
        case "windows":
            pod = replace(pod, runs_on_windows=True)
        case "extended":
            pod = replace(pod, extended_requests=(("nvidia.com/gpu", 1),))
        case "pod-level":
            pod = replace(pod, pod_level=make_pod_level(StatedResources(4000, 4 << 30), StatedResources(5000, 5 << 30)))
        case "restarts":
            last = replace(pod.containers[-1], cpu_resize_restarts=draw(st.booleans()), memory_resize_restarts=True)
            pod = replace(pod, containers=(*pod.containers[:-1], last))
        case "pending" if pod.owner_kind != "Node":
            unreported = tuple(
                replace(container, allocated=None, actual=None, actual_limits=None) for container in pod.containers
            )
            pod = replace(pod, node=None, phase="Pending", containers=unreported, unschedulable_since=NOW)
    return replace(pod, qos=get_qos_class(pod))


@st.composite
def statistics(draw: st.DrawFn, pod: Pod, container: Container, of_workload: bool = False) -> Statistic:
    """What was measured of a container: mostly fresh, with a long history; the base is mostly below the peak."""
    workload = "" if pod.workload is None else str(pod.workload)
    base, peak = draw(millicores), draw(millicores)
    memory_base, memory_peak = draw(memory_bytes), draw(memory_bytes)
    if draw(st.integers(0, 5)):
        base, peak = sorted((base, peak))
        memory_base, memory_peak = sorted((memory_base, memory_peak))
    age_seconds = draw(st.sampled_from([0, 60, 600, 899] * 8 + [900, 901, 3600]))
    history_hours = draw(st.sampled_from([200] * 20 + [24, 2, 1, 0]))
    return Statistic(
        key=StatisticKey(pod.namespace, "" if of_workload else pod.name, workload, container.name, pod.identity),
        updated_at=NOW_SECONDS - age_seconds,
        history_since=NOW_SECONDS - history_hours * 3600,
        cpu_base_millicores=base,
        cpu_peak_millicores=peak,
        memory_base_bytes=memory_base,
        memory_peak_bytes=memory_peak,
        memory_7d_max_bytes=max(memory_base, memory_peak) + draw(st.sampled_from([0, 0, 100 * MEBIBYTE])),
        oom_memory_bytes=draw(st.sampled_from([0, 0, 0, 0, 200 * MEBIBYTE])),
        memory_last_bytes=draw(st.sampled_from([memory_base, memory_base, memory_peak])),
        psi_known=draw(st.booleans()),
        cpu_7d_max_millicores=max(base, peak) + draw(st.sampled_from([0, 0, 100])),
    )


@st.composite
def _all_statistics(draw: st.DrawFn, pods: Sequence[Pod]) -> StatisticsTable:
    found: dict[StatisticKey, Statistic] = {}
    for pod in pods:
        # None at all, each pod's own, or the workload's for all pods alike.
        source = draw(st.sampled_from(["own"] * 15 + ["none", "workload", "both"]))
        for container in pod.containers:
            if container.role is ContainerRole.INIT or source == "none" or draw(st.integers(0, 30)) == 0:
                continue
            for of_workload in {"own": [False], "workload": [True]}.get(source, [False, True]):
                if of_workload and pod.workload is None:
                    continue
                statistic = draw(statistics(pod, container, of_workload))
                found.setdefault(statistic.key, statistic)
    return StatisticsTable.from_rows(list(found.values()))


limit_range_items = st.builds(
    LimitRangeItem,
    is_for_pod=st.booleans(),
    minimum=st.sampled_from([StatedResources(), StatedResources(20, None), StatedResources(None, 32 * MEBIBYTE)]),
    maximum=st.sampled_from([StatedResources(), StatedResources(8000, 8 << 30), StatedResources(2000, None)]),
    max_cpu_ratio=st.sampled_from([None, None, 4.0]),
    max_memory_ratio=st.sampled_from([None, None, 1.5, 3.0]),
)


@st.composite
def clusters(draw: st.DrawFn, max_nodes: int = 3, max_workloads: int = 5) -> DrawnClusterValues:
    """A snapshot of up to `max_nodes` nodes and `max_workloads` workloads, with statistics."""
    names = [f"n{index}" for index in range(1, draw(st.integers(1, max_nodes)) + 1)]
    pods: list[Pod] = []
    workloads: list[Workload] = []
    for index in range(draw(st.integers(0, max_workloads))):
        of_one, workload = draw(_pods_of(index, names))
        pods += of_one
        workloads += [] if workload is None else [workload]
    pods.sort(key=lambda pod: (pod.namespace, pod.name))
    refs = sorted({(workload.namespace, workload.ref) for workload in workloads})
    snapshot = ClusterSnapshot(
        nodes=tuple(draw(_node_holding(name, [pod for pod in pods if pod.node == name])) for name in names),
        pods=tuple(pods),
        workloads={(workload.namespace, workload.ref): workload for workload in workloads},
        budgets=tuple(draw(st.lists(_budgets(refs), max_size=2))) if refs else (),
        autoscalers=tuple(draw(st.lists(_autoscalers(refs), max_size=1))) if refs else (),
        limit_ranges=draw(
            st.dictionaries(st.sampled_from(NAMESPACES[:1]), st.tuples(limit_range_items), max_size=1)
            if draw(st.integers(0, 3)) == 0
            else st.just({})
        ),
        namespace_annotations=draw(
            st.sampled_from([{}] * 20 + [{"bank": {"cruise.io/mode": "observe"}}, {"bank": {"cruise.io/mode": "?"}}])
        ),
    )
    return DrawnClusterValues(snapshot, draw(_all_statistics(pods)))


@st.composite
def _node_holding(draw: st.DrawFn, name: str, pods: Sequence[Pod]) -> Node:
    """A node that holds what kube-scheduler counts on it, with little or much room besides."""
    counted = sum((count_pod_requests(pod) for pod in pods), start=NO_RESOURCES)
    room = Resources(draw(st.sampled_from([0, 1, 500, 8000])), draw(st.sampled_from([0, 1, 1 << 29, 16 << 30])))
    return Node(
        name=name,
        allocatable=counted + room,
        labels={"kubernetes.io/hostname": name},
        unschedulable=draw(st.integers(0, 9)) == 0,
        kubelet_version=draw(st.sampled_from([(1, 34), (1, 36), None] * 4 + [(1, 33), (1, 32)])),
    )


@st.composite
def _budgets(draw: st.DrawFn, refs: Sequence[tuple[str, WorkloadRef]]) -> PodDisruptionBudget:
    namespace, ref = draw(st.sampled_from(refs))
    of_workload = LabelSelector((LabelRequirement("app", SelectorOperator.IN, (ref.name,)),))
    selector = draw(st.sampled_from([of_workload, LabelSelector()]))
    return PodDisruptionBudget(namespace, f"{ref.name}-budget", selector, draw(st.integers(0, 2)))


@st.composite
def _autoscalers(draw: st.DrawFn, refs: Sequence[tuple[str, WorkloadRef]]) -> HorizontalPodAutoscaler:
    namespace, ref = draw(st.sampled_from(refs))
    return HorizontalPodAutoscaler(namespace, ref.name, ref, draw(st.frozensets(st.sampled_from(ResourceName))))
