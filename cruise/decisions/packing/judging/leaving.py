"""Which pods may be taken off a node, read once more from the cluster's own objects."""

from collections import Counter
from collections.abc import Sequence

from cruise.decisions.guidance.covering import CoveringBudgets
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.guidance.other_autoscalers import OtherAutoscalers
from cruise.decisions.guidance.pending_lookups import pending_lookup
from cruise.decisions.guidance.quotas import grants
from cruise.decisions.scheduling.claims import UNUSABLE, claims_of, why_unusable, why_volumes_not_judged
from cruise.domain.annotations import DO_NOT_DISRUPT, SAFE_TO_EVICT, Guidance, Unreadable
from cruise.domain.cluster import DEFAULT_SCHEDULER, Pod, Snapshot
from cruise.domain.overrides import StoredOverrides, resolve_overrides, vertical_layers
from cruise.domain.packing import Allowance
from cruise.domain.policy import EvictionRanking, Mode, Policy


class Leaving:
    """The rules on which pods a plan may move or preempt, for one snapshot."""

    def __init__(self, snapshot: Snapshot, policy: Policy, stored: StoredOverrides) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._stored = stored
        self._closed = {
            node.name: "its node is being deleted" if node.ready else "its node is not ready, so it would not end"
            for node in snapshot.nodes
            if not node.takes_pods
        }
        self._others = OtherAutoscalers(snapshot)
        self._vertical = vertical_layers(snapshot)
        self.covering = CoveringBudgets(snapshot.budgets)

    def why_stays(self, pod: Pod) -> str | None:
        """Say why the pod may not be taken off its node; None if it may."""
        if pod.terminal or pod.terminating:
            return "it ends by itself"
        if pod.mirror or pod.owner_kind is None or pod.owner_kind == "DaemonSet":
            return "no controller would start it elsewhere"
        if pod.node in self._closed:
            return self._closed[pod.node]
        if pod.scheduler != DEFAULT_SCHEDULER:
            return f"scheduler {pod.scheduler} would place it"
        return self.why_anothers(pod) or self._why_guarded(pod) or self._why_not_created_again(pod)

    def why_anothers(self, pod: Pod) -> str | None:
        """Say that a VerticalPodAutoscaler holds the pod, or that it is not known yet whether one does; else None."""
        claimed = self._others.of(pod)
        if claimed.sized_by:
            return "another autoscaler sizes it"
        pending = pending_lookup(pod, self._snapshot, claimed)
        return f"it is not known yet what decides about it ({pending})" if pending else None

    def mode_of(self, pod: Pod) -> Mode:
        """How far cruise may go with the pod; off where it is excluded or its annotations cannot be read."""
        guidance = self.guidance_of(pod)
        excluded = self._policy.excludes(pod.namespace)
        return Mode.OFF if excluded or isinstance(guidance, Unreadable) else guidance.mode

    def why_claims_are_unusable(self, pod: Pod) -> str | None:
        """Say which claim keeps a pod pending wherever it goes; None if all are bound, or bind with it."""
        surroundings = self._snapshot.surroundings
        unjudged = why_volumes_not_judged(surroundings, pod)
        if unjudged is not None:
            return f"its {unjudged}"
        for name, claim in claims_of(surroundings, pod):
            unusable = why_unusable(pod, name, claim)
            if unusable is not None:
                return f"its claim {name} {UNUSABLE[unusable]}"
        return None

    def _why_guarded(self, pod: Pod) -> str | None:
        if pod.annotations.get(SAFE_TO_EVICT) == "false":
            return f"its annotation {SAFE_TO_EVICT}"
        for annotation in DO_NOT_DISRUPT:
            if pod.annotations.get(annotation, "false") != "false":
                return f"its annotation {annotation}"
        if len(self.covering.of(pod)) > 1:
            return "more than one disruption budget covers it"
        if self.mode_of(pod) is not Mode.FULL:
            return f"its mode is {self.mode_of(pod).label}"
        guidance = self.guidance_of(pod)
        ranking = guidance.ranking if isinstance(guidance, Guidance) else None
        if pod.runs_to_completion and self._policy.rules.careful_evictions and ranking is not EvictionRanking.LOW:
            return "it runs to completion and would lose its work"
        return "its ranking is never" if ranking is EvictionRanking.NEVER else None

    def _why_not_created_again(self, pod: Pod) -> str | None:
        """Say why the API server, or what is known of its volumes, would keep a replacement from running."""
        if breaks_limit_range(pod, (), self._snapshot.limit_ranges.get(pod.namespace, ())):
            return "a LimitRange would refuse its replacement"
        if not grants(pod, self._snapshot.quotas.get(pod.namespace, ())):
            return "a ResourceQuota would refuse its replacement"
        if pod.pod_group:
            return f"its replacement waits for all of pod group {pod.pod_group}"
        return self.why_claims_are_unusable(pod)

    def guidance_of(self, pod: Pod) -> Guidance | Unreadable:
        """The overrides that hold for a pod: its own, its workload's, its namespace's, the stored ones."""
        return resolve_overrides(
            pod.annotations,
            pod.namespace,
            pod.workload,
            self._snapshot,
            self._stored,
            self._policy.mode,
            self._vertical,
        ).guidance


def find_broken_budgets(leaving: Leaving, gone: Sequence[Pod]) -> list[str]:
    """Say which disruption budgets the whole plan exceeds."""
    return [
        f"disruption budget {one.namespace}/{one.name} allows {one.disruptions_allowed}, the plan evicts {many}"
        for one, many in leaving.covering.overdrawn(gone)
    ]


def find_overdrawn(allowance: Allowance, gone: Sequence[Pod]) -> list[str]:
    """Say which eviction budgets the whole plan exceeds."""
    found = [("evictions in this hour", len(gone), allowance.in_all)]
    of_nodes = Counter(pod.node for pod in gone if pod.node is not None)
    found += [(f"evictions from node {node}", many, allowance.on_node(node)) for node, many in sorted(of_nodes.items())]
    of_workloads = Counter((pod.namespace, pod.workload) for pod in gone if pod.workload is not None)
    found += [
        (f"evictions of {ref} in {namespace}", many, allowance.of_workload(namespace, ref))
        for (namespace, ref), many in sorted(of_workloads.items())
    ]
    return [
        f"{what}: {allowed} left, {many} planned"
        for what, many, allowed in found
        if allowed is not None and many > allowed
    ]
