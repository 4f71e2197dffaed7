"""The reference page of annotations and labels, from the table in `cruise/domain/annotations.py`."""

from collections.abc import Iterable, Iterator, Mapping

from cruise.domain.annotations import (
    ALL_ANNOTATIONS,
    OVERRIDES,
    POD_SETTINGS,
    WORKLOAD,
    Annotation,
    OverrideSource,
)
from cruise.domain.run_to_completion_operators import OPERATORS
from scripts.reference.markdown import code, page, section, table


def _list_choices(setting: str) -> str:
    return ", ".join(map(code, OVERRIDES[setting].choices))


OVERRIDE_WORDS: Mapping[str, tuple[str, str]] = {
    "cruise.io/mode": (
        _list_choices("mode"),
        "What cruise may do; the lowest of cluster, namespace, workload and container applies. "
        "A container's mode says whether it is sized; eviction follows the pod's.",
    ),
    "cruise.io/eviction-ranking": (
        _list_choices("eviction-ranking"),
        "The order of eviction if a node cannot run its pods. Unset: `medium` for StatefulSets and single replicas, "
        "else `low`. A pod that runs to completion is evicted only with `low`.",
    ),
    "cruise.io/resources": ("`cpu`, `memory`, `cpu,memory`", "The resources that are sized."),
    "cruise.io/headroom-factor": ("0 to 10", "Multiplies the headroom."),
    "cruise.io/memory-limits": (
        _list_choices("memory-limits"),
        "Which memory limits cruise changes, as the setting `memory_limits` for the cluster.",
    ),
    "cruise.io/cpu-limits": (
        _list_choices("cpu-limits"),
        "What happens to CPU limits, as the setting `cpu_limits` for the cluster.",
    ),
    "cruise.io/direction": (
        _list_choices("direction"),
        "`grow`: no request or limit is decreased; `shrink`: none is increased, after an OOM kill neither.",
    ),
    "cruise.io/startup-cpu": (
        "`1x` to `10x`, 10m up to the largest machine, `learn`, or `off`",
        "The CPU request of a new pod until it has been ready for 30 seconds, as a factor of its size, as an amount, "
        "or what earlier starts of the workload used, as the setting `startup` for the cluster. "
        "See [slow starts](../operating.md#slow-starts).",
    ),
    "cruise.io/guaranteed": (
        _list_choices("guaranteed"),
        "Whether Guaranteed pods are sized, as the setting `guaranteed` for the cluster.",
    ),
    "cruise.io/best-effort": (
        _list_choices("best-effort"),
        "Whether new pods without any requests get them, as the setting `best_effort` for the cluster.",
    ),
    "cruise.io/hpa": (
        _list_choices("hpa"),
        "Whether requests on whose utilization an HPA acts change, as the setting `hpa` for the cluster.",
    ),
    "cruise.io/cpu-min": ("0, or 10m up to the largest node", "The minimum of the CPU request."),
    "cruise.io/cpu-max": ("10m up to the largest node", "The maximum of the CPU request."),
    "cruise.io/memory-min": ("0, or 16Mi up to the largest node", "The minimum of the memory request."),
    "cruise.io/memory-max": ("16Mi up to the largest node", "The maximum of the memory request."),
}
_OTHERS: Mapping[str, str] = {
    "cruisekube.truefoundry.com/excluded": "`true`: skipped, as with `cruise.io/mode: off`.",
    "cruise.io/workload": "Annotation or label, on pods without a lasting owner: pods with the same value are one "
    "workload, also pods without a controller. See "
    "[pods that run to completion](../operating.md#pods-that-run-to-completion).",
    "admission.robusta.dev/krr-mutation-mode": "`enforce`: KRR's enforcer sizes the pod, so cruise skips it.",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "`false`: never evicted or moved.",
    "karpenter.sh/do-not-disrupt": "Any value except `false`: never evicted or moved.",
    "karpenter.sh/do-not-evict": "The same, for Karpenter before 0.32.",
    "cruisekube.truefoundry.com/do-not-disrupt": "The same.",
    "cruise.io/startup-boost": "Written by the webhook: the CPU of containers while they start, and afterwards.",
    "cruise.io/original-resources": (
        "Written by the webhook: the pod's original requests and limits, for `cruise revert`."
    ),
    "cruise.io/original-resources-signature": "Written by the webhook: its signature of the annotation above.",
    "cruise.io/steered": "Written by the webhook: the pod that this one replaces, and the node that it prefers.",
    "kubernetes.io/config.mirror": "Marks a static pod, which the API server cannot resize.",
    "pv.kubernetes.io/bind-completed": "Marks a bound claim.",
    "volume.kubernetes.io/selected-node": "The node that was selected for a claim.",
    "storage.alpha.kubernetes.io/migrated-plugins": "On a CSINode: the in-tree plugins that CSI drivers replace.",
    "scheduling.x-k8s.io/pod-group": "The group that a pod is scheduled with (scheduler-plugins): it is never evicted "
    "or moved, and its placement is not evaluated.",
    "pod-group.scheduling.sigs.k8s.io": "The same, for older releases.",
    "pod-group.scheduling.sigs.k8s.io/name": "The same.",
    "kueue.x-k8s.io/pod-group-name": "The same, for Kueue.",
    "scheduling.volcano.sh/group-name": "The same, for Volcano.",
    "scheduling.k8s.io/group-name": "The same, for Volcano and kube-batch.",
    "gang.scheduling.koordinator.sh/name": "The same, for Koordinator.",
    "volume.beta.kubernetes.io/storage-class": "The storage class of an old claim.",
    "kubernetes.io/metadata.name": "The name of a namespace, for selectors.",
    "kubernetes.io/os": "The node's operating system: Windows pods are skipped; no pod is moved to another system.",
    "kubernetes.io/arch": "The node's architecture: a pod moves to another one only if its placement states the label.",
    "kubernetes.io/hostname": "The node's name, for volumes and spreading.",
    "topology.kubernetes.io/zone": "The node's zone.",
    "topology.kubernetes.io/region": "The node's region.",
    "failure-domain.beta.kubernetes.io/zone": "The node's zone, on old volumes.",
    "failure-domain.beta.kubernetes.io/region": "The node's region, on old volumes.",
    "app.kubernetes.io/name": "Identifies Deployments and Services of Karpenter, cluster-autoscaler and Prometheus.",
    "app.kubernetes.io/component": "The same.",
    "app.kubernetes.io/instance": "The release of a chart, which names exported files.",
    "app.kubernetes.io/managed-by": "Marks VerticalPodAutoscalers that cruise created.",
    "node.kubernetes.io/instance-type": "The node's type.",
    "karpenter.sh/nodepool": "The pool of a node that Karpenter created.",
    "karpenter.sh/provisioner-name": "The same, for Karpenter before 0.32.",
    "cloud.google.com/gke-nodepool": "The node's pool, on GKE.",
    "eks.amazonaws.com/nodegroup": "The node's group, on EKS.",
    "eks.amazonaws.com/compute-type": "`fargate`: the node is virtual (`virtual-node`).",
    "liqo.io/type": "`virtual-node`: the node represents another cluster (`virtual-node`).",
    "kubernetes.azure.com/agentpool": "The node's pool, on AKS.",
    "karpenter.sh/capacity-type": "`spot`: the node has the spot price of its type (`node_prices`).",
    "eks.amazonaws.com/capacityType": "`SPOT`: the same, on EKS.",
    "kubernetes.azure.com/scalesetpriority": "`spot`: the same, on AKS.",
    "cloud.google.com/gke-spot": "`true`: the same, on GKE.",
    "cloud.google.com/gke-preemptible": "`true`: the same, on GKE.",
}
_INTRODUCTION = """Configure cruise for single workloads with annotations on a pod's template, its workload or its
namespace, or through the API, under the same names without `cruise.io/`. The nearest value
applies, in this order; of the mode, the lowest. [Policy objects](policies.md) come after them and say
the same for many workloads; a maximum of the cluster's limits all others. Pods with an annotation that cannot be
read are skipped, with a reason and an Event.

User minimums, which a workload's own annotations request beyond its pod template, are granted
from free capacity: no other pod is evicted or shrunk for them. Annotations of the namespace,
and the API, may do more."""


_OF_OPERATORS = f"""[Pods that run to completion](../operating.md#pods-that-run-to-completion) are one workload
across runs if their operator names the same by a label or an annotation, the first that is present. `{WORKLOAD.name}`
comes before all of them. Without any, it is the name of the controller without its random suffix. Steps of a run are
separate workloads, written as `Kind/name:step`."""


def annotations_page() -> str:
    """Return the page; ValueError for an annotation without description, or a description without annotation."""
    described = {*OVERRIDE_WORDS, *_OTHERS}
    names = {one.name for one in ALL_ANNOTATIONS}
    if described != names:
        raise ValueError(f"annotations.py: described or read, not both: {', '.join(sorted(described ^ names))}")
    overrides = table(
        ("annotation", "values", "meaning"),
        ((_format_name(one.name, one not in POD_SETTINGS), *OVERRIDE_WORDS[one.name]) for one in OVERRIDES.values()),
    )
    others = [one for one in ALL_ANNOTATIONS if one.name not in OVERRIDE_WORDS]
    written = [one for one in others if one.allowed_sources == (OverrideSource.CRUISE,)]
    obeyed = [one for one in others if OverrideSource.POD in one.allowed_sources]
    rest = [one for one in others if one not in written and one not in obeyed]
    return page(
        "Annotations and labels",
        _INTRODUCTION,
        section("Overrides", overrides),
        section("Of other tools, that cruise obeys", _table(obeyed)),
        section("Of operators, by which runs are grouped", f"{_OF_OPERATORS}\n\n{_build_operator_table()}"),
        section("That cruise writes", _table(written)),
        section("Of Kubernetes and other tools, that cruise reads", _table(rest)),
    )


def _build_operator_table() -> str:
    return table(
        ("operator", "controller of the pod", "workload", "step"),
        (
            (
                one.name,
                ", ".join(map(code, sorted(one.owner_kinds))) or f"none, with {_list_codes(sorted(one.marks))}",
                ", ".join(f"{kind or 'its kind'}: {code(key)}" for kind, key in one.groups) or "its name",
                _list_codes(one.steps) or "–",
            )
            for one in OPERATORS
        ),
    )


def _list_codes(keys: Iterable[str]) -> str:
    return ", ".join(map(code, keys))


def _format_name(name: str, by_container: bool) -> str:
    return f"{code(name)}, {code(f'{name}.CONTAINER')}" if by_container else code(name)


def _table(annotations: Iterable[Annotation]) -> str:
    return table(("annotation or label", "meaning"), _rows(annotations))


def _rows(annotations: Iterable[Annotation]) -> Iterator[tuple[str, str]]:
    for one in annotations:
        yield code(one.name), _OTHERS[one.name]
