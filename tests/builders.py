"""Builders with keywords: objects as kubectl prints them, and the domain's nouns, each with plain defaults."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind
from cruise.domain.cluster import (
    POD_LEVEL,
    ClusterSnapshot,
    Container,
    ContainerRole,
    HorizontalPodAutoscaler,
    Node,
    Pod,
    PodDisruptionBudget,
    QosClass,
    Workload,
    WorkloadRef,
)
from cruise.domain.policy import DEFAULT_RULES
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, ResourceName, Resources, StatedResources
from cruise.domain.scheduling import LabelSelector
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable

# Every size is written that leaves its dead band: what is written is the target.
TRACKING = replace(DEFAULT_RULES, write_damping=False)
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NOW_SECONDS = int(NOW.timestamp())
LONG_AGO = datetime(2025, 12, 1, tzinfo=UTC)
GIBIBYTE = 1 << 30

Json = dict[str, Any]


def stamp(at: datetime) -> str:
    """Write a time as Kubernetes does."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- objects as kubectl prints them ----


def make_metadata(
    name: str,
    namespace: str | None = "shop",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str | None = None,
    **more: object,
) -> Json:
    """Metadata; `owner` is the controller as `Kind/name`."""
    metadata: Json = {"name": name, "uid": f"uid-{namespace}-{name}", "creationTimestamp": stamp(LONG_AGO)}
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        kind, _, owner_name = owner.partition("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": f"uid-{owner_name}"}
        metadata["ownerReferences"] = [reference | {"controller": True, "blockOwnerDeletion": True}]
    return metadata | more


def make_container_json(
    name: str = "app",
    cpu: str | float | None = "100m",
    memory: str | float | None = "128Mi",
    cpu_limit: str | float | None = None,
    memory_limit: str | float | None = None,
    **more: object,
) -> Json:
    """A container; None leaves a value out."""
    requests = {"cpu": cpu, "memory": memory}
    limits = {"cpu": cpu_limit, "memory": memory_limit}
    resources: Json = {
        key: {resource: value for resource, value in stated.items() if value is not None}
        for key, stated in (("requests", requests), ("limits", limits))
        if any(value is not None for value in stated.values())
    }
    return {"name": name, "image": f"registry.example/{name}:1", "resources": resources} | more


def make_pod_json(
    name: str = "web-7d9f8b6c5d-x2x4z",
    namespace: str = "shop",
    node: str | None = "n1",
    containers: Sequence[Json] | None = None,
    init_containers: Sequence[Json] | None = None,
    owner: str | None = "ReplicaSet/web-7d9f8b6c5d",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str | None = None,
    qos: str | None = None,
    conditions: Sequence[Json] = (),
    container_statuses: Sequence[Json] | None = None,
    init_container_statuses: Sequence[Json] | None = None,
    metadata: Mapping[str, object] | None = None,
    spec: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
) -> Json:
    """A pod of Deployment web, running on n1; `metadata`, `spec` and `status` add or replace whole fields."""
    if labels is None and owner is not None and owner.startswith("ReplicaSet/"):
        labels = {"app": "web", "pod-template-hash": owner.rpartition("-")[2]}
    whole_spec: Json = {"containers": list(containers if containers is not None else [make_container_json()])}
    if init_containers is not None:
        whole_spec["initContainers"] = list(init_containers)
    if node is not None:
        whole_spec["nodeName"] = node
    whole_status: Json = {"phase": phase or ("Running" if node else "Pending")}
    if qos is not None:
        whole_status["qosClass"] = qos
    if conditions:
        whole_status["conditions"] = list(conditions)
    if container_statuses is not None:
        whole_status["containerStatuses"] = list(container_statuses)
    if init_container_statuses is not None:
        whole_status["initContainerStatuses"] = list(init_container_statuses)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": make_metadata(name, namespace, labels, annotations, owner) | dict(metadata or {}),
        "spec": whole_spec | dict(spec or {}),
        "status": whole_status | dict(status or {}),
    }


def make_node_json(
    name: str = "n1",
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] | None = None,
    unschedulable: bool | None = None,
    version: str = "v1.34.1",
    allocatable: Mapping[str, str] | None = None,
) -> Json:
    """A ready node."""
    offered = {"cpu": cpu, "memory": memory, "pods": pods} | dict(allocatable or {})
    spec: Json = {}
    if taints is not None:
        spec["taints"] = list(taints)
    if unschedulable is not None:
        spec["unschedulable"] = unschedulable
    all_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"} | dict(labels or {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": make_metadata(name, None, all_labels),
        "spec": spec,
        "status": {
            "allocatable": offered,
            "capacity": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": version},
        },
    }


def make_workload_json(
    kind: str,
    name: str = "web",
    namespace: str = "shop",
    annotations: Mapping[str, str] | None = None,
    owner: str | None = None,
    **spec: object,
) -> Json:
    """A workload object of any kind; further keywords are fields of its spec."""
    version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    metadata = make_metadata(name, namespace, annotations=annotations, owner=owner)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec), "status": {}}


def make_deployment_json(name: str = "web", namespace: str = "shop", replicas: int = 3, **more: Any) -> Json:
    """A Deployment."""
    return make_workload_json("Deployment", name, namespace, replicas=replicas, **more)


def make_replica_set_json(
    name: str = "web-7d9f8b6c5d",
    namespace: str = "shop",
    owner: str | None = "Deployment/web",
    replicas: int = 3,
    **more: Any,
) -> Json:
    """A ReplicaSet of Deployment web."""
    return make_workload_json("ReplicaSet", name, namespace, owner=owner, replicas=replicas, **more)


def make_budget_json(
    name: str = "web", namespace: str = "shop", selector: Json | None = None, disruptions_allowed: int = 1
) -> Json:
    """A PodDisruptionBudget; a selector of None is left out."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": make_metadata(name, namespace),
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": disruptions_allowed},
    }


def make_autoscaler_json(
    name: str = "web",
    namespace: str = "shop",
    target: str = "Deployment/web",
    metrics: Sequence[Json] | None = None,
) -> Json:
    """A HorizontalPodAutoscaler of autoscaling/v2."""
    kind, _, target_name = target.partition("/")
    spec: Json = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target_name}, "maxReplicas": 10}
    if metrics is not None:
        spec["metrics"] = list(metrics)
    metadata = make_metadata(name, namespace)
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def make_limit_range_json(*limits: Json, name: str = "limits", namespace: str = "shop") -> Json:
    """A LimitRange of the given entries."""
    metadata = make_metadata(name, namespace)
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": list(limits)}}


def make_namespace_json(name: str = "shop", annotations: Mapping[str, str] | None = None) -> Json:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": make_metadata(name, None, annotations=annotations)}


def make_list_json(*items: Json) -> Json:
    """A `v1` List, with its fields in kubectl's order."""
    return {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"resourceVersion": ""}}


def make_usage_item_json(
    pod: str | None = "web-7d9f8b6c5d-x2x4z",
    namespace: str = "shop",
    workload: str | None = "Deployment/web",
    container: str = "app",
    updated_at: datetime = NOW,
    cpu_base: float = 50,
    cpu_peak: float = 200,
    memory_base: float = 64 * MEBIBYTE,
    memory_peak: float = 100 * MEBIBYTE,
    memory_7d_max: float = 120 * MEBIBYTE,
    oom: float = 0,
    **more: object,
) -> Json:
    """One item of a UsageStatistics file; None leaves `pod` or `workload` out."""
    item: Json = {"namespace": namespace, "container": container, "updatedAt": stamp(updated_at)}
    if pod is not None:
        item["pod"] = pod
    if workload is not None:
        item["workload"] = workload
    item["cpu"] = {"baseMillicores": cpu_base, "peakMillicores": cpu_peak}
    item["memory"] = {"baseBytes": memory_base, "peakBytes": memory_peak, "max7dBytes": memory_7d_max, "oomBytes": oom}
    return item | more


def make_usage_json(*items: Json) -> Json:
    """A UsageStatistics document."""
    return {"apiVersion": "cruise.io/v1", "kind": "UsageStatistics", "items": list(items)}


# ---- the domain's nouns ----


def make_amounts(cpu_millicores: int | None = None, memory_mib: int | None = None) -> StatedResources:
    """Amounts with memory in MiB."""
    return StatedResources(cpu_millicores, None if memory_mib is None else memory_mib * MEBIBYTE)


def make_resources(cpu_millicores: int = 0, memory_mib: int = 0) -> Resources:
    """Resources with memory in MiB."""
    return Resources(cpu_millicores, memory_mib * MEBIBYTE)


def make_container(
    name: str = "app",
    cpu: int | None = 100,
    memory_mib: int | None = 128,
    cpu_limit: int | None = None,
    memory_limit_mib: int | None = None,
    role: ContainerRole = ContainerRole.MAIN,
    settled: bool = True,
    **more: Any,
) -> Container:
    """A container whose kubelet reports the requests of its spec, unless it is not `settled`."""
    requests, limits = make_amounts(cpu, memory_mib), make_amounts(cpu_limit, memory_limit_mib)
    if settled and role is not ContainerRole.INIT:
        more = {"allocated": requests, "actual": requests, "actual_limits": limits} | more
    return Container(name=name, role=role, requests=requests, limits=limits, **more)


def make_pod(
    name: str = "web-1",
    namespace: str = "shop",
    node: str | None = "n1",
    containers: Iterable[Container] | None = None,
    workload: WorkloadRef | str | None = "Deployment/web",
    qos: QosClass = QosClass.BURSTABLE,
    **more: Any,
) -> Pod:
    """A settled pod of Deployment web on n1; a workload may be given as `Kind/name`."""
    ref = make_ref(workload) if isinstance(workload, str) else workload
    if ref is not None:
        more = {"owner_kind": ref.kind, "owner_name": ref.name} | more
    return Pod(
        namespace=namespace,
        name=name,
        uid=more.pop("uid", f"uid-{namespace}-{name}"),
        containers=tuple(containers) if containers is not None else (make_container(),),
        node=node,
        workload=ref,
        qos=qos,
        **{"phase": "Running" if node else "Pending", "created_at": LONG_AGO, **more},
    )


def make_pod_level(
    requests: StatedResources = NOTHING_STATED, limits: StatedResources = NOTHING_STATED, **more: Any
) -> Container:
    """The pod-level resources of a pod."""
    return Container(POD_LEVEL, ContainerRole.POD, requests, limits, **more)


def make_ref(text: str) -> WorkloadRef:
    """Turn `Kind/name` into a reference."""
    kind, _, name = text.partition("/")
    return WorkloadRef(kind, name)


def make_node(name: str = "n1", cpu: int = 4000, memory_mib: int = 16384, **more: Any) -> Node:
    """A ready node of a server that can lower memory limits in place."""
    return Node(name=name, allocatable=make_resources(cpu, memory_mib), **{"kubelet_version": (1, 34), **more})


def make_workload(
    ref: WorkloadRef | str = "Deployment/web", namespace: str = "shop", replicas: int | None = 3, **more: Any
) -> Workload:
    """A workload created long ago."""
    whole_ref = make_ref(ref) if isinstance(ref, str) else ref
    return Workload(namespace=namespace, ref=whole_ref, replicas=replicas, **{"created_at": LONG_AGO, **more})


def make_snapshot(
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] | None = None,
    workloads: Iterable[Workload] | None = None,
    budgets: Iterable[PodDisruptionBudget] = (),
    autoscalers: Iterable[HorizontalPodAutoscaler] = (),
    limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] | None = None,
    namespace_annotations: Mapping[str, Mapping[str, str]] | None = None,
    node_autoscaler: NodeAutoscalerKind | None = None,
) -> ClusterSnapshot:
    """A sorted snapshot; by default with one node per name that pods are on, and three replicas per workload."""
    all_pods = tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))
    if nodes is None:
        nodes = [make_node(name) for name in {pod.node for pod in all_pods} if name is not None]
    if workloads is None:
        owned = {(pod.namespace, pod.workload) for pod in all_pods if pod.workload is not None}
        workloads = [make_workload(ref, namespace) for namespace, ref in sorted(owned)]
    return ClusterSnapshot(
        nodes=tuple(sorted(nodes, key=lambda node: node.name)),
        pods=all_pods,
        workloads={(workload.namespace, workload.ref): workload for workload in workloads},
        budgets=tuple(budgets),
        autoscalers=tuple(autoscalers),
        limit_ranges=dict(limit_ranges or {}),
        namespace_annotations=dict(namespace_annotations or {}),
        node_autoscaler=node_autoscaler,
    )


def make_budget(
    name: str = "web",
    namespace: str = "shop",
    selector: LabelSelector | None = None,
    disruptions_allowed: int = 1,
) -> PodDisruptionBudget:
    """A disruption budget; by default over every pod of its namespace."""
    return PodDisruptionBudget(namespace, name, selector or LabelSelector(), disruptions_allowed)


def make_autoscaler(
    target: str = "Deployment/web", namespace: str = "shop", *resources: ResourceName, name: str = "web"
) -> HorizontalPodAutoscaler:
    """An autoscaler on the utilisation of `resources`, of CPU if none is given."""
    return HorizontalPodAutoscaler(namespace, name, make_ref(target), frozenset(resources or {ResourceName.CPU}))


def make_statistic(
    pod: str = "web-1",
    namespace: str = "shop",
    workload: str = "Deployment/web",
    container: str = "app",
    identity: str = "",
    cpu_base: int = 50,
    cpu_peak: int = 200,
    memory_base_mib: int = 64,
    memory_peak_mib: int = 100,
    memory_7d_max_mib: int | None = None,
    oom_memory_mib: int = 0,
    memory_last_mib: int | None = None,
    updated_at: int = NOW_SECONDS,
    history_since: int = int(LONG_AGO.timestamp()),
    psi_known: bool = True,
    rejected_percent: int = 0,
    cpu_7d_max: int = 0,
    cpu_start: int = 0,
) -> Statistic:
    """Fresh statistics of a container with a long history; memory in MiB, times in Unix seconds."""
    largest = max(memory_peak_mib, memory_base_mib)
    return Statistic(
        key=StatisticKey(namespace, pod, workload, container, identity),
        updated_at=updated_at,
        history_since=history_since,
        cpu_base_millicores=cpu_base,
        cpu_peak_millicores=cpu_peak,
        memory_base_bytes=memory_base_mib * MEBIBYTE,
        memory_peak_bytes=memory_peak_mib * MEBIBYTE,
        memory_7d_max_bytes=(largest if memory_7d_max_mib is None else memory_7d_max_mib) * MEBIBYTE,
        oom_memory_bytes=oom_memory_mib * MEBIBYTE,
        memory_last_bytes=(memory_base_mib if memory_last_mib is None else memory_last_mib) * MEBIBYTE,
        psi_known=psi_known,
        rejected_percent=rejected_percent,
        cpu_7d_max_millicores=cpu_7d_max,
        cpu_start_millicores=cpu_start,
    )


def make_statistic_for(pod: Pod, container: str = "app", **values: Any) -> Statistic:
    """The statistic of one container of a pod."""
    workload = "" if pod.workload is None else str(pod.workload)
    return make_statistic(pod.name, pod.namespace, workload, container, pod.identity, **values)


def make_table(*statistics: Statistic) -> StatisticsTable:
    """A table of the given statistics."""
    return StatisticsTable.from_rows(statistics)
