"""Why a pod has, gets or keeps its numbers: its node's pass, with every step that the pass returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, EarlierPasses, rank_for_eviction
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.other_autoscalers import NO_AUTOSCALER_CLAIMS, AutoscalerClaims
from cruise.decisions.scan.risks import ContainerRisk, find_oom_kill_risks
from cruise.decisions.size_steps import ContainerSteps, build_size_steps
from cruise.decisions.sizing.fitting import ContendedNode
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM, HeadroomModel
from cruise.decisions.sizing.node_plans import NodePlan, NodeSizing, SizingContext, build_node_plans, size_cluster
from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.domain.actions import EvictPod, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.overrides import StatedSetting, StoredOverrides
from cruise.domain.policy import EvictionRanking, Policy
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import Statistic, StatisticsTable


class PodOutcome(StrEnum):
    """What the node pass does with a pod."""

    RESIZED = "resized"
    NO_CHANGE_NEEDED = "no-change-needed"  # sized, but no change is worth a write
    AT_RISK = "at-risk"  # as settled, but a container of it was killed for lack of memory
    SKIPPED = "skipped"
    EVICTED = "evicted"
    PENDING = "pending"  # on no node, so the node pass has nothing to decide


@dataclass(frozen=True, slots=True)
class LargestHeadroom:
    """The largest headroom of a resource on a node, and the container that has it."""

    amount: int
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class RankedPod:
    """One pod in the order of eviction for a resource.

    `goes` is the resource on whose account it goes, which may be the other one, None where it stays; `immovable` is
    the detail that forbids it or spares it, None where it may go.
    """

    namespace: str
    pod: str
    ranking: EvictionRanking
    priority: int
    headroom: int
    base: int
    is_evicted: ResourceName | None
    not_evictable: str | None


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """The sums of a node: `fixed` is what pods that are not sized and all overheads take from its allocatable.

    `base` and `headroom` are those of all pods that take part, before any eviction: the largest single headroom, which
    the fit goes by. `staying_headroom` is what the pods that stay share, found by the rule in `rules`, and `kept_risks`
    how stated risks were kept. `spikes` and `rankings` are by resource, a ranking empty where the node needs no
    eviction.
    """

    name: str
    allocatable: Resources
    fixed: Resources
    available: Resources
    base: Resources
    headroom: Resources
    staying_headroom: Resources
    rules: Mapping[ResourceName, str]
    observed_risks: Mapping[ResourceName, ObservedRisk]
    fits: bool
    reason: ReasonCode | None
    sized_pods: int
    skipped_pods: int
    spikes: Mapping[ResourceName, LargestHeadroom | None]
    rankings: Mapping[ResourceName, tuple[RankedPod, ...]]


@dataclass(frozen=True, slots=True)
class SkippedContainer:
    """A container that is not sized: what it asks for, and its statistic where there is one."""

    container: Container
    statistic: Statistic | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One pod's fate and all that led to it.

    `steps` has its containers where it is sized, `held` where it is not; `hold` why it is left alone or held back;
    `kills` has its containers that were killed for lack of memory;
    `admission` what a pod in its place would be created with, for a pod that is pending; `claimed` what other
    autoscalers do to it.
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


@dataclass(frozen=True, slots=True)
class ExplanationBasis:
    """A cluster sized as a node pass sizes it, on which its pods are explained; `sized` is None where no node was."""

    snapshot: ClusterSnapshot
    statistics: StatisticsTable
    policy: Policy
    now: datetime
    refused: Mapping[str, RefusedResize]
    headroom: HeadroomModel
    eligibility: Eligibility
    sized: NodeSizing | None


def explain_pod(
    pod: Pod,
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedResize] | None = None,
    headroom: HeadroomModel = SHARED_MAX_HEADROOM,
    earlier: EarlierPasses = ASSUME_UNCHANGED,
) -> Explanation:
    """Explain one pod of the snapshot; `headroom` is the model as the node pass would prepare it.

    `earlier` is what the pass before saw.
    """
    is_there = any(node.name == pod.node for node in snapshot.nodes)
    # Where pods can go, what room is promised there and what quotas leave depends on the pods of other nodes.
    nodes = frozenset({pod.node or ""}) if not is_there or not policy.rules.eviction_safeguards else None
    basis = prepare_basis(
        snapshot,
        statistics,
        policy,
        now,
        stored=stored,
        refused=refused,
        headroom=headroom,
        earlier=earlier,
        nodes=nodes if is_there else frozenset(),
    )
    return explain_pod_on_basis(basis, pod)


def prepare_basis(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedResize] | None = None,
    headroom: HeadroomModel = SHARED_MAX_HEADROOM,
    earlier: EarlierPasses = ASSUME_UNCHANGED,
    nodes: frozenset[str] | None = None,
) -> ExplanationBasis:
    """Size a snapshot, or some of its `nodes`, as `explain` has it; this takes the work of a node pass."""
    eligibility = Eligibility(snapshot, statistics, stored or {}, policy, now)
    sized = (
        size_cluster(
            snapshot,
            eligibility,
            statistics,
            policy,
            now,
            SizingContext(refused or {}, headroom, earlier, predict_replacement_pods),
            nodes,
        )
        if nodes is None or nodes
        else None
    )
    return ExplanationBasis(snapshot, statistics, policy, now, refused or {}, headroom, eligibility, sized)


def explain_pod_on_basis(basis: ExplanationBasis, pod: Pod) -> Explanation:
    """Explain one pod of a basis's snapshot."""
    snapshot, statistics, policy, eligibility = basis.snapshot, basis.statistics, basis.policy, basis.eligibility
    statements = eligibility.get_stated_settings(pod)
    guidance = eligibility.get_effective_policy(pod)
    known = guidance if isinstance(guidance, EffectivePolicy) else None
    kills = find_oom_kill_risks(pod, snapshot, statistics, policy, basis.now)
    rooms = [] if basis.sized is None else [room for room in basis.sized.capacities if room.node.name == pod.node]
    if basis.sized is None or not rooms:
        nodes = NodeIndex(snapshot.known_nodes)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        admission = decide_admission(pod, eligibility, statistics, nodes, ranges, policy)
        return Explanation(
            pod=pod,
            outcome=PodOutcome.PENDING,
            statements=statements,
            effective_policy=known,
            ranking=None,
            not_evictable_reason=None,
            skipped_containers=_held(pod, statistics),
            admission=admission,
            autoscaler_claims=eligibility.get_autoscaler_claims(pod),
            oom_kills=kills,
        )
    found = replace(basis.sized, capacities=rooms)
    [plan] = build_node_plans(found, policy, basis.refused, basis.now)
    own = next((at for at, one in enumerate(found.sized.columns.candidates.pods) if one.pod is pod), None)
    name = (pod.namespace, pod.name)
    resize = next((one for one in plan.resize if (one.namespace, one.pod) == name), None)
    eviction = next((one for one in plan.evict if (one.namespace, one.pod) == name), None)
    hold = next((one for one in plan.skipped if (one.namespace, one.pod) == name), None)
    items = snapshot.limit_ranges.get(pod.namespace, ())
    sized = own is not None and eviction is None
    return Explanation(
        pod=pod,
        outcome=_fate(resize, eviction, hold, kills),
        statements=statements,
        effective_policy=known,
        ranking=eligibility.evictability.get_ranking(pod, known) if known is not None else None,
        not_evictable_reason=eligibility.evictability.explain_not_evictable(pod, known)
        if known is not None
        else eligibility.evictability.explain_protection(pod),
        skipped=hold,
        node=_node(plan, found, basis.headroom),
        steps=build_size_steps(found.sized, own, statistics, items) if own is not None and sized else (),
        skipped_containers=() if sized else _held(pod, statistics),
        resize=resize,
        eviction=eviction,
        autoscaler_claims=eligibility.get_autoscaler_claims(pod),
        oom_kills=kills,
    )


def _fate(
    resize: ResizePod | None, eviction: EvictPod | None, hold: SkippedPod | None, kills: Sequence[ContainerRisk]
) -> PodOutcome:
    if eviction is not None:
        return PodOutcome.EVICTED
    if resize is not None:
        return PodOutcome.RESIZED
    if hold is not None:
        return PodOutcome.SKIPPED
    return PodOutcome.AT_RISK if kills else PodOutcome.NO_CHANGE_NEEDED


def _held(pod: Pod, statistics: StatisticsTable) -> tuple[SkippedContainer, ...]:
    found = []
    for container in pod.containers:
        row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        found.append(SkippedContainer(container, statistics.row(row) if row is not None else None))
    return tuple(found)


def _node(plan: NodePlan, found: NodeSizing, headroom: HeadroomModel) -> NodeExplanation:
    columns, [room] = found.sized.columns, found.capacities
    pods, crowd = columns.get_pods_on_node(room.number), found.contended.get(room.number)
    return NodeExplanation(
        name=plan.node,
        allocatable=plan.allocatable,
        fixed=plan.allocatable - plan.available,
        available=plan.available,
        base=Resources(*(int(columns.base_by_node[resource][room.number]) for resource in ResourceName)),
        headroom=Resources(
            *(int(columns.largest_headroom_by_node[resource][room.number]) for resource in ResourceName)
        ),
        staying_headroom=plan.headroom,
        rules={resource: headroom.rule(resource) for resource in ResourceName},
        observed_risks={one: kept for one in ResourceName if (kept := headroom.get_observed_risk(one)) is not None},
        fits=plan.fits,
        reason=plan.reason,
        sized_pods=len(pods),
        skipped_pods=len(room.skipped_pods),
        spikes={resource: _spike(plan, resource) for resource in ResourceName},
        rankings={
            resource: _ranking(crowd, pods, found, plan, resource)
            if crowd is not None and resource in plan.shortages
            else ()
            for resource in (ResourceName.MEMORY, ResourceName.CPU)
        },
    )


def _spike(plan: NodePlan, resource: ResourceName) -> LargestHeadroom | None:
    largest: LargestHeadroom | None = None
    for target in plan.targets:
        amount = target.cpu_headroom_millicores if resource is ResourceName.CPU else target.memory_headroom_bytes
        if amount > (largest.amount if largest is not None else 0):
            largest = LargestHeadroom(amount, target.namespace, target.pod, target.container)
    return largest


def _ranking(
    crowd: ContendedNode, pods: Sequence[int], found: NodeSizing, plan: NodePlan, resource: ResourceName
) -> tuple[RankedPod, ...]:
    """Return the candidates in their order, then those that may not go."""
    gone = {(one.namespace, one.pod): one.resource for one in plan.evict}
    candidates = rank_for_eviction(crowd.candidates, resource)
    others = [index for index in range(len(crowd.candidates)) if index not in set(candidates)]
    return tuple(
        RankedPod(
            contender.namespace,
            contender.name,
            contender.ranking,
            contender.priority,
            contender.headroom.get(resource),
            contender.base.get(resource),
            gone.get((contender.namespace, contender.name)),
            crowd.not_evictable_reasons[index]
            or (ReasonDetail.NOT_MANAGED.create(resource) if resource not in contender.evictable_for else None)
            or found.sized.fit.not_evicted.get(pods[index]),
        )
        for index in [*candidates, *others]
        for contender in [crowd.candidates[index]]
    )
