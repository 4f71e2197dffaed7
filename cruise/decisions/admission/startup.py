"""The CPU that containers request while they start, beyond their sizes (`cruise.io/startup-cpu`, `startup`).

The sizes after the start are decided as always. A new pod gets a boost only if an in-place resize can take it back, and
that resize is decided 30 seconds after the pod became ready.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cruise.decisions.admission.node_index import LargestNodeCutOptions, NodeIndex
from cruise.decisions.pod_policy.container_bounds import compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import select_limit_ranges
from cruise.decisions.pod_policy.resizable_pod import SKIP_REASON_BY_MODE
from cruise.decisions.pod_policy.startup_boosts import get_boost_end, has_boost_in_force
from cruise.decisions.sizing.resizes import build_resize
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizePod
from cruise.domain.annotations import EffectivePolicy, UnreadableAnnotations
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, Container, Pod, QosClass
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import CpuLimitPolicy, Mode, Policy, ResizeDirection, StartupPolicy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.startup_boosts import StartupBoost, find_startup_boosts
from cruise.domain.startup_cpu import StartupCpu


@dataclass(frozen=True, slots=True)
class StartupCpuConstraints:
    """What bounds a boost besides the pod and its policy; `limit_ranges` are those of the pod's namespace."""

    eligibility: Eligibility
    nodes: NodeIndex
    largest_node: LargestNodeCutOptions
    limit_ranges: Sequence[LimitRangeItem]
    policy: Policy


@dataclass(frozen=True, slots=True)
class StartupBoostStep:
    """One container that asks for more CPU while it starts: its boost, or the reason why it gets none."""

    container: str
    stated: StartupCpu
    boost: StartupBoost | None
    reason: ReasonCode | None


def build_startup_boost_steps(
    pod: Pod, settled: Sequence[ContainerTarget], terms: StartupCpuConstraints
) -> list[StartupBoostStep]:
    """Return a step for each container with a CPU for its start; `settled` has all sizes after the start."""
    effective_policy = terms.eligibility.get_effective_policy(pod)
    if isinstance(effective_policy, UnreadableAnnotations):
        return []
    sizes = {one.container: one for one in settled}
    steps = []
    for container in pod.sized_containers:
        own = effective_policy.get_for_container(container.name)
        stated = StartupCpu(is_learned=terms.policy.startup is StartupPolicy.LEARN)
        stated = stated if own.startup_cpu is None else own.startup_cpu
        if stated != StartupCpu():
            steps.append(_decide_step(pod, container, sizes[container.name], own, stated, terms))
    return _fit_largest_node(pod, settled, steps, terms)


def add_startup_boosts(settled: Sequence[ContainerTarget], boosts: Sequence[StartupBoost]) -> list[ContainerTarget]:
    """Return the sizes during the start."""
    by_container = {one.container: one for one in boosts}
    return [
        replace(
            target,
            requests=replace(target.requests, cpu_millicores=boost.boosted_request),
            limits=replace(target.limits, cpu_millicores=boost.boosted_limit),
        )
        if (boost := by_container.get(target.container)) is not None
        else target
        for target in settled
    ]


def _decide_step(
    pod: Pod,
    container: Container,
    target: ContainerTarget,
    own: EffectivePolicy,
    stated: StartupCpu,
    terms: StartupCpuConstraints,
) -> StartupBoostStep:
    reason = _explain_no_boost(pod, container, own, terms)
    request, limit = target.requests.cpu_millicores, target.limits.cpu_millicores
    if reason is None and not request:
        # A share of nothing is nothing, and a pod that gets a request now would have to keep it.
        reason = ReasonCode.CPU_NOT_MANAGED
    amount = stated
    if reason is None and stated.is_learned:
        learned = _find_learned_start(pod, container, terms)
        reason = learned if isinstance(learned, ReasonCode) else None
        amount = learned if isinstance(learned, StartupCpu) else stated
    if reason is not None or request is None:
        return StartupBoostStep(container.name, stated, None, reason)
    if stated.is_learned and amount.apply_to(request) == request:
        return StartupBoostStep(container.name, stated, None, ReasonCode.NO_CHANGE_NEEDED)
    ranges = select_limit_ranges(container, terms.limit_ranges)
    bounds = compute_container_bounds(own, container.name, ranges, terms.policy)
    most_request, most_limit = bounds.whole_unit_bounds[1], bounds.whole_unit_bounds[4]
    boosted = min(amount.apply_to(request), max(request, most_request))
    boosted_limit = limit
    if limit is not None:
        if pod.qos is QosClass.GUARANTEED and limit == request:
            boosted = boosted_limit = boosted if not bounds.keeps_cpu_limit else request
        elif bounds.cpu_limits is CpuLimitPolicy.KEEP:
            boosted = min(boosted, limit)
        else:
            # The limit would throttle the start: it keeps its ratio to the request.
            boosted_limit = min(limit * boosted // request, max(limit, most_limit))
            boosted = min(boosted, boosted_limit)
    if boosted <= request:
        return StartupBoostStep(container.name, stated, None, ReasonCode.AT_MAXIMUM)
    boost = StartupBoost(container.name, boosted, boosted_limit, request, limit)
    return StartupBoostStep(container.name, stated, boost, None)


def _find_learned_start(pod: Pod, container: Container, terms: StartupCpuConstraints) -> StartupCpu | ReasonCode:
    """Return the CPU that earlier starts of the workload used, or why it is not known."""
    statistics = terms.eligibility.statistics
    row = statistics.find_row(pod.namespace, "", pod.workload, container.name, "")
    reason = terms.eligibility.explain_unusable_statistics(pod, [row])
    if reason is not None or row is None:
        return reason or ReasonCode.NO_STATISTICS
    learned = statistics.cpu_start_millicores.item(row)
    return StartupCpu(cpu_millicores=learned) if learned else ReasonCode.START_UNKNOWN


def _explain_no_boost(
    pod: Pod, container: Container, own: EffectivePolicy, terms: StartupCpuConstraints
) -> ReasonCode | None:
    """Return why a container must start with its size, None if it may start with more."""
    eligibility = terms.eligibility
    claims, autoscaler = eligibility.get_autoscaler_claims(pod), eligibility.get_bounding_autoscaler(pod)
    metrics = () if autoscaler is None or autoscaler.scaling is None else autoscaler.scaling.metrics
    is_scaled = any(one.resource is ResourceName.CPU and one.container in ("", container.name) for one in metrics)
    mode = min(own.mode, terms.policy.mode)
    is_managed = ResourceName.CPU in own.resources and own.direction is ResizeDirection.BOTH
    # The HPA divides by the requests of all pods. Larger ones of pods that start would delay the next replica.
    is_scaled = is_scaled or ResourceName.CPU in claims.scaled
    is_sized = bool(claims.sized_by) and ResourceName.CPU not in claims.get_unclaimed_resources(container.name)
    obstacles = (
        (SKIP_REASON_BY_MODE.get(mode, ReasonCode.MODE_OFF), mode < Mode.RESIZE),
        (ReasonCode.CPU_NOT_MANAGED, not is_managed),
        (ReasonCode.MANAGED_BY_HPA, is_scaled),
        (ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, is_sized),
        (ReasonCode.POD_LEVEL_RESOURCES, pod.pod_level is not None),
        (ReasonCode.RESIZE_RESTARTS, container.cpu_resize_restarts),
        (ReasonCode.RESIZE_UNSUPPORTED, eligibility.has_kubelets_without_resize),
        (ReasonCode.STATIC_CPU_MANAGER, pod.qos is QosClass.GUARANTEED and eligibility.has_static_managers),
    )
    return next((reason for reason, applies in obstacles if applies), None)


def _fit_largest_node(
    pod: Pod, settled: Sequence[ContainerTarget], steps: Sequence[StartupBoostStep], terms: StartupCpuConstraints
) -> list[StartupBoostStep]:
    """Return the steps without boosts if no node that the pod may run on could hold them all."""
    boosts = [one.boost for one in steps if one.boost is not None]
    if not boosts:
        return list(steps)
    boosted = replace_spec_resources(pod, add_startup_boosts(settled, boosts))
    needed: Resources = count_pod_requests(boosted) + terms.largest_node.reserved_capacity
    if any(needed.fits_in(capacity) for capacity in terms.nodes.find_capacities(pod)):
        return list(steps)
    return [
        one if one.boost is None else replace(one, boost=None, reason=ReasonCode.INSUFFICIENT_CAPACITY) for one in steps
    ]


def select_boosted_pods(snapshot: ClusterSnapshot, now: datetime) -> list[Pod]:
    """Return the bound pods that still have the CPU of their start."""
    return [pod for pod in snapshot.pods if pod.node is not None and has_boost_in_force(pod, now)]


def decide_boost_ends(
    pods: list[Pod], eligibility: Eligibility, refused: Mapping[str, RefusedResize], now: datetime
) -> list[ResizePod]:
    """Return the resizes that take back the CPU of boosted pods whose time is over.

    Neither statistics nor write damping matter: the size was decided at creation. A pod that may not be resized any
    more keeps what it has, and so does one with a resize in progress or whose node refused this.
    """
    resizes = []
    for pod in pods:
        end = get_boost_end(pod)
        if end is None or end > now or pod.phase != "Running" or pod.terminating or pod.resize.pending is not None:
            continue
        if eligibility.explain_no_resize(pod) is not None:
            continue
        containers = {one.name: one for one in pod.containers}
        targets = tuple([one.get_sizes_after_start(containers[one.container]) for one in find_startup_boosts(pod)])
        earlier = refused.get(pod.uid)
        if earlier is not None and earlier.containers == targets:
            continue
        resizes.append(build_resize(pod, targets, NO_RESOURCES, ReasonCode.START_COMPLETED))
    return resizes
