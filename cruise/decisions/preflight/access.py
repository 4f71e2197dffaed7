"""Which rights each mode needs: the rules of deploy/rbac, one by one."""

from cruise.domain.policy import Mode
from cruise.domain.preflight import AccessNeed

READ_VERBS = ("get", "list", "watch")
LEASE = "cruise-serve"
POLICIES = "cruise-accounts"
_READ = (
    ("", "pods"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "limitranges"),
    ("", "resourcequotas"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("apps", "replicasets"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps.kruise.io", "clonesets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("autoscaling.k8s.io", "verticalpodautoscalers"),
    ("policy", "poddisruptionbudgets"),
    ("karpenter.sh", "nodepools"),
    ("karpenter.sh", "nodeclaims"),
)
# What cluster-autoscaler says of itself.
_STATUS = AccessNeed("get", "configmaps", "", "", "kube-system", "cluster-autoscaler-status")


def required_access(mode: Mode, namespace: str, *, reviews_callers: bool = False) -> tuple[AccessNeed, ...]:
    """Return what `cruise serve` needs in a mode; `namespace` is its own.

    With `reviews_callers` it asks the API server who calls its API.
    """
    needs = [AccessNeed(verb, resource, group) for group, resource in _READ for verb in READ_VERBS]
    needs.append(_STATUS)
    # Of whatever kind an autoscaler's target is.
    needs.append(AccessNeed("get", "*", "*", "scale"))
    if reviews_callers:
        needs.append(AccessNeed("create", "tokenreviews", "authentication.k8s.io"))
        needs.append(AccessNeed("create", "subjectaccessreviews", "authorization.k8s.io"))
    if mode >= Mode.RESIZE:
        lease = [AccessNeed(verb, "leases", "coordination.k8s.io", "", namespace, LEASE) for verb in ("get", "update")]
        needs += [AccessNeed("patch", "pods", "", "resize"), AccessNeed("create", "events"), *lease]
        needs.append(AccessNeed("create", "leases", "coordination.k8s.io", "", namespace))
    if mode >= Mode.FULL:
        needs += [AccessNeed("create", "pods", "", "eviction"), AccessNeed("patch", "nodes")]
    return tuple(needs)
