"""The workloads of a simulated cluster: controllers with their pod templates and the demand of their containers."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cruise.domain.cluster import Container, ContainerRole, Node, Pod, Workload, WorkloadRef
from cruise.domain.pod_resources import get_qos_class
from cruise.domain.scheduling import (
    UNSCHEDULABLE_TAINT,
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    TaintEffect,
    Toleration,
)
from cruise.simulation.demand.demand import ContainerProfile

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DAEMON_TOLERATIONS = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", exists=True, effect=effect)
    for key, effect in (
        ("disk-pressure", TaintEffect.NO_SCHEDULE),
        ("memory-pressure", TaintEffect.NO_SCHEDULE),
        ("not-ready", TaintEffect.NO_EXECUTE),
        ("pid-pressure", TaintEffect.NO_SCHEDULE),
        ("unreachable", TaintEffect.NO_EXECUTE),
        ("unschedulable", TaintEffect.NO_SCHEDULE),
    )
)


@dataclass(frozen=True, slots=True)
class SimulatedWorkload:
    """A controller: Deployment, StatefulSet, DaemonSet, Job, CronJob or CronWorkflow; without `ref` one bare pod.

    The template's name, uid, node, owner and status are ignored (a bare pod keeps its name). `profiles` has the demand
    of containers by name; a container without one uses nothing. A CronJob starts a pod at every multiple of
    `period_seconds`, a CronWorkflow a Workflow with `replicas` pods; such pods, and those of Jobs, succeed after
    `duration_seconds`. `created_at` is by default the start.
    A pod is ready once all its containers have run for `ready_seconds`; the pods of `never_ready` slots never are.
    """

    namespace: str
    ref: WorkloadRef | None
    template: Pod
    replicas: int = 1
    profiles: Mapping[str, ContainerProfile] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    grace_seconds: int = 30
    period_seconds: int = 3600
    duration_seconds: int = 600
    ready_seconds: int = 0
    never_ready: frozenset[int] = frozenset()

    @property
    def kind(self) -> str:
        """The controller's kind, Pod for a bare pod."""
        return "Pod" if self.ref is None else self.ref.kind

    @property
    def finishes(self) -> bool:
        """Return whether its pods run to completion."""
        return self.kind in ("Job", "CronJob", "CronWorkflow")

    @property
    def pods_per_run(self) -> int:
        """Return how many pods each run of a CronJob or CronWorkflow has; their slots follow one another."""
        return self.replicas if self.kind == "CronWorkflow" else 1

    @property
    def counts_replicas(self) -> bool:
        """Return whether it has a number of replicas."""
        return self.kind not in ("Pod", "DaemonSet", "Job", "CronJob", "CronWorkflow")

    def to_workload(self, start: datetime) -> Workload | None:
        """Return the workload object, None for a bare pod."""
        if self.ref is None:
            return None
        replicas = self.replicas if self.counts_replicas else None
        limits = {one.name: one.limits.memory_bytes for one in self.template.containers}
        return Workload(
            self.namespace,
            self.ref,
            replicas,
            self.annotations,
            self.created_at or start,
            memory_limits={name: limit for name, limit in limits.items() if limit is not None},
            requests={one.name: one.requests for one in self.template.containers},
            init_containers=frozenset(
                [one.name for one in self.template.containers if one.role is not ContainerRole.MAIN]
            ),
        )


def create_pod(workload: SimulatedWorkload, slot: int, serial: int, seed: int, now: datetime, node: Node | None) -> Pod:
    """Return the pod that the controller creates for a slot; seed, workload, slot and serial determine name and uid.

    `serial` counts the slot's pods; `node` is the node of a DaemonSet pod. The slot of a CronJob's pod counts the
    periods since the Unix epoch, that of a CronWorkflow's the pods of all of them.
    """
    salt = f"{seed}/{workload.namespace}/{workload.ref}/{workload.template.name}"
    suffix = _letters(f"{salt}/{slot}/{serial}", 5)
    name, owner_kind, owner_name, identity = workload.template.name, None, None, ""
    if workload.ref is not None:
        owner_kind, owner_name = workload.ref.kind, workload.ref.name
        match workload.kind:
            case "Deployment":
                owner_kind, owner_name = "ReplicaSet", f"{workload.ref.name}-{_letters(salt, 10)}"
            case "CronJob":
                owner_kind, owner_name = "Job", f"{workload.ref.name}-{slot * workload.period_seconds // 60}"
            case "CronWorkflow":
                run = slot // workload.pods_per_run
                owner_kind, owner_name = "Workflow", f"{workload.ref.name}-{run * workload.period_seconds}"
            case _:
                pass
        name = f"{owner_name}-{suffix}"
        if workload.kind == "StatefulSet":
            name, identity = f"{owner_name}-{slot}", str(slot)
        elif workload.kind == "DaemonSet" and node is not None:
            identity = node.name
    template = workload.template
    pod = replace(
        template,
        namespace=workload.namespace,
        name=name,
        uid=_uid(f"{salt}/{slot}/{serial}"),
        containers=tuple(_unreported(container) for container in template.containers),
        node=None,
        workload=workload.ref,
        owner_kind=owner_kind,
        owner_name=owner_name,
        identity=identity,
        phase="Pending",
        ready=False,
        terminating=False,
        created_at=now,
        placement=template.placement if node is None else _daemon_placement(template.placement, node),
        unschedulable_since=None,
    )
    return replace(pod, qos=get_qos_class(pod))


def is_daemonset_node(workload: SimulatedWorkload, node: Node) -> bool:
    """Return whether the DaemonSet controller creates a pod for the node."""
    placement = workload.template.placement
    taints = (*node.taints, UNSCHEDULABLE_TAINT) if node.unschedulable else node.taints
    tolerant = replace(placement, tolerations=placement.tolerations + _DAEMON_TOLERATIONS)
    return placement.allows_node(node.name, node.labels) and tolerant.tolerates_all(taints)


def _daemon_placement(placement: SchedulingConstraints, node: Node) -> SchedulingConstraints:
    pin = LabelRequirement("metadata.name", SelectorOperator.IN, (node.name,))
    terms = placement.terms if placement.terms is not None else (NodeSelectorTerm(),)
    return SchedulingConstraints(
        placement.node_selector,
        tuple(replace(term, fields=(*term.fields, pin)) for term in terms),
        placement.tolerations + _DAEMON_TOLERATIONS,
    )


def _unreported(container: Container) -> Container:
    return replace(container, allocated=None, actual=None, actual_limits=None, restart_count=0)


def _letters(salt: str, count: int) -> str:
    digest = hashlib.sha256(salt.encode()).digest()
    return "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in digest[:count])


def _uid(salt: str) -> str:
    digits = hashlib.sha256(f"uid/{salt}".encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
