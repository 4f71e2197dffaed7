"""The pods that a stage expects: they are created in place of others, and each is sent to a node."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cruise.decisions.packing.execution.rest import need_of, pods_of, sizes_of
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.cordons import tolerates_cordon
from cruise.domain.packing import Arrival, PackingPlan, Stage, Steering
from cruise.domain.policy import Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.sizes import with_sizes


def expecting(plan: PackingPlan, stage: Stage, snapshot: Snapshot, policy: Policy, until: datetime) -> PackingPlan:
    """Return the plan with the pods that its present stage expects, and those of the same owners that exist already.

    No pod was evicted for that stage yet.
    """
    pods = pods_of(snapshot)
    moving = [one for one in stage.leaves if isinstance(one, Arrival)]
    astray = find_astray(plan, stage, snapshot) if policy.mode >= Mode.FULL else []
    expected = tuple(
        Steering(
            plan=plan.id,
            replaces=one.uid,
            namespace=one.namespace,
            owner_kind=pod.owner_kind or "",
            owner_name=pod.owner_name,
            pod=one.pod if pod.owner_kind == "StatefulSet" else None,
            node=one.target,
            until=until,
            containers=sizes_of(stage, one),
        )
        for one in (*moving, *astray)
        if (pod := pods.get(one.uid)) is not None and pod.owner_name is not None
    )
    return with_bystanders(replace(plan, expected=expected), snapshot)


def with_bystanders(plan: PackingPlan, snapshot: Snapshot) -> PackingPlan:
    """Return the plan with the pods that exist now of the owners of expected pods."""
    owners = {(one.namespace, one.owner_kind, one.owner_name) for one in plan.expected}
    names = {one.owner_name for one in plan.expected}
    there = tuple(
        pod.uid
        for pod in (snapshot.pods if owners else ())
        if pod.owner_name in names and (pod.namespace, pod.owner_kind, pod.owner_name) in owners
    )
    return plan if there == plan.bystanders else replace(plan, bystanders=there)


def find_astray(plan: PackingPlan, stage: Stage, snapshot: Snapshot) -> list[Arrival]:
    """Return the pending pods that kube-scheduler might send where the plan needs the room.

    With what leaves out of the way they fit on a node that is not theirs, and in the end they would not. A pod
    that would only change places with one like it is not among them, nor one that runs to completion: its owner may
    take its deletion for a failure.
    """
    pods = pods_of(snapshot)
    coming = [one for one in stage.arrivals if one.source is None and one.uid in pods]
    waiting = [one for one in coming if pods[one.uid].node is None]
    if not waiting:
        return []
    stages = plan.proposal.stages[plan.stage :]
    # On all others there is in the end no less than soon.
    targets = {one.target for its in stages for one in its.arrivals}
    nodes = [node for node in snapshot.nodes if node.name in targets]
    there = [pod for pod in snapshot.pods if pod.node in targets and not pod.terminal]
    soon = _free(nodes, there, [stage])
    finally_free = _free(nodes, there, stages)
    for its, one in ((stage, arrival) for stage in stages for arrival in stage.arrivals):
        pod = pods.get(one.uid)
        if pod is not None and one.target in finally_free and (pod.node is None or one.source is not None):
            finally_free[one.target] -= need_of(pod, sizes_of(its, one))

    def kind_of(one: Arrival) -> tuple[object, ...]:
        pod = pods[one.uid]
        return pod.namespace, pod.owner_kind, pod.owner_name, need_of(pod, sizes_of(stage, one))

    def may_stray(one: Arrival) -> bool:
        pod, need = pods[one.uid], need_of(pods[one.uid], sizes_of(stage, one))
        alike = {other.target for other in coming if kind_of(other) == kind_of(one)}
        return any(
            need.fits_in(soon[node.name]) and not need.fits_in(finally_free[node.name]) and _lets_in(node, pod)
            for node in nodes
            if node.name not in alike
        )

    return [one for one in waiting if not pods[one.uid].runs_to_completion and may_stray(one)]


def _lets_in(node: Node, pod: Pod) -> bool:
    placement = pod.placement
    is_open = node.takes_pods and (tolerates_cordon(pod) or not node.unschedulable)
    return is_open and placement.admits(node.name, node.labels) and placement.tolerates_all(node.taints)


def _free(nodes: Sequence[Node], there: Sequence[Pod], stages: Sequence[Stage]) -> dict[str, Resources]:
    """Return what nodes have free once the stages' leaves are gone and their resizes in force, without arrivals."""
    leaving = {one.uid for stage in stages for one in stage.leaves}
    sizes = {one.uid: one.containers for stage in stages for one in stage.resizes}
    taken: defaultdict[str | None, Resources] = defaultdict(Resources)
    for pod in there:
        if pod.uid not in leaving:
            targets = sizes.get(pod.uid)
            taken[pod.node] += counted_requests(pod) if targets is None else need_of(with_sizes(pod, targets))
    return {node.name: node.allocatable - taken.get(node.name, NO_RESOURCES) for node in nodes}
