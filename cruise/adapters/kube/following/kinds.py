"""Which kinds of objects are followed, and in which order."""

from dataclasses import dataclass

from cruise.kube_json.wire import object_json, pod_json, storage_json


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its name in URLs, where the objects of all namespaces are, and what is read of each.

    One that is `optional` may be absent or forbidden, and then has no objects. Few may: unseen, an
    autoscaler, a budget, bounds or a protective annotation would be violated. A claim that is not seen is known from
    its pod, which then stays where it is. One that is `optional` and `read_if_served` may be absent, and not forbidden
    where the server has it.
    """

    plural: str
    path: str
    shape: type[object_json.AnyObject]
    optional: bool = False
    read_if_served: bool = False


REPLICA_SETS = Kind("replicasets", "/apis/apps/v1/replicasets", object_json.ReplicaSetObject)
JOBS = Kind("jobs", "/apis/batch/v1/jobs", object_json.JobObject)
NODES = Kind("nodes", "/api/v1/nodes", object_json.NodeObject)
PODS = Kind("pods", "/api/v1/pods", pod_json.PodObject)
BUDGETS = Kind("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets", object_json.BudgetObject)

ADMISSION_KINDS: tuple[Kind, ...] = (
    REPLICA_SETS,
    JOBS,
    NODES,
    Kind("deployments", "/apis/apps/v1/deployments", object_json.DeploymentObject),
    Kind("statefulsets", "/apis/apps/v1/statefulsets", object_json.StatefulSetObject),
    Kind("daemonsets", "/apis/apps/v1/daemonsets", object_json.DaemonSetObject),
    Kind("cronjobs", "/apis/batch/v1/cronjobs", object_json.CronJobObject),
    Kind("clonesets", "/apis/apps.kruise.io/v1alpha1/clonesets", object_json.CloneSetObject, optional=True),
    Kind(
        "horizontalpodautoscalers",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        object_json.AutoscalerObject,
    ),
    Kind(
        "verticalpodautoscalers",
        "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
        object_json.VerticalAutoscalerObject,
        optional=True,
        read_if_served=True,
    ),
    Kind("limitranges", "/api/v1/limitranges", object_json.LimitRangeObject),
    Kind("namespaces", "/api/v1/namespaces", object_json.NamespaceObject),
)
"""What sizes for a new pod are decided from."""

PRIORITY_CLASSES = Kind(
    "priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", storage_json.PriorityClassObject, optional=True
)
STORAGE_KINDS: tuple[Kind, ...] = (
    Kind("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", storage_json.ClaimObject, optional=True),
    Kind("persistentvolumes", "/api/v1/persistentvolumes", storage_json.VolumeObject, optional=True),
    Kind("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", storage_json.StorageClassObject, optional=True),
    Kind("csinodes", "/apis/storage.k8s.io/v1/csinodes", storage_json.NodeDriversObject, optional=True),
    Kind("csidrivers", "/apis/storage.k8s.io/v1/csidrivers", storage_json.DriverObject, optional=True),
    Kind(
        "csistoragecapacities",
        "/apis/storage.k8s.io/v1/csistoragecapacities",
        storage_json.CapacityObject,
        optional=True,
    ),
    Kind(
        "volumeattachments", "/apis/storage.k8s.io/v1/volumeattachments", storage_json.AttachmentObject, optional=True
    ),
)
"""The kinds that limit where a pod with claims may run."""

QUOTAS = Kind("resourcequotas", "/api/v1/resourcequotas", object_json.QuotaObject)
ALL_KINDS: tuple[Kind, ...] = (*ADMISSION_KINDS, BUDGETS, QUOTAS, PRIORITY_CLASSES, *STORAGE_KINDS, PODS)

FIRST_LISTED = frozenset({REPLICA_SETS.plural, JOBS.plural, NODES.plural, PRIORITY_CLASSES.plural})
"""What pods are read with: their owners, the nodes that they are on, and what their priorities are."""
