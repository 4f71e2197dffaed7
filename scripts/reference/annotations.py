"""The page of annotations and labels, from the table that reads them."""

from collections.abc import Iterable, Iterator, Mapping

from cruise.domain.annotations import ALL_ANNOTATIONS, OVERRIDES, PER_CONTAINER, Annotation, OverrideSource
from cruise.domain.policy import EvictionRanking, MemoryLimitPolicy, Mode
from scripts.reference.markdown import code, page, section, table

_WORDS: Mapping[str, tuple[str, str]] = {
    "cruise.io/mode": (
        ", ".join(code(mode.label) for mode in Mode),
        "How far cruise goes with it; the lowest of cluster, namespace and workload counts.",
    ),
    "cruise.io/eviction-ranking": (
        ", ".join(code(one.label) for one in EvictionRanking),
        "Who goes first where a node does not hold its pods. Unset: `medium` for StatefulSets and single replicas, "
        "else `low`. A pod that runs to completion is evicted only where `low` is stated.",
    ),
    "cruise.io/resources": ("`cpu`, `memory`, `cpu,memory`", "What is sized; the other is left as it is."),
    "cruise.io/headroom-factor": ("0 to 10", "Multiplies the pod's headroom."),
    "cruise.io/memory-limits": (
        ", ".join(code(one.value) for one in MemoryLimitPolicy),
        "Which memory limits cruise changes, as the setting `memory_limits` has it for the whole cluster.",
    ),
    "cruise.io/cpu-min": ("0, or 10m up to the largest node", "No smaller CPU request."),
    "cruise.io/cpu-max": ("10m up to the largest node", "No larger CPU request."),
    "cruise.io/memory-min": ("0, or 16Mi up to the largest node", "No smaller memory request."),
    "cruise.io/memory-max": ("16Mi up to the largest node", "No larger memory request."),
}
_OTHERS: Mapping[str, str] = {
    "cruisekube.truefoundry.com/excluded": "`true`: left alone, as with `cruise.io/mode: off`.",
    "admission.robusta.dev/krr-mutation-mode": "`enforce`: KRR's enforcer sizes the pod, so cruise leaves it alone.",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "`false`: never evicted or moved.",
    "karpenter.sh/do-not-disrupt": "Anything but `false`: never evicted or moved.",
    "karpenter.sh/do-not-evict": "The same, of Karpenter before 0.32.",
    "cruisekube.truefoundry.com/do-not-disrupt": "The same.",
    "cruise.io/original-resources": "Written by the webhook: what the pod asked for, for `cruise revert`.",
    "cruise.io/original-resources-signature": "Written by the webhook: that it wrote the one above.",
    "cruise.io/steered": "Written by the webhook: the pod that this one replaces, and the node that it is to prefer.",
    "kubernetes.io/config.mirror": "Tells a static pod, which the API server cannot resize.",
    "pv.kubernetes.io/bind-completed": "Tells that a claim is bound.",
    "volume.kubernetes.io/selected-node": "The node that a claim waits for.",
    "storage.alpha.kubernetes.io/migrated-plugins": "On a CSINode: the plugins from before CSI that drivers replace.",
    "scheduling.x-k8s.io/pod-group": "The group that a pod is scheduled with (scheduler-plugins): it is never evicted "
    "or moved, and where it may run is not judged.",
    "pod-group.scheduling.sigs.k8s.io": "The same, of older releases.",
    "pod-group.scheduling.sigs.k8s.io/name": "The same.",
    "kueue.x-k8s.io/pod-group-name": "The same, of Kueue.",
    "scheduling.volcano.sh/group-name": "The same, of Volcano.",
    "scheduling.k8s.io/group-name": "The same, of Volcano and kube-batch.",
    "gang.scheduling.koordinator.sh/name": "The same, of Koordinator.",
    "volume.beta.kubernetes.io/storage-class": "The storage class of an old claim.",
    "kubernetes.io/metadata.name": "The name of a namespace, for selectors.",
    "kubernetes.io/os": "The node's operating system: Windows pods are left alone.",
    "kubernetes.io/hostname": "The node's name, for volumes and spreading.",
    "topology.kubernetes.io/zone": "The node's zone.",
    "topology.kubernetes.io/region": "The node's region.",
    "failure-domain.beta.kubernetes.io/zone": "The node's zone, on old volumes.",
    "failure-domain.beta.kubernetes.io/region": "The node's region, on old volumes.",
    "app.kubernetes.io/name": "Tells Karpenter, cluster-autoscaler and Prometheus by their Deployments and Services.",
    "app.kubernetes.io/component": "The same.",
    "app.kubernetes.io/instance": "The release of a chart, which names exported files.",
    "app.kubernetes.io/managed-by": "Tells VerticalPodAutoscalers that cruise has made from those of users.",
    "node.kubernetes.io/instance-type": "The node's type: nodes of one kind are alike.",
    "karpenter.sh/nodepool": "A node that Karpenter made, and its pool.",
    "karpenter.sh/provisioner-name": "The same, of Karpenter before 0.32.",
    "cloud.google.com/gke-nodepool": "The node's pool, on GKE.",
    "eks.amazonaws.com/nodegroup": "The node's group, on EKS.",
    "kubernetes.azure.com/agentpool": "The node's pool, on AKS.",
}
_INTRODUCTION = """What guides cruise stands in annotations on a pod's template, its workload or its namespace, or
is stored by the API under the same names without `cruise.io/`; the nearest counts, in this
order, except for the mode, of which the lowest counts. An annotation that cannot be read
leaves its pods alone, with the reason and an Event.

What a workload's own annotations ask beyond the requests of its pod template is granted from
room that is free: no other pod is evicted or made smaller for it. Annotations of the
namespace, and the API, may do more."""


def annotations_page() -> str:
    """Return the page. Raises ValueError where one has no description, or a description is of none."""
    described = {*_WORDS, *_OTHERS}
    names = {one.name for one in ALL_ANNOTATIONS}
    if described != names:
        raise ValueError(f"annotations.py: described or read, not both: {', '.join(sorted(described ^ names))}")
    bounds = {one.name for one in PER_CONTAINER}
    guiding = table(
        ("annotation", "values", "meaning"),
        ((_named(one.name, one.name in bounds), *_WORDS[one.name]) for one in OVERRIDES.values()),
    )
    others = [one for one in ALL_ANNOTATIONS if one.name not in _WORDS]
    written = [one for one in others if one.allowed_sources == (OverrideSource.CRUISE,)]
    heeded = [one for one in others if OverrideSource.POD in one.allowed_sources]
    rest = [one for one in others if one not in written and one not in heeded]
    return page(
        "Annotations and labels",
        _INTRODUCTION,
        section("That guide cruise", guiding),
        section("Of others, that are obeyed", _table(heeded)),
        section("That cruise writes", _table(written)),
        section("Of Kubernetes and others, that are read", _table(rest)),
    )


def _named(name: str, by_container: bool) -> str:
    return f"{code(name)}, {code(f'{name}.CONTAINER')}" if by_container else code(name)


def _table(annotations: Iterable[Annotation]) -> str:
    return table(("annotation or label", "meaning"), _rows(annotations))


def _rows(annotations: Iterable[Annotation]) -> Iterator[tuple[str, str]]:
    for one in annotations:
        yield code(one.name), _OTHERS[one.name]
