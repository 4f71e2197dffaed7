"""Pods on nodes that are not known: in which zone, or the like, they count is not known either."""

from collections.abc import Iterable

from cruise.domain.annotations import HOSTNAME
from cruise.domain.cluster import Pod
from cruise.domain.colocation import Surroundings


class Elsewhere:
    """The pods on nodes that are not known, and which others no rule can be judged of on their account."""

    def __init__(self, pods: Iterable[Pod], surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        # One for all that rules do not tell apart.
        self._pods = list({_seen_by_rules(pod): pod for pod in pods}.values())

    def why_not_judged(self, pod: Pod) -> str | None:
        """Say on which node a pod is that the rules of this one count, or that keeps it away; None for none."""
        for other in self._pods:
            if self._counts(pod, other) or self._keeps_apart(pod, other) or self._keeps_apart(other, pod):
                return f"its rules count pods on node {other.node}, which is not known"
        return None

    def _counts(self, pod: Pod, other: Pod) -> bool:
        """Tell whether the other one is company for a pod, or counts where it is spread."""
        spreads = pod.constraints.spread if other.namespace == pod.namespace and not other.terminating else ()
        return any(
            self._surroundings.mean(term, other.namespace, other.labels) for term in pod.constraints.affinity
        ) or any(one.counts(other.labels) for one in spreads)

    def _keeps_apart(self, holder: Pod, other: Pod) -> bool:
        """Tell whether anti-affinity of the one may keep the two apart on different nodes."""
        return any(
            term.topology_key != HOSTNAME and self._surroundings.mean(term, other.namespace, other.labels)
            for term in holder.constraints.anti_affinity
        )


def _seen_by_rules(pod: Pod) -> tuple[object, ...]:
    return pod.namespace, frozenset(pod.labels.items()), pod.constraints.anti_affinity, pod.terminating
