"""Why the real scheduler bound a pod to another node than its placement hint names."""

from collections.abc import Iterator

from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.scheduling import TaintEffect


def list_eviction_reasons(snapshot: ClusterSnapshot, pod: Pod, target: Node, taken: Node) -> Iterator[str]:
    """Say what draws a pod more strongly than its preference for a node; `snapshot` has it where it went.

    In kube-scheduler's default weights the steering's preference counts up to 200; taints that ask to keep away count
    up to 300, and others' required affinity for the pod up to 200. What nodes have left counts up to 100 for how much,
    and as much for how evenly.
    """
    repelled = {node.name: sum(_repels(pod, node)) for node in (target, taken)}
    if repelled[target.name] > repelled[taken.name]:
        yield f"{target.name} has a PreferNoSchedule taint that it does not tolerate, which counts more"
    drawn = {node.name: _pull(snapshot, pod, node) for node in (target, taken)}
    if drawn[taken.name] > drawn[target.name]:
        yield f"pods that require its nearness are nearer to {taken.name}, which counts as much"


def _repels(pod: Pod, node: Node) -> Iterator[bool]:
    for taint in node.taints:
        if taint.effect is TaintEffect.PREFER_NO_SCHEDULE:
            yield not any(toleration.tolerates(taint) for toleration in pod.placement.tolerations)


def _pull(snapshot: ClusterSnapshot, pod: Pod, node: Node) -> int:
    """How many terms of required affinity mean the pod, of pods in the node's domains."""
    nodes = {one.name: one for one in snapshot.nodes}
    labels = snapshot.storage_and_namespaces.namespace_labels.get(pod.namespace, {})
    found = 0
    for other in snapshot.pods:
        if other.node is None or (other.namespace, other.name) == (pod.namespace, pod.name):
            continue
        for term in other.constraints.affinity:
            domain = nodes[other.node].labels.get(term.topology_key)
            near = domain is not None and domain == node.labels.get(term.topology_key)
            found += near and term.matches(pod.namespace, pod.labels, labels)
    return found
