"""Explains why a pod has, gets or keeps its sizes: the plan of its node, with every step of the computation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import numpy as np

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacement_pods import explain_startup_cpu_of_new_pod, predict_replacement_pods
from cruise.decisions.admission.startup import StartupBoostStep
from cruise.decisions.eviction.ranking import rank_for_eviction
from cruise.decisions.explanation.size_steps import ContainerSteps, build_size_steps
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.other_autoscalers import NO_AUTOSCALER_CLAIMS, AutoscalerClaims
from cruise.decisions.pod_policy.resizable_pod import mark_nodes_that_refuse_resizes
from cruise.decisions.pod_policy.startup_boosts import get_boost_end, has_boost_in_force
from cruise.decisions.scan.risks import ContainerRisk, find_oom_kill_risks
from cruise.decisions.sizing.demand import get_headroom_above_base
from cruise.decisions.sizing.fitting import ContendedNode
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.decisions.sizing.node_plans import NodePlan, SizedNodes, SizingContext, build_node_plans, size_cluster
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.actions import EvictPod, ReasonCode, ResizePod, SkippedPod
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads, StatedSetting
from cruise.domain.policy import EvictionRanking, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.startup_boosts import StartupBoost, find_startup_boosts
from cruise.domain.usage import Statistic, StatisticsTable

_FIRST_PASS = SizingContext()


class PodOutcome(StrEnum):
    """What the node pass does with a pod."""

    RESIZED = "resized"
    NO_CHANGE_NEEDED = "no-change-needed"  # sized, but no change is worth a resize
    AT_RISK = "at-risk"  # no change needed, but one of its containers was killed for lack of memory
    SKIPPED = "skipped"
    EVICTED = "evicted"
    PENDING = "pending"  # on no node, so the node pass does not size it


@dataclass(frozen=True, slots=True)
class LargestHeadroom:
    """The largest headroom of a resource on a node, and the container that has it."""

    amount: int
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class RankedPod:
    """One pod in the eviction order for a resource.

    `evicted_for` is the resource that it is evicted for (possibly the other one), None if it stays;
    `not_evicted_reason` is the reason why it may not or need not be evicted.
    """

    namespace: str
    pod: str
    ranking: EvictionRanking
    priority: int
    headroom: int
    base: int
    evicted_for: ResourceName | None
    not_evicted_reason: str | None


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """The sums of a node; `fixed` is what pods that are not resized and all overheads take of its allocatable.

    `base` and `headroom` (the largest single one) belong to all resizable pods before evictions, as the fit counts
    them; `remaining_headroom` is what the remaining pods share, computed by the models in `rules`. `largest_headrooms`
    and `rankings` are by resource, a ranking empty if the node needs no eviction.
    """

    name: str
    allocatable: Resources
    fixed: Resources
    available: Resources
    base: Resources
    headroom: Resources
    remaining_headroom: Resources
    rules: Mapping[ResourceName, str]
    observed_risks: Mapping[ResourceName, ObservedRisk]
    fits: bool
    reason: ReasonCode | None
    sized_pods: int
    skipped_pods: int
    largest_headrooms: Mapping[ResourceName, LargestHeadroom | None]
    rankings: Mapping[ResourceName, tuple[RankedPod, ...]]


@dataclass(frozen=True, slots=True)
class SkippedContainer:
    """A container that is not sized, with its statistic if it has one."""

    container: Container
    statistic: Statistic | None


@dataclass(frozen=True, slots=True)
class StartupExplanation:
    """The boosts of a pod that starts, and when they end (None: unknown yet); `steps` are those of a new pod."""

    boosts: tuple[StartupBoost, ...]
    ends_at: datetime | None
    steps: Sequence[StartupBoostStep]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome for one pod, and everything that led to it.

    `steps` holds the containers that are sized, `skipped_containers` the others; `oom_kills` its containers that were
    killed for lack of memory; `admission` what a pending pod would be created with; `startup` the CPU of its start.
    """

    pod: Pod
    outcome: PodOutcome
    statements: tuple[StatedSetting, ...]
    effective_policy: EffectivePolicy | None
    ranking: EvictionRanking | None
    not_evictable_reason: str | None
    skipped: SkippedPod | None = None
    node: NodeExplanation | None = None
    steps: tuple[ContainerSteps, ...] = ()
    skipped_containers: tuple[SkippedContainer, ...] = ()
    resize: ResizePod | None = None
    eviction: EvictPod | None = None
    admission: MutatePod | LeaveUnchanged | None = None
    autoscaler_claims: AutoscalerClaims = NO_AUTOSCALER_CLAIMS
    oom_kills: tuple[ContainerRisk, ...] = ()
    startup: StartupExplanation | None = None


@dataclass(frozen=True, slots=True)
class ExplanationContext:
    """A cluster sized by a node pass, so that its pods can be explained; `node_sizing` is None if no node was sized."""

    snapshot: ClusterSnapshot
    statistics: StatisticsTable
    policy: Policy
    now: datetime
    sizing: SizingContext
    eligibility: Eligibility
    node_sizing: SizedNodes | None


def explain_pod(
    pod: Pod,
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
    context: SizingContext = _FIRST_PASS,
) -> Explanation:
    """Explain one pod of the snapshot; `context` holds the headroom model as the node pass prepares it."""
    node_exists = any(node.name == pod.node for node in snapshot.nodes)
    # Destinations, capacity reserved for replacements, and quotas depend on the pods of other nodes.
    nodes = None if policy.rules.eviction_safeguards else frozenset({pod.node or ""})
    basis = prepare_explanations(
        snapshot,
        statistics,
        policy,
        now,
        paused_workloads=paused_workloads,
        context=context,
        nodes=nodes if node_exists else frozenset(),
    )
    return explain_pod_in_context(basis, pod)


def prepare_explanations(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
    context: SizingContext = _FIRST_PASS,
    nodes: frozenset[str] | None = None,
) -> ExplanationContext:
    """Size a snapshot, or some of its `nodes`, for explanations; this takes as long as a node pass."""
    context = replace(context, replacements=predict_replacement_pods)
    snapshot = mark_nodes_that_refuse_resizes(snapshot, context.refused)
    eligibility = Eligibility(snapshot, statistics, paused_workloads, policy, now)
    sized = size_cluster(snapshot, eligibility, policy, now, context, nodes) if nodes is None or nodes else None
    return ExplanationContext(snapshot, statistics, policy, now, context, eligibility, sized)


def explain_pod_in_context(basis: ExplanationContext, pod: Pod) -> Explanation:
    """Explain one pod of the basis."""
    snapshot, statistics, policy, eligibility = basis.snapshot, basis.statistics, basis.policy, basis.eligibility
    statements = eligibility.get_stated_settings(pod)
    policy_or_error = eligibility.get_effective_policy(pod)
    effective_policy = policy_or_error if isinstance(policy_or_error, EffectivePolicy) else None
    startup = explain_startup_cpu_of_pod(pod, snapshot, eligibility, policy)
    kills = find_oom_kill_risks(pod, snapshot, statistics, policy, basis.now)
    capacities = (
        [] if basis.node_sizing is None else [one for one in basis.node_sizing.capacities if one.node.name == pod.node]
    )
    if basis.node_sizing is None or not capacities:
        nodes = NodeIndex(snapshot.known_nodes)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        admission = decide_admission(pod, eligibility, statistics, nodes, ranges, policy)
        return Explanation(
            pod=pod,
            outcome=PodOutcome.PENDING,
            statements=statements,
            effective_policy=effective_policy,
            ranking=None,
            not_evictable_reason=None,
            skipped_containers=_list_skipped_containers(pod, statistics, pod.containers),
            admission=admission,
            autoscaler_claims=eligibility.get_autoscaler_claims(pod),
            oom_kills=kills,
            startup=startup,
        )
    sizing = replace(basis.node_sizing, capacities=capacities)
    [plan] = build_node_plans(sizing, policy, basis.sizing.refused, basis.now)
    candidates = sizing.result.columns.candidates.pods
    index = next((at for at, one in enumerate(candidates) if one.pod is pod), None)
    name = (pod.namespace, pod.name)
    resize = next((one for one in plan.resize if (one.namespace, one.pod) == name), None)
    eviction = next((one for one in plan.evict if (one.namespace, one.pod) == name), None)
    skipped = next((one for one in plan.skipped if (one.namespace, one.pod) == name), None)
    items = snapshot.limit_ranges.get(pod.namespace, ())
    is_sized = index is not None and eviction is None
    kept = candidates[index].kept_containers if index is not None and is_sized else pod.containers
    return Explanation(
        pod=pod,
        outcome=_find_outcome(resize, eviction, skipped, kills),
        statements=statements,
        effective_policy=effective_policy,
        ranking=eligibility.evictability.get_ranking(pod, effective_policy) if effective_policy is not None else None,
        not_evictable_reason=eligibility.explain_not_evictable_for_sizing(pod, effective_policy)
        if effective_policy is not None
        else eligibility.evictability.explain_protection(pod),
        skipped=skipped,
        node=_explain_node(plan, sizing, basis.sizing.headroom),
        steps=build_size_steps(sizing.result, index, eligibility.statistics, items, policy)
        if index is not None and is_sized
        else (),
        skipped_containers=_list_skipped_containers(pod, statistics, kept),
        resize=resize,
        eviction=eviction,
        autoscaler_claims=eligibility.get_autoscaler_claims(pod),
        oom_kills=kills,
        startup=startup,
    )


def explain_startup_cpu_of_pod(
    pod: Pod, snapshot: ClusterSnapshot, eligibility: Eligibility, policy: Policy
) -> StartupExplanation | None:
    """Explain the CPU of a pod's start, None if nothing is stated for it and it has none."""
    boosts = find_startup_boosts(pod) if has_boost_in_force(pod, eligibility.now) else ()
    steps = explain_startup_cpu_of_new_pod(pod, snapshot, eligibility, NodeIndex(snapshot.known_nodes), policy)
    if not boosts and not steps:
        return None
    return StartupExplanation(boosts, get_boost_end(pod) if boosts else None, steps)


def _find_outcome(
    resize: ResizePod | None, eviction: EvictPod | None, skipped: SkippedPod | None, kills: Sequence[ContainerRisk]
) -> PodOutcome:
    if eviction is not None:
        return PodOutcome.EVICTED
    if resize is not None:
        return PodOutcome.RESIZED
    if skipped is not None:
        return PodOutcome.SKIPPED
    return PodOutcome.AT_RISK if kills else PodOutcome.NO_CHANGE_NEEDED


def _list_skipped_containers(
    pod: Pod, statistics: StatisticsTable, containers: Sequence[Container]
) -> tuple[SkippedContainer, ...]:
    found = []
    for container in containers:
        row = statistics.find_row(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        found.append(SkippedContainer(container, statistics.get_row(row) if row is not None else None))
    return tuple(found)


def _explain_node(plan: NodePlan, sizing: SizedNodes, headroom: HeadroomModel) -> NodeExplanation:
    columns, [capacity] = sizing.result.columns, sizing.capacities
    pods, contended = columns.get_pods_on_node(capacity.number), sizing.contended.get(capacity.number)
    return NodeExplanation(
        name=plan.node,
        allocatable=plan.allocatable,
        fixed=plan.allocatable - plan.available,
        available=plan.available,
        base=Resources(*(int(columns.base_by_node[resource][capacity.number]) for resource in ResourceName)),
        headroom=Resources(
            *(int(columns.largest_headroom_by_node[resource][capacity.number]) for resource in ResourceName)
        ),
        remaining_headroom=plan.headroom,
        rules={resource: headroom.name for resource in ResourceName},
        observed_risks={
            one: observed_risk for one in ResourceName if (observed_risk := headroom.get_observed_risk(one)) is not None
        },
        fits=plan.fits,
        reason=plan.reason,
        sized_pods=len(pods),
        skipped_pods=len(capacity.skipped_pods),
        largest_headrooms={
            resource: _find_largest_headroom(sizing.result, pods, resource) for resource in ResourceName
        },
        rankings={
            resource: _rank_pods(contended, pods, sizing, plan, resource)
            if contended is not None and resource in plan.shortages
            else ()
            for resource in (ResourceName.MEMORY, ResourceName.CPU)
        },
    )


def _find_largest_headroom(sized: SizingResult, pods: Sequence[int], resource: ResourceName) -> LargestHeadroom | None:
    candidates = sized.columns.candidates
    headroom = get_headroom_above_base(candidates, sized.columns.table.get_resource(resource))
    remaining = [pod for pod in pods if sized.fit.remains[pod]]
    rows = np.flatnonzero(np.isin(candidates.pod_of_container, remaining))
    if not headroom[rows].any():
        return None
    at = int(rows[np.argmax(headroom[rows])])
    number = int(candidates.pod_of_container[at])
    pod = candidates.pods[number]
    container = pod.sized[at - int(candidates.first_container[number])]
    return LargestHeadroom(int(headroom[at]), pod.pod.namespace, pod.pod.name, container.name)


def _rank_pods(
    contended: ContendedNode, pods: Sequence[int], sizing: SizedNodes, plan: NodePlan, resource: ResourceName
) -> tuple[RankedPod, ...]:
    """Return the eviction candidates in order, then the pods that may not be evicted."""
    evicted_for = {(one.namespace, one.pod): one.resource for one in plan.evict}
    candidates = rank_for_eviction(contended.candidates, resource)
    others = [index for index in range(len(contended.candidates)) if index not in set(candidates)]
    return tuple(
        RankedPod(
            candidate.namespace,
            candidate.name,
            candidate.ranking,
            candidate.priority,
            candidate.headroom.get(resource),
            candidate.base.get(resource),
            evicted_for.get((candidate.namespace, candidate.name)),
            contended.not_evictable_reasons[index]
            or (ReasonDetailCode.NOT_MANAGED.create(resource) if resource not in candidate.evictable_for else None)
            or sizing.result.fit.not_evicted.get(pods[index]),
        )
        for index in [*candidates, *others]
        for candidate in [contended.candidates[index]]
    )
