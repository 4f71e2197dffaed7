"""How the CPU of a pod's start was decided, for `explain`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cruise.decisions.admission.admission import build_startup_cpu_constraints, decide_admission, explain_startup
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacement_pods import recreate_from_template
from cruise.decisions.admission.startup import StartupBoostStep
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.startup_boosts import get_boost_end, has_boost_in_force
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import Policy
from cruise.domain.startup_boosts import StartupBoost, find_startup_boosts


@dataclass(frozen=True, slots=True)
class StartupExplanation:
    """The boosts of a pod that starts, and when they end (None: unknown yet); `steps` are those of a new pod."""

    boosts: tuple[StartupBoost, ...]
    ends_at: datetime | None
    steps: Sequence[StartupBoostStep]


def explain_startup_cpu_of_pod(
    pod: Pod, snapshot: ClusterSnapshot, eligibility: Eligibility, policy: Policy
) -> StartupExplanation | None:
    """Explain the CPU of a pod's start, None if nothing is stated for it and it has none."""
    boosts = find_startup_boosts(pod) if has_boost_in_force(pod, eligibility.now) else ()
    steps = explain_startup_cpu_of_new_pod(pod, snapshot, eligibility, NodeIndex(snapshot.known_nodes), policy)
    if not boosts and not steps:
        return None
    return StartupExplanation(boosts, get_boost_end(pod) if boosts else None, steps)


def explain_startup_cpu_of_new_pod(
    pod: Pod, snapshot: ClusterSnapshot, eligibility: Eligibility, nodes: NodeIndex, policy: Policy
) -> list[StartupBoostStep]:
    """Explain the CPU of the start of a pod that its controller would create now."""
    new_pod = recreate_from_template(pod, snapshot) if pod.node is not None else pod
    ranges, quotas = snapshot.limit_ranges.get(pod.namespace, ()), snapshot.quotas.get(pod.namespace, ())
    settled = decide_admission(
        new_pod, eligibility, eligibility.statistics, nodes, ranges, policy, quotas, boosts_startup=False
    )
    terms = build_startup_cpu_constraints(new_pod, eligibility, nodes, ranges, policy)
    return explain_startup(new_pod, settled, terms, quotas)
