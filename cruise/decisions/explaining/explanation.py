"""Why a pod has, gets or keeps its numbers: its node's pass, with every step that the pass returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from cruise.decisions.admission.admission import Leave, Mutate, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacing import replacements
from cruise.decisions.eviction.earlier import SAME_AGAIN, Earlier
from cruise.decisions.eviction.ranking import rank_for_eviction
from cruise.decisions.explaining.size_steps import ContainerSteps, steps_of
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.other_autoscalers import UNCLAIMED, Claimed
from cruise.decisions.scan.risks import Risk, kill_risks_of
from cruise.decisions.sizing.fitting import Crowd
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.node_plans import NodePlan, SizedNodes, plans_of, size_snapshot
from cruise.domain.actions import EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import Container, Pod, Snapshot
from cruise.domain.details import Detail
from cruise.domain.overrides import Statement, StoredOverrides
from cruise.domain.policy import EvictionRanking, Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import Statistic, StatisticsTable


class Fate(StrEnum):
    """What the node pass does with a pod."""

    RESIZED = "resized"
    SETTLED = "settled"  # sized, but no change is worth a write
    AT_RISK = "at-risk"  # as settled, but a container of it was killed for lack of memory
    HELD = "held"
    EVICTED = "evicted"
    PENDING = "pending"  # on no node, so the node pass has nothing to decide


@dataclass(frozen=True, slots=True)
class Spike:
    """The largest headroom of a resource on a node, and the container that has it."""

    amount: int
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class Ranked:
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
    goes: ResourceName | None
    immovable: str | None


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
    kept_risks: Mapping[ResourceName, KeptRisk]
    fits: bool
    reason: Reason | None
    sized_pods: int
    held_pods: int
    spikes: Mapping[ResourceName, Spike | None]
    rankings: Mapping[ResourceName, tuple[Ranked, ...]]


@dataclass(frozen=True, slots=True)
class HeldContainer:
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
    fate: Fate
    statements: tuple[Statement, ...]
    guidance: Guidance | None
    ranking: EvictionRanking | None
    unmovable: str | None
    hold: Hold | None = None
    node: NodeExplanation | None = None
    steps: tuple[ContainerSteps, ...] = ()
    held: tuple[HeldContainer, ...] = ()
    resize: ResizePod | None = None
    eviction: EvictPod | None = None
    admission: Mutate | Leave | None = None
    claimed: Claimed = UNCLAIMED
    kills: tuple[Risk, ...] = ()


@dataclass(frozen=True, slots=True)
class Basis:
    """A cluster sized as a node pass sizes it, on which its pods are explained; `sized` is None where no node was."""

    snapshot: Snapshot
    statistics: StatisticsTable
    policy: Policy
    now: datetime
    refused: Mapping[str, RefusedTarget]
    headroom: Headroom
    eligibility: Eligibility
    sized: SizedNodes | None


def explain(
    pod: Pod,
    snapshot: Snapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedTarget] | None = None,
    headroom: Headroom = SHARED_MAX,
    earlier: Earlier = SAME_AGAIN,
) -> Explanation:
    """Explain one pod of the snapshot; `headroom` is the model as the node pass would prepare it.

    `earlier` is what the pass before saw.
    """
    is_there = any(node.name == pod.node for node in snapshot.nodes)
    # Where pods can go, what room is promised there and what quotas leave depends on the pods of other nodes.
    nodes = frozenset({pod.node or ""}) if not is_there or not policy.rules.careful_evictions else None
    basis = basis_of(
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
    return explain_on(basis, pod)


def basis_of(
    snapshot: Snapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedTarget] | None = None,
    headroom: Headroom = SHARED_MAX,
    earlier: Earlier = SAME_AGAIN,
    nodes: frozenset[str] | None = None,
) -> Basis:
    """Size a snapshot, or some of its `nodes`, as `explain` has it; this takes the work of a node pass."""
    eligibility = Eligibility(snapshot, statistics, stored or {}, policy, now)
    sized = (
        size_snapshot(
            snapshot,
            eligibility,
            statistics,
            policy,
            now,
            refused=refused,
            nodes=nodes,
            headroom=headroom,
            earlier=earlier,
            replacements=replacements,
        )
        if nodes is None or nodes
        else None
    )
    return Basis(snapshot, statistics, policy, now, refused or {}, headroom, eligibility, sized)


def explain_on(basis: Basis, pod: Pod) -> Explanation:
    """Explain one pod of a basis's snapshot."""
    snapshot, statistics, policy, eligibility = basis.snapshot, basis.statistics, basis.policy, basis.eligibility
    statements = eligibility.statements_of(pod)
    guidance = eligibility.guidance_of(pod)
    known = guidance if isinstance(guidance, Guidance) else None
    kills = kill_risks_of(pod, snapshot, statistics, policy, basis.now)
    rooms = [] if basis.sized is None else [room for room in basis.sized.rooms if room.node.name == pod.node]
    if basis.sized is None or not rooms:
        nodes = NodeIndex(snapshot.known_nodes)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        admission = decide_admission(pod, eligibility, statistics, nodes, ranges, policy)
        return Explanation(
            pod=pod,
            fate=Fate.PENDING,
            statements=statements,
            guidance=known,
            ranking=None,
            unmovable=None,
            held=_held(pod, statistics),
            admission=admission,
            claimed=eligibility.claimed(pod),
            kills=kills,
        )
    found = replace(basis.sized, rooms=rooms)
    [plan] = plans_of(found, policy, basis.refused, basis.now)
    own = next((at for at, one in enumerate(found.sized.columns.candidates.pods) if one.pod is pod), None)
    name = (pod.namespace, pod.name)
    resize = next((one for one in plan.resize if (one.namespace, one.pod) == name), None)
    eviction = next((one for one in plan.evict if (one.namespace, one.pod) == name), None)
    hold = next((one for one in plan.hold if (one.namespace, one.pod) == name), None)
    items = snapshot.limit_ranges.get(pod.namespace, ())
    sized = own is not None and eviction is None
    return Explanation(
        pod=pod,
        fate=_fate(resize, eviction, hold, kills),
        statements=statements,
        guidance=known,
        ranking=eligibility.evictability.ranking_of(pod, known) if known is not None else None,
        unmovable=eligibility.evictability.why_kept(pod, known)
        if known is not None
        else eligibility.evictability.why_protected(pod),
        hold=hold,
        node=_node(plan, found, basis.headroom),
        steps=steps_of(found.sized, own, statistics, items) if own is not None and sized else (),
        held=() if sized else _held(pod, statistics),
        resize=resize,
        eviction=eviction,
        claimed=eligibility.claimed(pod),
        kills=kills,
    )


def _fate(resize: ResizePod | None, eviction: EvictPod | None, hold: Hold | None, kills: Sequence[Risk]) -> Fate:
    if eviction is not None:
        return Fate.EVICTED
    if resize is not None:
        return Fate.RESIZED
    if hold is not None:
        return Fate.HELD
    return Fate.AT_RISK if kills else Fate.SETTLED


def _held(pod: Pod, statistics: StatisticsTable) -> tuple[HeldContainer, ...]:
    found = []
    for container in pod.containers:
        row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
        found.append(HeldContainer(container, statistics.row(row) if row is not None else None))
    return tuple(found)


def _node(plan: NodePlan, found: SizedNodes, headroom: Headroom) -> NodeExplanation:
    columns, [room] = found.sized.columns, found.rooms
    pods, crowd = columns.pods_of(room.number), found.crowds.get(room.number)
    return NodeExplanation(
        name=plan.node,
        allocatable=plan.allocatable,
        fixed=plan.allocatable - plan.available,
        available=plan.available,
        base=Resources(*(int(columns.base_of_nodes[resource][room.number]) for resource in ResourceName)),
        headroom=Resources(*(int(columns.spike_of_nodes[resource][room.number]) for resource in ResourceName)),
        staying_headroom=plan.headroom,
        rules={resource: headroom.rule(resource) for resource in ResourceName},
        kept_risks={one: kept for one in ResourceName if (kept := headroom.kept_risk(one)) is not None},
        fits=plan.fits,
        reason=plan.reason,
        sized_pods=len(pods),
        held_pods=len(room.holds),
        spikes={resource: _spike(plan, resource) for resource in ResourceName},
        rankings={
            resource: _ranking(crowd, pods, found, plan, resource)
            if crowd is not None and resource in plan.short
            else ()
            for resource in (ResourceName.MEMORY, ResourceName.CPU)
        },
    )


def _spike(plan: NodePlan, resource: ResourceName) -> Spike | None:
    largest: Spike | None = None
    for target in plan.targets:
        amount = target.cpu_headroom_millicores if resource is ResourceName.CPU else target.memory_headroom_bytes
        if amount > (largest.amount if largest is not None else 0):
            largest = Spike(amount, target.namespace, target.pod, target.container)
    return largest


def _ranking(
    crowd: Crowd, pods: Sequence[int], found: SizedNodes, plan: NodePlan, resource: ResourceName
) -> tuple[Ranked, ...]:
    """Return the candidates in their order, then those that may not go."""
    gone = {(one.namespace, one.pod): one.resource for one in plan.evict}
    candidates = rank_for_eviction(crowd.contenders, resource)
    others = [index for index in range(len(crowd.contenders)) if index not in set(candidates)]
    return tuple(
        Ranked(
            contender.namespace,
            contender.name,
            contender.ranking,
            contender.priority,
            contender.headroom.of(resource),
            contender.base.of(resource),
            gone.get((contender.namespace, contender.name)),
            crowd.why_kept[index]
            or (Detail.UNMANAGED.of(resource) if resource not in contender.candidate_for else None)
            or found.sized.fit.kept.get(pods[index]),
        )
        for index in [*candidates, *others]
        for contender in [crowd.contenders[index]]
    )
