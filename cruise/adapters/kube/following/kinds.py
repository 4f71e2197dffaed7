"""Which kinds of objects are followed, and in which order."""

from dataclasses import dataclass

from cruise.kube_json.wire import objects as wire_objects
from cruise.kube_json.wire import pods_and_nodes as wire
from cruise.kube_json.wire import storage as wire_storage


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its name in URLs, where the objects of all namespaces are, and what is read of each.

    One that is `optional` may be absent or forbidden, and then has no objects. Few may: who cannot see an autoscaler,
    a budget, bounds or a wish to be left alone would act against them. Who cannot see a claim knows of the pod that
    has it, and leaves it where it is.
    """

    plural: str
    path: str
    shape: type[wire_objects.AnyObject]
    optional: bool = False


REPLICA_SETS = Kind("replicasets", "/apis/apps/v1/replicasets", wire_objects.ReplicaSetObject)
JOBS = Kind("jobs", "/apis/batch/v1/jobs", wire_objects.JobObject)
NODES = Kind("nodes", "/api/v1/nodes", wire.NodeObject)
PODS = Kind("pods", "/api/v1/pods", wire.PodObject)
BUDGETS = Kind("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets", wire_objects.BudgetObject)

ADMISSION_KINDS: tuple[Kind, ...] = (
    REPLICA_SETS,
    JOBS,
    NODES,
    Kind("deployments", "/apis/apps/v1/deployments", wire_objects.DeploymentObject),
    Kind("statefulsets", "/apis/apps/v1/statefulsets", wire_objects.StatefulSetObject),
    Kind("daemonsets", "/apis/apps/v1/daemonsets", wire_objects.DaemonSetObject),
    Kind("cronjobs", "/apis/batch/v1/cronjobs", wire_objects.CronJobObject),
    Kind(
        "horizontalpodautoscalers",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        wire_objects.AutoscalerObject,
    ),
    Kind("limitranges", "/api/v1/limitranges", wire_objects.LimitRangeObject),
    Kind("namespaces", "/api/v1/namespaces", wire_objects.NamespaceObject),
)
"""What sizes for a new pod are decided from."""

PRIORITY_CLASSES = Kind(
    "priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", wire_storage.PriorityClassObject, optional=True
)
STORAGE_KINDS: tuple[Kind, ...] = (
    Kind("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", wire_storage.ClaimObject, optional=True),
    Kind("persistentvolumes", "/api/v1/persistentvolumes", wire_storage.VolumeObject, optional=True),
    Kind("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", wire_storage.StorageClassObject, optional=True),
    Kind("csinodes", "/apis/storage.k8s.io/v1/csinodes", wire_storage.NodeDriversObject, optional=True),
)
"""What tells where a pod with claims may go."""

ALL_KINDS: tuple[Kind, ...] = (*ADMISSION_KINDS, BUDGETS, PRIORITY_CLASSES, *STORAGE_KINDS, PODS)

FIRST_LISTED = frozenset({REPLICA_SETS.plural, JOBS.plural, NODES.plural, PRIORITY_CLASSES.plural})
"""What pods are read with: their owners, the nodes that they are on, and what their priorities are."""
